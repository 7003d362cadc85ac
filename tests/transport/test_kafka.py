"""Kafka as a transport, on a real broker: the contract of every transport, and what only Kafka has."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import kafka
import pytest
from contract import Row, TransportContract, drain, rows, values
from kafka_broker.broker import Addresses
from waiting import PATIENCE

from streamdp.transport.base import (
    Fenced,
    Message,
    OffsetGone,
    Reader,
    TopicPartition,
    TopicSpec,
    TransportError,
    UnknownTopic,
)
from streamdp.transport.kafka import KafkaTransport
from streamdp.transport.kafka_keys import client_settings

pytestmark = pytest.mark.kafka


@pytest.fixture
def transport(broker: Addresses) -> Iterator[KafkaTransport]:
    settings = client_settings({"bootstrap.servers": broker.plain}, "output")
    with closing(KafkaTransport(settings)) as opened:
        yield opened


@pytest.fixture
def topic(transport: KafkaTransport) -> str:
    name = f"t-{uuid.uuid4().hex}"
    transport.ensure_topics([TopicSpec(name)])
    return name


def open_producer(broker: Addresses, identity: str | None = None, **settings: object) -> kafka.KafkaProducer:
    """A client that knows nothing of streamdp."""
    producer = kafka.KafkaProducer(bootstrap_servers=broker.plain, transactional_id=identity, **settings)
    if identity is not None:
        producer.init_transactions()
    return producer


class TestKafkaContract(TransportContract):
    pass


def test_what_is_aborted_or_still_open_is_not_read(broker: Addresses, transport: KafkaTransport, topic: str) -> None:
    name = TopicPartition(topic, 0)
    with closing(open_producer(broker, uuid.uuid4().hex)) as producer:
        for outcome in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for _ in range(3):
                producer.send(topic, outcome.__name__.encode()).get(PATIENCE)
            outcome()
        deadline = time.monotonic() + 10  # A commit is acknowledged a moment before it shows.
        while transport.end_offsets([topic])[name] < 12:
            assert time.monotonic() < deadline, "three transactions of three records and a marker"
        producer.begin_transaction()
        producer.send(topic, b"open").get(PATIENCE)
        with closing(open_producer(broker)) as plain:
            plain.send(topic, b"behind it").get(PATIENCE)
        assert transport.end_offsets([topic]) == {name: 12}, "readers come to where the open transaction begins"
        assert transport.high_watermarks([topic]) == {name: 14}, "the log ends behind it"
        assert values(drain(transport, [topic])[name]) == [b"commit_transaction"] * 3
        with closing(transport.reader({name: 0})) as reader:
            while reader.positions()[name] < 12:
                reader.poll(timeout=1.0)
            assert reader.poll(timeout=0.3) == [] and reader.positions()[name] == 12
            producer.commit_transaction()
            found: list[bytes | None] = []
            while reader.positions()[name] < 15:
                found += [value for batch in reader.poll(timeout=1.0) for value in batch.values]
            assert found == [b"open", b"behind it"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_cut_behind_an_open_transaction_is_drained_when_that_ends(
    broker: Addresses, transport: KafkaTransport, topic: str, is_committed: bool
) -> None:
    """One record in an open transaction takes nobody's record out of the cut, and no later one into it."""
    name = TopicPartition(topic, 0)
    with closing(open_producer(broker, uuid.uuid4().hex)) as producer, closing(open_producer(broker)) as plain:
        producer.begin_transaction()
        producer.send(topic, b"one").get(PATIENCE)
        cuts = []
        for number in range(3):
            for _ in range(5):
                plain.send(topic, b"others %d" % number).get(PATIENCE)
            cuts.append(transport.high_watermarks([topic]))
        assert cuts == [{name: 6}, {name: 11}, {name: 16}]
        with closing(transport.reader({name: 0})) as reader:
            assert reader.poll(timeout=0.5, until=cuts[0]) == [] and reader.positions() == {name: 0}, "it waits"
            producer.commit_transaction() if is_committed else producer.abort_transaction()
            cuts.append({name: 17})  # Just behind the marker.
            parts = [values(_read_to(reader, name, cut[name])) for cut in cuts]
    assert parts[0] == [b"one"] * is_committed + [b"others 0"] * 5
    assert parts[1:] == [[b"others 1"] * 5, [b"others 2"] * 5, []]


