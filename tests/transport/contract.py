"""What every transport must do. A test module inherits `TransportContract` and provides the fixture `transport`.

The tests use only the Protocols, and topic names of their own, so that one broker can serve the whole suite.
"""

from __future__ import annotations

import time
import uuid
from contextlib import closing

import numpy as np
import pytest
from waiting import PATIENCE

from streamdp.transport.base import (
    Fenced,
    Message,
    OffsetGone,
    TopicPartition,
    TopicSpec,
    Transport,
    TransportError,
    Truncated,
    UnknownTopic,
)
from streamdp.transport.batch import RecordBatch

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]


def rows(batch: RecordBatch) -> list[Row]:
    headers = batch.headers or ((),) * len(batch)
    return list(zip(batch.offsets.tolist(), batch.timestamps.tolist(), batch.keys, batch.values, headers, strict=True))


def drain(transport: Transport, topics: list[str]) -> dict[TopicPartition, list[Row]]:
    """Everything committed in the topics, as any reader would find it."""
    ends = transport.end_offsets(topics)
    found: dict[TopicPartition, list[Row]] = {name: [] for name in ends}
    deadline = time.monotonic() + PATIENCE
    with closing(transport.reader(transport.begin_offsets(topics))) as reader:
        while any(reader.positions()[name] < end for name, end in ends.items()):
            assert time.monotonic() < deadline, "the reader does not reach the end"
            for batch in reader.poll(timeout=1.0):
                found[TopicPartition(batch.topic, batch.partition)] += rows(batch)
    return found


def values(found: list[Row]) -> list[bytes | None]:
    return [row[3] for row in found]


