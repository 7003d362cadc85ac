"""A broker loses the end of a log, as by an unclean election: the reader goes back to where it was cut, and says so.

One broker is enough. It is given back what a partition held before, and takes it over under a new leader epoch.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka_broker.broker import Broker

from streamdp.transport.base import UNKNOWN_EPOCH, TopicPartition, TopicSpec, Truncated, Unreachable
from streamdp.transport.kafka import KafkaReader, KafkaTransport
from streamdp.transport.kafka_keys import client_settings

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def transport(own_broker: Broker) -> Iterator[KafkaTransport]:
    keys = {"bootstrap.servers": own_broker.addresses.plain, "socket.timeout.ms": 5_000}
    with closing(KafkaTransport(client_settings(keys, "input"))) as opened:
        yield opened


@pytest.fixture
def name(transport: KafkaTransport) -> TopicPartition:
    topic = f"t-{uuid.uuid4().hex}"
    transport.ensure_topics([TopicSpec(topic)])
    return TopicPartition(topic, 0)


def produce(broker: Broker, name: TopicPartition, *values: bytes) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.addresses.plain, acks="all")) as producer:
        for value in values:
            producer.send(name.topic, value, partition=0)
        producer.flush(60)


def read(reader: KafkaReader, name: TopicPartition, end: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while reader.positions()[name] < end:
        assert time.monotonic() < deadline
        try:
            found += [value for batch in reader.poll(timeout=1.0) for value in batch.values]
        except Truncated:
            raise
        except Unreachable:
            time.sleep(0.1)
    return found


def lose_the_end(broker: Broker, name: TopicPartition, copy: Path) -> None:
    """Two messages that were there when the copy was made are all that is left."""
    broker.kill()
    broker.put_back(copy)
    broker.start()


@pytest.fixture
def copy(own_broker: Broker, name: TopicPartition, tmp_path: Path) -> Path:
    """Of a topic with two messages; then come three more."""
    produce(own_broker, name, b"kept 0", b"kept 1")
    own_broker.stop()
    copied = own_broker.copy_of(name.topic, tmp_path / "copy")
    own_broker.start()
    produce(own_broker, name, b"lost 2", b"lost 3", b"lost 4")
    return copied


@pytest.mark.parametrize("following", [0, 1, 6], ids=["empty", "shorter than before", "longer than before"])
def test_a_reader_goes_back_to_where_the_log_was_cut(
    own_broker: Broker, transport: KafkaTransport, name: TopicPartition, copy: Path, following: int
) -> None:
    others = [b"other %d" % i for i in range(following)]
    with closing(transport.reader({name: 0})) as reader:
        assert len(read(reader, name, 5)) == 5
        epochs = reader.epochs()
        assert transport.ends_of(epochs)[name] >= 5
        lose_the_end(own_broker, name, copy)
        produce(own_broker, name, *others)
        with pytest.raises(Truncated) as caught:
            read(reader, name, 100)
        assert caught.value.ends == {name: 2}
        assert reader.positions() == {name: 2}
        assert read(reader, name, 2 + following) == others
        # What an earlier reader remembers tells the same, also when the log is longer now than it was.
        assert transport.ends_of(epochs) == {name: 2}
        assert transport.ends_of(reader.epochs()) == {name: 2 + following}
        assert transport.ends_of({name: UNKNOWN_EPOCH}) == {name: 2 + following}


def test_a_reader_that_had_not_come_so_far_loses_nothing(
    own_broker: Broker, transport: KafkaTransport, name: TopicPartition, copy: Path
) -> None:
    with closing(transport.reader({name: 0})) as reader:
        first = reader.poll(max_bytes=1, timeout=30)
        assert [value for batch in first for value in batch.values] == [b"kept 0"]
        lose_the_end(own_broker, name, copy)
        produce(own_broker, name, b"other")
        found: list[bytes] = []
        deadline = time.monotonic() + 60
        while not found or found[-1] != b"other":
            assert time.monotonic() < deadline
            try:
                found += [value for batch in reader.poll(timeout=1.0) for value in batch.values]
            except Truncated as error:
                assert error.ends == {name: 2}
            except Unreachable:
                time.sleep(0.1)
        assert found[0] == b"kept 1"