def test_a_reader_may_begin_above_the_last_stable_offset(
    broker: Addresses, transport: KafkaTransport, topic: str
) -> None:
    """Where a stream begins that starts with the latest record while a transaction is open."""
    name = TopicPartition(topic, 0)
    with closing(open_producer(broker, uuid.uuid4().hex)) as producer, closing(open_producer(broker)) as plain:
        producer.begin_transaction()
        producer.send(topic, b"before").get(PATIENCE)
        plain.send(topic, b"before").get(PATIENCE)
        start = transport.high_watermarks([topic])
        assert start == {name: 2} and transport.end_offsets([topic]) == {name: 0}
        with closing(transport.reader(start)) as reader:
            producer.send(topic, b"after").get(PATIENCE)
            assert reader.poll(timeout=0.5) == [] and reader.positions() == start
            producer.commit_transaction()
            assert values(_read_to(reader, name, 4)) == [b"after"]


def _read_to(reader: Reader, name: TopicPartition, cut: int) -> list[Row]:
    """Everything below the cut, and nothing beyond."""
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while reader.positions()[name] < cut:
        assert time.monotonic() < deadline, "the reader does not reach the cut"
        for batch in reader.poll(timeout=1.0, until={name: cut}):
            assert batch.offsets[-1] < cut
            found += rows(batch)
    return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(broker: Addresses, transport: KafkaTransport, topic: str, codec: str | None) -> None:
    with closing(open_producer(broker, compression_type=codec, linger_ms=20)) as producer:
        for i in range(500):
            producer.send(topic, b'{"ts": %d}' % i * 20, b"%d" % i, [("n", b"%d" % i)] if i % 100 == 0 else [], 0, i)
        producer.flush()
    found = drain(transport, [topic])[TopicPartition(topic, 0)]
    assert found == [
        (i, i, b"%d" % i, b'{"ts": %d}' % i * 20, (("n", b"%d" % i),) if i % 100 == 0 else ()) for i in range(500)
    ]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_output_can_be_compressed(broker: Addresses, topic: str, codec: str) -> None:
    settings = client_settings({"bootstrap.servers": broker.plain, "compression.type": codec}, "output")
    with closing(KafkaTransport(settings)) as transport, closing(transport.writer(topic)) as writer:
        writer.append([Message(topic, b"0" * 100_000)])
        assert values(drain(transport, [topic])[TopicPartition(topic, 0)]) == [b"0" * 100_000]


def test_a_reader_starts_in_the_middle_of_a_compressed_batch(
    broker: Addresses, transport: KafkaTransport, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    with closing(open_producer(broker, compression_type="zstd", linger_ms=100)) as producer:
        for i in range(50):
            producer.send(topic, b"%d" % i)
        producer.flush()
    with closing(transport.reader({name: 33})) as reader:
        found: list[bytes | None] = []
        while reader.positions()[name] < 50:
            found += [value for batch in reader.poll(timeout=1.0, max_bytes=10) for value in batch.values]
    assert found == [b"%d" % i for i in range(33, 50)]


def test_a_drain_ends_as_soon_as_the_cut_is_reached(transport: KafkaTransport, topic: str) -> None:
    name = TopicPartition(topic, 0)
    with closing(transport.writer(topic)) as writer:
        writer.append([Message(topic, b"v")])
    [(_, cut)] = transport.high_watermarks([topic]).items()
    with closing(transport.reader({name: 0})) as reader:
        begin = time.monotonic()
        while reader.positions()[name] < cut:
            reader.poll(timeout=30.0, until={name: cut})
        reader.poll(timeout=30.0, until={name: cut})
        assert time.monotonic() - begin < 28, "the marker of the transaction ends the wait, not the timeout"


@pytest.mark.parametrize("max_bytes", [300, 1 << 20])
def test_cut_after_cut_every_record_comes_once_while_more_is_written(
    broker: Addresses, transport: KafkaTransport, topic: str, max_bytes: int
) -> None:
    """What the daemon does: take a cut, drain to it, hold each partition there, go on."""
    transport.ensure_topics([TopicSpec(f"{topic}.in", 3)])
    names = [TopicPartition(f"{topic}.in", number) for number in range(3)]

    def feed() -> None:
        with closing(open_producer(broker, linger_ms=5)) as plain, closing(open_producer(broker, topic)) as producer:
            for i in range(300):
                producer.begin_transaction()
                producer.send(names[0].topic, b"t%03d" % i, partition=i % 3)
                producer.abort_transaction() if i % 5 == 0 else producer.commit_transaction()
                for part in range(3):
                    plain.send(names[0].topic, b"%03d" % i, partition=part)
            plain.flush()

    feeding = threading.Thread(target=feed)
    feeding.start()
    found: dict[TopicPartition, list[tuple[int, bytes | None]]] = {name: [] for name in names}
    deadline = time.monotonic() + PATIENCE
    with closing(transport.reader(dict.fromkeys(names, 0))) as reader:
        while sum(map(len, found.values())) < 3 * 300 + 240:
            cut = transport.high_watermarks([names[0].topic])
            while any(position < cut[name] for name, position in reader.positions().items()):
                assert time.monotonic() < deadline
                for batch in reader.poll(max_bytes, 1.0, cut):
                    name = TopicPartition(batch.topic, batch.partition)
                    assert batch.offsets[-1] < cut[name]
                    found[name] += zip(batch.offsets.tolist(), batch.values, strict=True)
            assert time.monotonic() < deadline
    feeding.join()
    assert found == {
        name: [(row[0], row[3]) for row in rows] for name, rows in drain(transport, [f"{topic}.in"]).items()
    }
    for number, name in enumerate(names):
        here = [value for _, value in found[name]]
        assert [value for value in here if not value.startswith(b"t")] == [b"%03d" % i for i in range(300)]
        expected = [b"t%03d" % i for i in range(300) if i % 3 == number and i % 5 != 0]
        assert [value for value in here if value.startswith(b"t")] == expected


def test_deleted_records_are_noticed(broker: Addresses, transport: KafkaTransport, topic: str) -> None:
    name = TopicPartition(topic, 0)
    with closing(transport.writer(topic)) as writer:
        writer.append([Message(topic, b"%d" % i) for i in range(10)])
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.plain)) as admin:
        admin.delete_records({kafka.TopicPartition(*name): 4})
    assert transport.begin_offsets([topic]) == {name: 4}
    with closing(transport.reader({name: 3})) as reader, pytest.raises(OffsetGone):
        for _ in range(20):
            reader.poll(timeout=0.5)
    assert values(drain(transport, [topic])[name]) == [b"%d" % i for i in range(4, 10)]


