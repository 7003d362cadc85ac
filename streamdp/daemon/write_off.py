"""Giving up what an old, restored or lost journal does not know, so that a stream may go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamdp.config import StreamConfig
from streamdp.daemon.claims import Entry, Owners
from streamdp.daemon.output_checks import holds_unknown_results
from streamdp.daemon.outputs import Head, output_topics, read_head
from streamdp.daemon.schedule import Schedule, now_ms
from streamdp.daemon.start import open_journal
from streamdp.engine import Topics
from streamdp.journal import Journal, Opening
from streamdp.transport.base import Transport


@dataclass
class WriteOff:
    """What would be given up, under the journal's lock."""

    config: StreamConfig
    journal: Journal
    source: Transport
    target: Transport
    head: Head | None
    checkpoints: list[Path]
    owners: Owners
    entries: list[Entry]
    """What the register says of the input."""
    now: int

    @property
    def until(self) -> int:
        """The last point that anybody may have published or asked."""
        published = 0 if self.head is None else self.head.time_point
        registered = max((entry.time_point for entry in self.entries if self._is_copy(entry)), default=0)
        known = max(published, registered, self._stored, self.journal.last_time_point)
        if not self._was_asked_elsewhere:
            return known
        today = self._schedule().point_at(self.now)
        return max(known, min(today, self.journal.terms.points) if self.journal.terms.is_finite else today)

    @property
    def _stored(self) -> int:
        """The last point of which there is a checkpoint."""
        return max((int(path.stem.partition("-")[2]) for path in self.checkpoints), default=0)

    @property
    def _was_asked_elsewhere(self) -> bool:
        """Whether the input belongs to a journal whose outputs are not these, so that they tell nothing of it."""
        seen = None if self.head is None else self.head.journal_id
        return any(not self._is_copy(entry) and entry.journal_id != seen for entry in self.entries)

    def _is_copy(self, entry: Entry) -> bool:
        """Whether a copy of this journal wrote the entry, so that it counts the same time points."""
        return entry.journal_id == self.journal.identity.journal_id

    def _schedule(self) -> Schedule:
        """The journal's time points; those of the outputs where it has none; or the newest checkpoint's is now."""
        length, opening = self.config.time.length_ms, self.journal.opening()
        if opening is not None:
            return Schedule(opening.length, opening.first_open)
        if self.head is not None:
            return Schedule(length, self.head.closed - self.head.time_point * length)
        begins = Schedule.starting(self.now, length, self.config.time.origin_ms)
        return Schedule(length, begins.opens(2 - max(self._stored, 1)))

    @property
    def needed(self) -> bool:
        if not all(map(self.owners.is_ours, self.entries)):
            return True
        foreign = self.head is not None and self.head.journal_id != self.journal.identity.journal_id
        known = max(self.journal.last_time_point, self.journal.written_off_until())
        if self.until > known or (foreign and self.until > self.journal.written_off_until()):
            return True
        return holds_unknown_results(self.journal, self.target, Topics.of(self.config.output_prefix))

    @property
    def explanation(self) -> str:
        if not self.needed:
            return "the journal knows everything that was published; there is nothing to write off"
        text = (
            f"the journal ends with time point {self.journal.last_time_point}; outputs or checkpoints reach to "
            f"{self.until}.\n"
        )
        if self._was_asked_elsewhere:
            text = (
                "the input belongs to another journal, and these outputs do not tell what that one spent: everything "
                f"up to now, time point {self.until}, may be.\n"
            )
        if self.journal.terms.is_finite:
            return text + (
                "writing that off regards the whole budget as spent: the stream repeats its last release to the end of "
                "its horizon, and no job runs any more"
            )
        return text + (
            f"writing that off regards every window with those points as spent: nothing is released before time point "
            f"{self.until + self.journal.terms.points}"
        )

    def carry_out(self, reason: str) -> None:
        """Ends any other's writing, writes off, and makes this journal the owner of the input.

        In this order: until the journal holds the write-off, only the register and the outputs tell what it is about.
        """
        self.owners.take_over()
        try:
            self.head = read_head(self.target, Topics.of(self.config.output_prefix))
            self.entries = self.owners.entries()
            self.now = now_ms()
            self._write_off(reason)
            self.owners.record()
        finally:
            self.owners.close()

    def _write_off(self, reason: str) -> None:
        until = self.until
        if self.journal.opening() is None:
            # A new journal has a new key for users' digests, so the old checkpoints are of no use to it.
            for path in self.checkpoints:
                path.unlink()
            begin, schedule = self.source.begin_offsets(self.config.input.topics), self._schedule()
            latest = self.now if self.head is None else self.head.closed
            self.journal.record_opening(Opening(schedule.first_open, schedule.length, begin, begin, latest))
        self.journal.write_off(until, reason)


@contextmanager
def plan_write_off(config: StreamConfig, source: Transport, target: Transport) -> Iterator[WriteOff]:
    """Looks at journal, outputs and checkpoints; holds the journal's lock meanwhile."""
    journal = open_journal(config, source, target)
    try:
        topics = Topics.of(config.output_prefix)
        target.ensure_topics(output_topics(topics))
        checkpoints = sorted(config.checkpoint_path.glob("checkpoint-*.columns"))
        owners = Owners(source, target, config, journal)
        head = read_head(target, topics)
        yield WriteOff(config, journal, source, target, head, checkpoints, owners, owners.entries(), now_ms())
    finally:
        journal.close()
