"""What streamdp asks of a transport. The embedded log and Kafka both implement these Protocols.

Terms. A *position* is the offset of the next record to read. Offsets ascend but may have gaps, so "drained up to the
cut" means `reader.positions()[tp] >= cut`, never "saw the record at cut - 1": a reader's position moves past what
holds no record for it (compacted records; on Kafka also control records).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from streamdp.errors import StreamdpError
from streamdp.transport.batch import Headers, RecordBatch

if TYPE_CHECKING:
    from streamdp.transport.guard import Guard

POLL_BYTES = 8 << 20
"""How much one poll returns at most, about: bounds memory, and is large enough that the cost per poll disappears."""

UNKNOWN_EPOCH = -1
"""Of a history that nothing is known of. It ends where the log does."""

MAX_RECORD_BYTES = 64 << 20
"""The longest key and value a reader hands out unless asked for another bound."""


class TransportError(StreamdpError):
    """The transport failed; the message says what to do."""


class Unreachable(TransportError):
    """No answer now, though nothing is known to be wrong: try again later.

    After an `append` the outcome is unknown, and the writer is of no more use.
    """


class Truncated(Unreachable):
    """A partition lost its end, and with it records that a reader had passed. The reader has gone back already.

    `ends` says where each was cut: what lies there and beyond now are other records.
    """

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        super().__init__("a topic lost messages at its end that were read before: try again, from where it was cut")
        self.ends = dict(ends)


class UnknownTopic(TransportError):
    """The topic or partition does not exist."""


class OffsetGone(TransportError):
    """A position lies outside what the partition holds: before its first offset, or beyond its end."""


class Fenced(TransportError):
    """Another writer holds, or has taken over, this identity."""


class LogCorrupted(TransportError):
    """Stored bytes fail their checksum or make no sense; the message names the file and the byte position."""


class DiskFull(TransportError):
    """No room for the append. Nothing of it is visible, and nothing acknowledged before is lost."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it should be. `retention_ms = None` leaves it to the transport's own default."""

    name: str
    partitions: int = 1
    cleanup: Literal["delete", "compact"] = "delete"
    retention_ms: int | None = None


@dataclass(frozen=True, repr=False)
class Message:
    """A message to write.

    Without a partition the key's hash chooses (no key: partition 0); without a timestamp, the clock.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: Headers = ()
    partition: int | None = None


class Reader(Protocol):
    """Reads committed records from explicit positions; nothing is remembered on the transport's side."""

    def poll(
        self,
        max_bytes: int = POLL_BYTES,
        timeout: float = 0.0,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> list[RecordBatch]:
        """What is there, oldest first within a partition; waits up to `timeout` seconds when there is nothing.

        Of a partition in `until`, nothing at or beyond that offset is returned, and its position stops there (or after
        it, where nothing but control records lies between): how a reader drains to a cut and buffers nothing more.

        Returns at most about `max_bytes`, but always makes progress on a record larger than that. Raises `OffsetGone`
        when a position lies outside its partition, and `Truncated`, once, when the partition lost what was read.
        """
        ...

    def positions(self) -> dict[TopicPartition, int]:
        """For every assigned partition, the offset after everything returned (or skipped) so far."""
        ...

    def epochs(self) -> dict[TopicPartition, int]:
        """Of partitions that may lose their end: which history the positions belong to, for `Transport.ends_of`."""
        ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def assign_more(self, positions: Mapping[TopicPartition, int]) -> None:
        """Take on partitions that appeared while running; those already assigned keep their positions."""
        ...

    def close(self) -> None: ...


class Writer(Protocol):
    """Writes under one identity, which it holds alone until closed."""

    def append(self, messages: Sequence[Message]) -> list[tuple[TopicPartition, int]]:
        """Write all messages or none, across topics; they are durable and visible when this returns.

        Returns where each message went, in order. After an error that is neither `Fenced` nor `DiskFull` nor
        `UnknownTopic` the outcome may be unknown: read the end of the topics to find out.
        """
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    def cluster_id(self) -> str:
        """A stable name of this log or broker cluster."""
        ...

    def topic_id(self, topic: str) -> str:
        """A stable id of the topic; a topic deleted and created again has a new one."""
        ...

    def partitions(self, topic: str) -> list[int]: ...

    def begin_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """The first offset that can still be read, for every partition of the topics."""
        ...

    def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """The offset after the last committed record, before any transaction that is still open (Kafka's last stable
        offset): how far a reader comes now."""
        ...

    def high_watermarks(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """The end of every partition's log, what open transactions wrote included: where a cut is taken.

        One user's open transaction moves `end_offsets` for everybody behind it, but not this. A reader gets here when
        the transactions below have ended.
        """
        ...

    def ends_of(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where the histories that a reader named (`Reader.epochs`) end in the log as it is now: a position beyond that
        is of records that were lost, and others may lie there. Nothing of partitions that never lose their end."""
        ...

    def deletes_kept_ms(self, topics: Iterable[str]) -> int | None:
        """How long a null value can be read at least before compaction may drop it; None where none ever is."""
        ...

    def ensure_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Create what is missing; refuse a topic that exists with other partitions or another cleanup policy."""
        ...

    def reader(
        self,
        positions: Mapping[TopicPartition, int],
        max_record_bytes: int = MAX_RECORD_BYTES,
        guard: Guard | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> Reader:
        """A record whose key and value are longer, or that has more than 1 MiB of headers besides, may come without
        all three: an empty row that `RecordBatch.oversize` marks. `epochs` is what an earlier reader said of these
        positions.

        What is stored together and skipped as a whole (`guard.skips`) is not read: one empty row stands for it.
        """
        ...

    def writer(self, identity: str) -> Writer:
        """The only writer of this identity; raises `Fenced` (or fences the other) when it is taken."""
        ...

    def close(self) -> None: ...