def test_a_topic_created_again_has_a_new_id(broker: Addresses, transport: KafkaTransport, topic: str) -> None:
    before = transport.topic_id(topic)
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.plain)) as admin:
        admin.delete_topics([topic])
    deadline = time.monotonic() + PATIENCE
    with pytest.raises(UnknownTopic, match=topic):
        while time.monotonic() < deadline:
            transport.topic_id(topic)
    transport.ensure_topics([TopicSpec(topic)])
    assert transport.topic_id(topic) != before


def test_new_partitions_are_picked_up(broker: Addresses, transport: KafkaTransport, topic: str) -> None:
    with closing(transport.reader(transport.begin_offsets([topic]))) as reader:
        assert reader.poll(timeout=0.1) == []
        with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.plain)) as admin:
            admin.create_partitions({topic: 3})
        deadline = time.monotonic() + PATIENCE
        while transport.partitions(topic) != [0, 1, 2]:
            assert time.monotonic() < deadline
        reader.assign_more(transport.begin_offsets([topic]))
        with closing(open_producer(broker)) as producer:
            producer.send(topic, b"new", partition=2).get(PATIENCE)
        found: list[tuple[int, bytes | None]] = []
        while not found:
            assert time.monotonic() < deadline
            found += [(batch.partition, value) for batch in reader.poll(timeout=1.0) for value in batch.values]
    assert found == [(2, b"new")]


def test_topics_get_their_policies(broker: Addresses, transport: KafkaTransport, topic: str) -> None:
    transport.ensure_topics([TopicSpec(f"{topic}.a", retention_ms=3_600_000), TopicSpec(f"{topic}.b", 2, "compact")])
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.plain)) as admin:
        wanted = [kafka.admin.ConfigResource("TOPIC", f"{topic}.{part}") for part in "ab"]
        found = admin.describe_configs(wanted)["topic"]
    assert found[f"{topic}.a"]["retention.ms"]["value"] == "3600000"
    assert found[f"{topic}.b"]["cleanup.policy"]["value"] == "compact"
    assert transport.partitions(f"{topic}.b") == [0, 1]