class TransportContract:
    """The contract; `topic` is a fresh name each time."""

    @pytest.fixture
    def topic(self) -> str:
        return f"t-{uuid.uuid4().hex}"

    def test_records_come_back_as_written(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        messages = [
            Message(topic, b"value", b"key", 1_000, (("source", b"\x00\xff"), ("source", b""))),
            Message(topic, None, b"key", 1_001),
            Message(topic, b"", b"", 1_002),
            Message(topic, b"a\nb\r\x00c", None, 1_003),
            Message(topic, b"\xf0\x28" * 100_000, b"\n", 1_004),
        ]
        with closing(transport.writer(topic)) as writer:
            placed = writer.append(messages)
        name = TopicPartition(topic, 0)
        assert placed == [(name, offset) for offset in range(5)]
        expected = [(i, m.timestamp, m.key, m.value, m.headers) for i, m in enumerate(messages)]
        assert drain(transport, [topic]) == {name: expected}

    def test_a_missing_timestamp_is_the_time_of_the_append(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        before = time.time() * 1000 - 1000
        with closing(transport.writer(topic)) as writer:
            writer.append([Message(topic, b"v")])
        [row] = drain(transport, [topic])[TopicPartition(topic, 0)]
        assert before <= row[1] <= time.time() * 1000 + 1000

    def test_offsets_and_positions(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic, 2)])
        zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
        assert transport.partitions(topic) == [0, 1]
        assert transport.end_offsets([topic]) == {zero: 0, one: 0} == transport.begin_offsets([topic])
        assert transport.high_watermarks([topic]) == {zero: 0, one: 0}
        with closing(transport.writer(topic)) as writer:
            placed = writer.append([Message(topic, b"%d" % i, partition=1) for i in range(10)])
            assert [offset for _, offset in placed] == list(range(10))
        end = transport.end_offsets([topic])[one]
        assert end >= 10 and transport.end_offsets([topic])[zero] == 0
        assert transport.high_watermarks([topic]) == {zero: 0, one: end}, "no transaction is open"
        with closing(transport.reader({zero: 0, one: 7})) as reader:
            assert values(_read_until(reader, one, end)) == [b"7", b"8", b"9"]
            assert reader.positions() == {zero: 0, one: end}
            reader.seek(one, 9)
            assert values(_read_until(reader, one, end)) == [b"9"]

    def test_a_key_has_one_partition(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic, 4)])
        with closing(transport.writer(topic)) as writer:
            first = writer.append([Message(topic, b"1", b"%d" % key) for key in range(40)])
            second = writer.append([Message(topic, b"2", b"%d" % key) for key in range(40)])
        assert [name for name, _ in first] == [name for name, _ in second]
        assert len({name for name, _ in first}) == 4

    def test_one_append_over_topics_keeps_order_in_each(self, transport: Transport, topic: str) -> None:
        topics = [f"{topic}.{part}" for part in ("releases", "latest", "head")]
        transport.ensure_topics([TopicSpec(topics[0]), *(TopicSpec(name, cleanup="compact") for name in topics[1:])])
        with closing(transport.writer(topic)) as writer:
            for point in range(5):
                writer.append([Message(name, b"%d" % point, b"%d" % point) for name in topics for _ in range(2)])
        expected = [b"%d" % point for point in range(5) for _ in range(2)]
        assert [values(found) for found in drain(transport, topics).values()] == [expected] * 3

    def test_nothing_is_written_when_one_message_cannot_be(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        with closing(transport.writer(topic)) as writer, pytest.raises(UnknownTopic):
            writer.append([Message(topic, b"v"), Message(f"{topic}.absent", b"v")])
        with closing(transport.writer(topic)) as writer:
            writer.append([Message(topic, b"after")])
        assert values(drain(transport, [topic])[TopicPartition(topic, 0)]) == [b"after"]

    def test_a_second_writer_of_an_identity_is_shut_out_or_shuts_out(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        with closing(transport.writer(topic)) as first:
            first.append([Message(topic, b"first")])
            with pytest.raises(Fenced), closing(transport.writer(topic)):
                first.append([Message(topic, b"first again")])
        with closing(transport.writer(topic)) as third:
            third.append([Message(topic, b"third")])
        assert values(drain(transport, [topic])[TopicPartition(topic, 0)]) == [b"first", b"third"]

    def test_a_poll_waits_for_data_but_not_longer(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        with closing(transport.reader({TopicPartition(topic, 0): 0})) as reader:
            begin = time.monotonic()
            assert reader.poll(timeout=0.2) == []
            assert 0.15 < time.monotonic() - begin < 30

    def test_a_position_beyond_the_end_is_noticed(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        beyond = {TopicPartition(topic, 0): 5}
        with closing(transport.reader(beyond)) as reader, pytest.raises((OffsetGone, Truncated)):
            for _ in range(20):
                reader.poll(timeout=0.5)

    def test_polls_are_bounded_and_lose_nothing(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic, 2)])
        with closing(transport.writer(topic)) as writer:
            for i in range(40):
                writer.append([Message(topic, b"%04d" % i * 250, partition=i % 2)])
        found: list[bytes | None] = []
        with closing(transport.reader(transport.begin_offsets([topic]))) as reader:
            deadline = time.monotonic() + PATIENCE
            while len(found) < 40 and time.monotonic() < deadline:
                batches = reader.poll(max_bytes=5_000, timeout=1.0)
                assert sum(batch.nbytes for batch in batches) <= 12_000
                found += [value for batch in batches for value in batch.values]
        assert sorted(v[:4] for v in found if v is not None) == [b"%04d" % i for i in range(40)]

    def test_partitions_can_be_taken_on_while_reading(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic, 2)])
        zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
        with closing(transport.writer(topic)) as writer:
            writer.append([Message(topic, b"a", partition=0)])
            writer.append([Message(topic, b"b", partition=1)])
        ends = transport.end_offsets([topic])
        with closing(transport.reader({zero: 0})) as reader:
            assert values(_read_until(reader, zero, ends[zero])) == [b"a"]
            reader.assign_more({zero: 0, one: 0})
            assert values(_read_until(reader, one, ends[one])) == [b"b"]

    def test_a_batch_is_cut_exactly(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        name = TopicPartition(topic, 0)
        with closing(transport.writer(topic)) as writer:
            writer.append([Message(topic, b"%d" % i, b"k%d" % i) for i in range(10)])
        with closing(transport.reader({name: 0})) as reader:
            batches = []
            while reader.positions()[name] < 10:
                batches += reader.poll(timeout=1.0)
        whole = RecordBatch.concatenate(batches)
        for cut in range(11):
            below, rest = whole.split_at(cut)
            assert below.offsets.tolist() == list(range(cut))
            assert values(rows(below) + rows(rest)) == values(rows(whole))
            assert np.array_equal(whole.before(cut).offsets, below.offsets)

    def test_reading_stops_at_until_and_goes_on_from_there(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic, partitions=2)])
        with closing(transport.writer(topic)) as writer:
            writer.append([Message(topic, b"%d" % i, partition=i % 2) for i in range(40)])
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        end = transport.high_watermarks([topic])[first]
        with closing(transport.reader({first: 0, second: 0})) as reader:
            found: dict[TopicPartition, list[int]] = {first: [], second: []}
            deadline = time.monotonic() + PATIENCE
            for until in ({first: 7, second: 0}, {first: 7, second: 13}, {first: 20}):
                while any(reader.positions()[name] < offset for name, offset in until.items()):
                    assert time.monotonic() < deadline
                    for batch in reader.poll(timeout=0.2, until=until):
                        name = TopicPartition(batch.topic, batch.partition)
                        assert batch.offsets[-1] < until.get(name, 20)
                        found[name] += batch.offsets.tolist()
                assert reader.positions()[first] == (until[first] if until[first] < 20 else end)
            while reader.positions()[second] < 20:
                for batch in reader.poll(timeout=0.2):
                    found[second] += batch.offsets.tolist()
        assert found == {first: list(range(20)), second: list(range(20))}

    def test_the_end_of_a_topic_can_be_read(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic)])
        name = TopicPartition(topic, 0)
        with closing(transport.writer(topic)) as writer:
            for i in range(20):
                writer.append([Message(topic, b"%d" % i)])
        end = transport.end_offsets([topic])[name]
        with closing(transport.reader({name: max(0, end - 5)})) as reader:
            assert values(_read_until(reader, name, end))[-1] == b"19"

    def test_ids_are_stable(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic), TopicSpec(f"{topic}.other")])
        assert transport.cluster_id() == transport.cluster_id() != ""
        assert transport.topic_id(topic) == transport.topic_id(topic) != transport.topic_id(f"{topic}.other")

    def test_topics_are_checked_when_present(self, transport: Transport, topic: str) -> None:
        transport.ensure_topics([TopicSpec(topic, 2, "compact")])
        transport.ensure_topics([TopicSpec(topic, 2, "compact")])
        with pytest.raises(TransportError, match="partitions"):
            transport.ensure_topics([TopicSpec(topic, 3, "compact")])
        with pytest.raises(TransportError, match="cleanup"):
            transport.ensure_topics([TopicSpec(topic, 2, "delete")])

    def test_an_unknown_topic_is_named(self, transport: Transport, topic: str) -> None:
        for ask in (transport.partitions, transport.topic_id):
            with pytest.raises(UnknownTopic, match=topic):
                ask(topic)
        for offsets in (transport.begin_offsets, transport.end_offsets, transport.high_watermarks):
            with pytest.raises(UnknownTopic, match=topic):
                offsets([topic])


def _read_until(reader: object, name: TopicPartition, end: int) -> list[Row]:
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while reader.positions()[name] < end:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline, "the reader does not reach the end"
        for batch in reader.poll(timeout=1.0):  # type: ignore[attr-defined]
            found += rows(batch)
    return found
