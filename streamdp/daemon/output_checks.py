"""What the outputs hold against what the journal knows: refuses what is unknown, publishes what is owed."""

from __future__ import annotations

from streamdp import messages
from streamdp.daemon.claims import ADVICE, Owners
from streamdp.daemon.outputs import Head, point_of, read_head, rows_topics
from streamdp.engine import Topics
from streamdp.errors import StreamdpError
from streamdp.journal import Journal, message_digest
from streamdp.transport.base import Message, Transport, Writer
from streamdp.transport.tail import tail

OWED_BYTES = 1 << 20
"""How much of what is owed leaves in one transaction, about."""


def check_head(journal: Journal, head: Head | None) -> None:
    """Refuses when another journal, or a newer copy of this one, wrote the outputs and nobody wrote that off."""
    mine, last = journal.identity.journal_id, journal.last_time_point
    if head is None or head.time_point <= journal.written_off_until():
        return
    if head.journal_id != mine:
        raise StreamdpError(
            f"the output topics were written by another journal, {head.journal_id[:12]}, up to time point "
            f"{head.time_point}; this one is {mine[:12]}. {ADVICE}"
        )
    if head.time_point > last:
        raise StreamdpError(
            f"the output topics hold time point {head.time_point}, but the journal ends with {last}: it is an old "
            f"copy. {ADVICE}"
        )


def check_outputs(journal: Journal, target: Transport, topics: Topics) -> Head | None:
    """Refuses when the outputs hold anything that this journal does not know and nobody wrote off."""
    head = read_head(target, topics)
    written_off = journal.written_off_until()
    if head is None or head.time_point <= written_off:
        return head
    check_head(journal, head)
    for message in tail(target, topics.releases):
        if point_of(message) > written_off and not journal.knows(message):
            raise StreamdpError(
                f"the topic {topics.releases!r} holds a message of time point {point_of(message)} that this journal "
                f"never stored. {ADVICE}"
            )
    if holds_unknown_results(journal, target, topics):
        raise StreamdpError(f"the topic {topics.results!r} holds a result that this journal never stored. {ADVICE}")
    return head


def holds_unknown_results(journal: Journal, target: Transport, topics: Topics) -> bool:
    """Whether a job of another copy of this journal was answered. After the horizon's end the head does not tell."""
    written_off = journal.written_off_until()
    return any(
        messages.decode(message.value or b"").header["published_at"] > written_off and not journal.knows(message)
        for message in tail(target, topics.results)
    )


def publish_owed(
    journal: Journal,
    writer: Writer,
    owners: Owners,
    head: Head | None,
    target: Transport,
    topics: Topics,
    last_due: int,
) -> None:
    """Publishes, in order, what is stored, due and absent; marks what is there already.

    All messages of a point leave in one transaction, the head among them, so the head tells what is there. After the
    horizon's end results leave without a head, and their topics tell.
    """
    waiting: list[Message] = []
    sequences: list[int] = []
    there = 0 if head is None else head.time_point
    owed = [time_point for time_point in journal.unpublished_points() if time_point <= max(last_due, there)]
    for time_point in owed:
        stored = journal.unpublished(time_point)
        absent = [message.message for message in stored]
        if time_point <= there:
            absent = _absent_results(absent, target, topics)
        target.ensure_topics(rows_topics(topics, absent))
        waiting += absent
        sequences += [message.sequence for message in stored]
        # Many points are owed after an outage: together they leave faster, and in their order all the same.
        if time_point == owed[-1] or sum(len(message.value or b"") for message in waiting) > OWED_BYTES:
            if waiting:
                writer.append([*waiting, *owners.messages(stored[-1])])
            journal.mark_published(sequences)
            waiting, sequences = [], []


def _absent_results(stored: list[Message], target: Transport, topics: Topics) -> list[Message]:
    """Of the results and rows among `stored`, those that are on no topic."""
    results = [message for message in stored if message.topic == topics.results or topics.is_rows(message.topic)]
    if not results:
        return []
    target.ensure_topics(rows_topics(topics, results))
    there = {message_digest(message) for topic in {m.topic for m in results} for message in tail(target, topic)}
    return [message for message in results if message_digest(message) not in there]