def test_how_long_a_compacted_topic_keeps_deletes(broker: Addresses, transport: KafkaTransport, topic: str) -> None:
    assert transport.deletes_kept_ms([topic]) is None
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.plain)) as admin:
        for name, policy, kept in (("a", "compact", "7000"), ("b", "compact,delete", "5000"), ("c", "delete", "1000")):
            configs = {"cleanup.policy": policy, "delete.retention.ms": kept}
            admin.create_topics({f"{topic}-{name}": {"num_partitions": 1, "configs": configs}}, wait_for_metadata=True)
    assert transport.deletes_kept_ms([f"{topic}-{name}" for name in "abc"]) == 5000


def test_nothing_creates_a_topic_by_asking(transport: KafkaTransport, topic: str) -> None:
    absent = f"{topic}.absent"
    with closing(transport.writer(topic)) as writer, pytest.raises(UnknownTopic, match=absent):
        writer.append([Message(absent, b"v")])
    with pytest.raises(UnknownTopic, match=absent):
        transport.reader({TopicPartition(absent, 0): 0})
    with closing(transport.reader({TopicPartition(topic, 0): 0})) as reader:
        reader.assign_more({TopicPartition(absent, 0): 0})
        assert reader.poll(timeout=1.0) == []
    with pytest.raises(UnknownTopic):
        transport.partitions(absent)


def test_an_append_is_visible_when_it_returns(transport: KafkaTransport, topic: str) -> None:
    """Kafka acknowledges a commit before its partitions show it."""
    with closing(transport.writer(topic)) as writer:
        for _ in range(50):
            [(name, offset)] = writer.append([Message(topic, b"v")])
            assert transport.end_offsets([topic])[name] > offset


def test_a_writer_that_was_fenced_writes_nothing_more(transport: KafkaTransport, topic: str) -> None:
    with closing(transport.writer(topic)) as first, closing(transport.writer(topic)) as second:
        for _ in range(2):
            with pytest.raises(TransportError):
                first.append([Message(topic, b"first")])
        second.append([Message(topic, b"second")])
        with closing(transport.writer(topic)) as third:
            with pytest.raises(Fenced, match="second daemon"):
                second.append([Message(topic, b"second again")])
            third.append([Message(topic, b"third")])
    assert values(drain(transport, [topic])[TopicPartition(topic, 0)]) == [b"second", b"third"]


def test_a_new_writer_ends_what_a_dead_one_left_open(broker: Addresses, transport: KafkaTransport, topic: str) -> None:
    with closing(open_producer(broker, topic)) as dead:
        dead.begin_transaction()
        dead.send(topic, b"half a point").get(PATIENCE)
        with closing(transport.writer(topic)) as writer:
            writer.append([Message(topic, b"whole")])
        assert values(drain(transport, [topic])[TopicPartition(topic, 0)]) == [b"whole"]


def test_a_message_too_large_is_refused_and_the_writer_goes_on(transport: KafkaTransport, topic: str) -> None:
    with closing(transport.writer(topic)) as writer:
        with pytest.raises(TransportError, match="MessageSizeTooLarge"):
            writer.append([Message(topic, b"small"), Message(topic, bytes(2_000_000))])
        with pytest.raises(TransportError, match="key or a value"):
            writer.append([Message(topic, None)])
        writer.append([Message(topic, b"fits")])
        assert writer.append([]) == []
    assert values(drain(transport, [topic])[TopicPartition(topic, 0)]) == [b"fits"]


def test_parts_of_a_wide_release_pass_in_one_transaction(transport: KafkaTransport, topic: str) -> None:
    parts = [bytes([number]) * 900_000 for number in range(10)]
    with closing(transport.writer(topic)) as writer:
        writer.append([Message(topic, part, b"%d" % number) for number, part in enumerate(parts)])
    assert values(drain(transport, [topic])[TopicPartition(topic, 0)]) == parts


def test_offsets_are_asked_while_another_thread_reads(transport: KafkaTransport, topic: str) -> None:
    name, asked = TopicPartition(topic, 0), threading.Event()
    ends: list[int] = []

    def ask() -> None:
        while not asked.is_set():
            ends.append(transport.end_offsets([topic])[name])

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        with closing(transport.writer(topic)) as writer, closing(transport.reader({name: 0})) as reader:
            found: list[bytes | None] = []
            for i in range(20):
                writer.append([Message(topic, b"%d" % i)])
                found += [value for batch in reader.poll(timeout=0.1) for value in batch.values]
            while len(found) < 20:
                found += [value for batch in reader.poll(timeout=1.0) for value in batch.values]
    finally:
        asked.set()
        asking.join()
    assert found == [b"%d" % i for i in range(20)]
    assert ends == sorted(ends) and ends[-1] > 0
