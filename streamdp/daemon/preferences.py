"""The public table of preferences while the daemon runs: read, digested, kept at the smaller, remembered.

The table is read at the start and looked at again whenever levels are needed. What was ever seen of a user is in the
journal before anything is done with it, so a restart raises nobody's level either.
"""

from __future__ import annotations

import logging

from streamdp.config import StreamConfig
from streamdp.errors import ConfigurationError
from streamdp.ingest.preferences import PreferenceReader
from streamdp.journal import Journal
from streamdp.population.levels import LevelTable
from streamdp.transport.base import Reader, TopicSpec, Transport, Unreachable

log = logging.getLogger("streamdp.preferences")


class PreferenceTable:
    """The levels that users have now. Nothing in it depends on who is present."""

    def __init__(self, config: StreamConfig, journal: Journal, source: Transport) -> None:
        preferences = config.privacy.preferences
        assert preferences is not None  # see `of`
        self._journal = journal
        self._reader = PreferenceReader(config.levels, preferences.classes, journal.digest_key, config.input.user)
        self._path, self._topic = config.preferences_path, preferences.topic
        self._source = source
        self._seen: tuple[int, int] | None = None
        self._messages: Reader | None = None
        self._table = journal.preferences()
        news = self._read_topic() if self._path is None else self._read_file()
        if news is not None:
            self._take(news, complete=True)
        log.info("preferences", extra={"fields": {"entries": len(self._table)}})

    @classmethod
    def of(cls, config: StreamConfig, journal: Journal, source: Transport) -> PreferenceTable | None:
        """None for a stream in which everybody has the same epsilon."""
        return None if config.privacy.preferences is None else cls(config, journal, source)

    def current(self) -> LevelTable:
        """The table, with what was said since the last look. When it cannot be read, what is known holds."""
        try:
            if self._path is None:
                self._take(self._read_topic(), complete=False)
            elif (news := self._read_file()) is not None:
                self._take(news, complete=True)
        except (ConfigurationError, Unreachable) as error:
            log.warning("the preferences cannot be read; the last ones hold", extra={"fields": {"why": str(error)}})
        return self._table

    def close(self) -> None:
        if self._messages is not None:
            self._messages.close()

    def _take(self, news: LevelTable, *, complete: bool) -> None:
        after = self._table.lowered_by(news, complete=complete)
        changed = after.changed_since(self._table)
        if len(changed):
            self._journal.keep_preferences(changed)
            self._table = after

    def _read_file(self) -> LevelTable | None:
        """None when the file is as it was."""
        assert self._path is not None
        try:
            status = self._path.stat()
        except OSError as error:
            raise ConfigurationError(f"cannot read the preferences in {self._path}: {error.strerror}") from None
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._seen:
            return None
        table = self._reader.read_file(self._path)
        self._seen = stamp
        return table

    def _read_topic(self) -> LevelTable:
        """What came since the last look; the first time, everything."""
        assert self._topic is not None
        if self._messages is None:
            self._source.ensure_topics([TopicSpec(self._topic, cleanup="compact")])
            self._messages = self._source.reader(self._source.begin_offsets([self._topic]))
        end = self._source.end_offsets([self._topic])
        begin = self._source.begin_offsets([self._topic])
        self._messages.assign_more(
            {partition: begin[partition] for partition in end if partition not in self._messages.positions()}
        )
        table, faulty = LevelTable.empty(), 0
        while any(self._messages.positions()[partition] < offset for partition, offset in end.items()):
            for batch in self._messages.poll(timeout=1.0):
                found, wrong = self._reader.read_messages(batch.keys, batch.values)
                table = table.lowered_by(found, complete=False)
                faulty += wrong
        if faulty:
            log.warning("preferences that no level can honour count as the strictest", extra={"fields": {"n": faulty}})
        return table
