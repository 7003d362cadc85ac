"""The register of owners: whose an input is, and how far its journal has come.

Whoever reads the same input twice owns two ledgers and no guarantee, also one after the other. So a compacted topic
remembers, for each input topic, which journal owns it and the last of the journal's commits that was published. Every
publication writes it anew, in its own transaction. A journal that does not hold that commit is an old copy, or another
copy has gone on: it is refused, whatever prefix or journal path it is started with.

The register lies on the output. Where the input is an embedded log, the claim lies there too, so that another output
is no way around it; a reader of Kafka needs no right to write to its input. To claim an input one holds the writer of
its name, so of two daemons that begin at once one is fenced. The entry also names the identity under which its owner
publishes, so that whoever takes an input over fences a daemon that still runs, whatever other topics it reads.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from streamdp.config import StreamConfig
from streamdp.daemon.outputs import OWNERS
from streamdp.errors import StreamdpError
from streamdp.journal import Commit, Journal, StoredMessage
from streamdp.transport.base import Message, TopicSpec, Transport, Writer
from streamdp.transport.tail import newest

FORMAT = 2

# A publication takes far less, unless the broker stalls.
PUBLISHING_SECONDS = 5.0

ADVICE = (
    "Restore the newest copy of the journal; if it is lost, `streamdp journal write-off CONFIG` gives up what was "
    "published meanwhile and its budget"
)


@dataclass(frozen=True)
class Entry:
    """What the register holds of an input topic. Before anything was published there is no commit."""

    topic: str
    journal_id: str
    writer: str
    time_point: int = 0
    commit: Commit | None = None


class Owners:
    """The entries of one stream's input. `identity` is what the stream publishes under."""

    def __init__(self, source: Transport, target: Transport, config: StreamConfig, journal: Journal) -> None:
        self._target, self._journal = target, journal
        self.identity = "streamdp-" + _digest(journal.identity.input_identity)
        self._keys = {_key(source, topic): topic for topic in sorted(config.input.topics)}
        self._claimed_at = target if config.input.kafka is not None else source
        self._places = [self._claimed_at]
        if self._claimed_at.cluster_id() != target.cluster_id():
            self._places.append(target)
        for place in self._places:
            place.ensure_topics([TopicSpec(OWNERS, cleanup="compact")])
        self._held: list[Writer] = []

    # Reading

    def entries(self, *, wait: bool = True) -> list[Entry]:
        """What is said of the input topics, wherever it is said; `wait` as for `newest`."""
        return [
            _entry(self._keys[key], json.loads(message.value or b"{}"))
            for place in self._places
            for key, message in newest(place, OWNERS, self._keys, wait=wait).items()
        ]

    def on_output(self) -> dict[bytes, bytes | None]:
        """The entries that publications write anew, by key, as they are now."""
        found = newest(self._target, OWNERS, self._keys)
        return {key: found[key].value if key in found else None for key in self._keys}

    def is_ours(self, entry: Entry) -> bool:
        """Whether it is this journal's, and not of a copy of it that went on."""
        mine = entry.journal_id == self._journal.identity.journal_id
        return mine and (entry.commit is None or self._journal.contains(entry.commit))

    def require_ours(self) -> None:
        """Refuses when an input topic belongs to another journal, or to another copy of this one."""
        self._require_ours(self.entries())

    def _require_ours(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.journal_id != self._journal.identity.journal_id:
                raise StreamdpError(
                    f"the input topic {entry.topic!r} belongs to another journal, {entry.journal_id[:12]}: a second "
                    "ledger over the same data would spend its budget twice. Give that journal's path in [journal], "
                    "or, if it is lost, `streamdp journal write-off`"
                )
            if not self.is_ours(entry):
                raise StreamdpError(
                    f"time point {entry.time_point} was published by another copy of this journal, which ends with "
                    f"{self._journal.last_time_point}: this one is an old copy, or both went on from the same one. "
                    f"{ADVICE}"
                )

    # Owning

    def claim(self) -> Writer:
        """Makes the journal the owner of its input, and holds it against a second daemon until closed.

        Returns the writer to publish with.
        """
        # Before fencing anybody: a daemon that was started by mistake must not stop the right one, which may be
        # publishing at this moment. A transaction that stays open is most likely that of a daemon that died. If it is
        # that of the right one, whose broker stalls, an older copy may fence it here. Nothing is spent twice by that:
        # what was not committed, nobody has seen.
        self._wait_for_publications(PUBLISHING_SECONDS)
        self._require_ours(self.entries(wait=False))
        self._hold()
        # This also ends a transaction that a crash left open, which the reads below would wait for.
        publishing = self._target.writer(self.identity)
        try:
            self.require_ours()
            owned = newest(self._claimed_at, OWNERS, self._keys)
            for key, writer in zip(self._keys, self._held, strict=True):
                if key not in owned:
                    writer.append([self._message(key)])
        except BaseException:
            publishing.close()
            raise
        return publishing

    def _wait_for_publications(self, seconds: float) -> None:
        """Waits so long for transactions that are open on the register."""
        deadline = time.monotonic() + seconds
        for place in self._places:
            while place.end_offsets([OWNERS]) != place.high_watermarks([OWNERS]) and time.monotonic() < deadline:
                time.sleep(0.1)

    def take_over(self) -> None:
        """Ends the writing of whoever owns the input. Its entries stay until `record` writes others."""
        self._hold()
        for writer in {entry.writer for entry in self.entries()}:
            self._target.writer(writer).close()

    def record(self) -> None:
        """Says of the input that it is this journal's, as it stands now."""
        commit, time_point = self._journal.last_commit(), self._journal.last_time_point
        for place in self._places:
            writer = place.writer(self.identity)
            try:
                writer.append([self._message(key, time_point, commit) for key in self._keys])
            finally:
                writer.close()

    def messages(self, last: StoredMessage) -> list[Message]:
        """What a publication that ends with this message says in the register."""
        commit = self._journal.commit_of(last.sequence)
        return [self._message(key, last.time_point, commit) for key in self._keys]

    def close(self) -> None:
        while self._held:
            self._held.pop().close()

    def _hold(self) -> None:
        try:
            for key in self._keys:
                self._held.append(self._claimed_at.writer("streamdp-reader-" + _digest(key.decode())))
        except BaseException:
            self.close()
            raise

    def _message(self, key: bytes, time_point: int = 0, commit: Commit | None = None) -> Message:
        fields = {"format": FORMAT, "journal_id": self._journal.identity.journal_id, "writer": self.identity}
        if commit is not None:
            fields |= {"time_point": time_point, "commit": commit.number, "digest": commit.digest}
        return Message(OWNERS, json.dumps(fields).encode(), key=key)


def _key(source: Transport, topic: str) -> bytes:
    """Names the topic among those of every log and cluster; one made anew is another."""
    return json.dumps([source.cluster_id(), topic, source.topic_id(topic)]).encode()


def _entry(topic: str, fields: dict[str, Any]) -> Entry:
    if fields.get("format") != FORMAT:
        raise StreamdpError(
            f"the topic {OWNERS!r} holds an entry of format {fields.get('format')} for the input topic {topic!r}; this "
            f"version reads {FORMAT}. Use the streamdp that wrote it"
        )
    commit = Commit(fields["commit"], fields["digest"]) if "commit" in fields else None
    return Entry(topic, fields["journal_id"], fields["writer"], fields.get("time_point", 0), commit)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
