"""The end of the output topics: what was really published, whatever a journal believes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamdp import messages
from streamdp.engine import Topics
from streamdp.transport.base import Message, TopicSpec, Transport
from streamdp.transport.tail import tail

OWNERS = "streamdp.owners"
"""The register of owners (claims.py)."""


@dataclass(frozen=True, slots=True)
class Head:
    """The last point that the outputs hold, and whose journal wrote it."""

    time_point: int
    closed: int
    journal_id: str


def output_topics(topics: Topics) -> list[TopicSpec]:
    """One partition each: a subscriber reads a stream in its order."""
    return [
        TopicSpec(topics.releases),
        TopicSpec(topics.latest, cleanup="compact"),
        TopicSpec(topics.head, cleanup="compact"),
        TopicSpec(topics.results),
        TopicSpec(topics.jobs),
    ]


def rows_topics(topics: Topics, stored: Iterable[Message]) -> list[TopicSpec]:
    """The topics of their own that rows among these messages go to."""
    return [TopicSpec(name) for name in sorted({m.topic for m in stored if topics.is_rows(m.topic)})]


def read_head(transport: Transport, topics: Topics) -> Head | None:
    """The newest head message; None when nothing was ever published."""
    newest = tail(transport, topics.head, 1)
    if not newest:
        return None
    header = messages.decode(newest[0].value or b"").header
    return Head(int(header["time_point"]), int(header["closed"]), str(header["journal_id"]))


def point_of(message: Message) -> int:
    """The time point of a message on one of the output topics."""
    return int(messages.decode(message.value or b"").header["time_point"])
