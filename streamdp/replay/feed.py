"""Playing a trace's messages into a topic, for a daemon to read. Marks are left out: a daemon has its own clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

from streamdp.replay.pace import Pace
from streamdp.replay.reader import Messages, TraceReader
from streamdp.transport.base import Message, TopicSpec, Transport, UnknownTopic

_MESSAGES_PER_APPEND = 10_000
_STEP_MS = 50
"""While keeping pace, what lies this close together in real time is appended at once."""


def feed(
    trace: TraceReader,
    transport: Transport,
    topic: str,
    pace: Pace,
    on_append: Callable[[int], None] | None = None,
) -> int:
    """Appends every message to `topic`, in the order of the lines; the key chooses the partition. Returns how many.

    The topic is made when there is none.
    """
    try:
        transport.partitions(topic)
    except UnknownTopic:
        transport.ensure_topics([TopicSpec(topic)])
    sent = 0
    with closing(transport.writer(f"streamdp-replay-{os.getpid()}")) as writer:
        for group in _groups(trace, topic, pace):
            writer.append(group)
            sent += len(group)
            if on_append is not None:
                on_append(sent)
    return sent


def _groups(trace: TraceReader, topic: str, pace: Pace) -> Iterator[list[Message]]:
    for item in trace:
        if not isinstance(item, Messages):
            continue
        group: list[Message] = []
        latest = 0
        for message, timestamp in _in_order(item, topic):
            if group and (len(group) >= _MESSAGES_PER_APPEND or pace.apart(latest, timestamp, _STEP_MS)):
                yield group
                group = []
            if not group:
                # Late messages do not turn the clock back.
                latest = max(latest, timestamp)
                pace.reach(latest)
            group.append(message)
        if group:
            yield group


def _in_order(item: Messages, topic: str) -> Iterator[tuple[Message, int]]:
    rows = [
        (line, key, value, timestamp)
        for batch, lines in zip(item.batches, item.lines, strict=True)
        for line, key, value, timestamp in zip(
            lines.tolist(), batch.keys, batch.values, batch.timestamps.tolist(), strict=True
        )
    ]
    if len(item.batches) > 1:
        rows.sort(key=lambda row: row[0])
    for _, key, value, timestamp in rows:
        yield Message(topic, value, key=key, timestamp=timestamp), timestamp
