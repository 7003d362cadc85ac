"""Reads the end of a topic with one partition: its newest messages, or the newest of some keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from streamdp.transport.base import Message, Reader, TopicPartition, Transport

# A restart looks at this many of the newest messages; older ones were looked at by earlier starts.
TAIL = 1_000


def tail(transport: Transport, topic: str, count: int = TAIL) -> list[Message]:
    """The last `count` messages (all, when fewer) of a topic with one partition, oldest first.

    Offsets may have gaps (control records, compaction), so the start is moved back until enough came.
    """
    partition = TopicPartition(topic, 0)
    begin = transport.begin_offsets([topic])[partition]
    end = transport.end_offsets([topic])[partition]
    reach = 2 * count + 8
    while True:
        start = max(begin, end - reach)
        reader = transport.reader({partition: start})
        try:
            found = list(_messages(reader, partition, end))
        finally:
            reader.close()
        if len(found) >= count or start == begin:
            return found[-count:]
        reach *= 4


def newest(transport: Transport, topic: str, keys: Collection[bytes], *, wait: bool = True) -> dict[bytes, Message]:
    """The newest message of each key that has one, in a topic with one partition.

    Reads back from the end only until all are found: a register that many write grows between two compactions. The end
    is the high watermark: what others have under way must not hide what is committed behind it, so it is waited for.
    Without `wait` it is what can be read now.
    """
    partition = TopicPartition(topic, 0)
    begin = transport.begin_offsets([topic])[partition]
    end = (transport.high_watermarks if wait else transport.end_offsets)([topic])[partition]
    found: dict[bytes, Message] = {}
    reach = 64
    while begin < end and len(found) < len(keys):
        start = max(begin, end - reach)
        reader = transport.reader({partition: start})
        try:
            chunk = {message.key: message for message in _messages(reader, partition, end) if message.key in keys}
        finally:
            reader.close()
        found = {key: message for key, message in chunk.items() if key is not None} | found
        end, reach = start, 4 * reach
    return found


def _messages(reader: Reader, partition: TopicPartition, end: int) -> Iterator[Message]:
    while reader.positions()[partition] < end:
        for polled in reader.poll(timeout=1.0, until={partition: end}):
            batch = polled.before(end)
            headers = batch.headers or ((),) * len(batch)
            for key, value, named in zip(batch.keys, batch.values, headers, strict=True):
                yield Message(batch.topic, value, key=key, headers=named)
