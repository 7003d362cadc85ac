"""What goes into a journal and comes out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamdp.arrays import Counts
from streamdp.engine.job import Job
from streamdp.privacy.ledger import Charge
from streamdp.transport.base import Message, TopicPartition

Cut = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose journal it is. The ledger belongs to the input data, so a journal serves one input for ever.

    It serves one output too, because the register there tells an old copy from the newest.
    """

    journal_id: str
    input_identity: str
    output_identity: str
    created_ts: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A link of the chain: two journals that agree in it agree in everything up to it."""

    number: int
    digest: str


@dataclass(frozen=True, slots=True)
class Release:
    """Fresh counts of a histogram. They are public, and the next decisions are made against them."""

    release_id: str
    histogram: str
    counts: Counts = field(repr=False)
    reason: str
    """Why the strategy released; "above" ends a sparse vector of one positive."""


@dataclass(frozen=True, slots=True)
class PointCommit:
    """Everything that one time point did, or a run of missed ones from `first` to it, for one transaction.

    `charges` holds counted charges and the audit trail of reservations (`counted=False`), the latter under the
    histogram's name as owner. `engine_state` has the histograms whose state changed. `jobs_position` is where to read
    on in the topic of requests, when some were decided on.
    """

    time_point: int
    opened_ts: int
    closed_ts: int
    cut: Cut | None
    status: Literal["closed", "missed", "ended"] = "closed"
    charges: Sequence[Charge] = ()
    engine_state: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    releases: Sequence[Release] = ()
    messages: Sequence[Message] = field(default=(), repr=False)
    jobs: Sequence[Job] = ()
    jobs_position: int | None = None
    first: int | None = None
    epochs: Cut = field(default_factory=dict)
    """Which history of its log each offset of the cut is of, where logs may lose their end."""


@dataclass(frozen=True, slots=True)
class JobsCommit:
    """What happened to jobs apart from the close of a time point, for one transaction.

    `time_point` is the last one that closed: the one that charges are for and messages are stored under.
    """

    time_point: int
    jobs: Sequence[Job] = ()
    charges: Sequence[Charge] = ()
    messages: Sequence[Message] = field(default=(), repr=False)
    jobs_position: int | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """How the stream began: what recovery needs when there is no checkpoint yet.

    Point 1 opened at `first_open`; reading began at `start`, and what lay before `backlog` was taken with timestamps
    up to `latest_ts`, as part of point 1.
    """

    first_open: int
    length: int
    start: Cut
    backlog: Cut
    latest_ts: int

    def at(self, first_open: int) -> Opening:
        return replace(self, first_open=first_open)


@dataclass(frozen=True, slots=True)
class Point:
    """A time point the journal knows, or a run of them, from `first` on, that were missed or written off.

    Those have no cut, and one that was written off has no bounds either.
    """

    time_point: int
    first: int
    opened_ts: int | None
    closed_ts: int | None
    cut: Cut | None
    status: Literal["closed", "missed", "ended", "written_off"]
    epochs: Cut = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRelease:
    release_id: str
    histogram: str
    time_point: int
    counts: Counts = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with the exact bytes that are, or will be, published."""

    sequence: int
    time_point: int
    message: Message = field(repr=False)
    sha256: bytes


def counts_digest(counts: Counts) -> bytes:
    return hashlib.sha256(counts.astype("<i8", copy=False).tobytes()).digest()


def message_digest(message: Message) -> bytes:
    """What makes two messages the same: topic, key, value and headers, each with its length.

    Not partition and timestamp, which the transport may choose.
    """
    digest = hashlib.sha256()
    parts: list[bytes | None] = [message.topic.encode(), message.key, message.value]
    for name, value in message.headers:
        parts += [name.encode(), value]
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()
