"""The broker goes away: killed, paused, restarted. Nothing is lost or doubled, and every call ends in bounded time."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from contract import drain, values
from kafka_broker.broker import Broker
from waiting import PATIENCE

from streamdp.transport.base import Message, TopicPartition, TopicSpec, TransportError
from streamdp.transport.kafka import KafkaTransport
from streamdp.transport.kafka_keys import client_settings

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def transport(own_broker: Broker) -> Iterator[KafkaTransport]:
    keys = {"bootstrap.servers": own_broker.addresses.plain, "socket.timeout.ms": 3_000, "message.timeout.ms": 4_000}
    with closing(KafkaTransport(client_settings(keys, "output"))) as opened:
        yield opened


@pytest.fixture
def name(transport: KafkaTransport) -> TopicPartition:
    topic = f"t-{uuid.uuid4().hex}"
    transport.ensure_topics([TopicSpec(topic)])
    return TopicPartition(topic, 0)


def open_writer(transport: KafkaTransport, identity: str) -> object:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return transport.writer(identity)
        except TransportError:
            assert time.monotonic() < deadline, "no writer can be opened"


def test_a_killed_broker_comes_back(own_broker: Broker, transport: KafkaTransport, name: TopicPartition) -> None:
    threads = threading.active_count()
    with closing(transport.reader({name: 0})) as reader:
        with closing(transport.writer(name.topic)) as writer:
            writer.append([Message(name.topic, b"before")])
            own_broker.kill()
            begin = time.monotonic()
            with pytest.raises(TransportError):
                transport.end_offsets([name.topic])
            with pytest.raises(TransportError):
                writer.append([Message(name.topic, b"lost")])
            with pytest.raises(TransportError, match="open a new one"):
                writer.append([Message(name.topic, b"lost too")])
            assert time.monotonic() - begin < 60
            found = [value for batch in reader.poll(timeout=0.5) for value in batch.values]
        while threading.active_count() > threads + 1:
            assert time.monotonic() - begin < PATIENCE, "something besides the reader keeps running"
            time.sleep(0.1)
        own_broker.start()
        with closing(open_writer(transport, name.topic)) as writer:
            writer.append([Message(name.topic, b"after")])
        deadline = time.monotonic() + PATIENCE
        while reader.positions()[name] < transport.end_offsets([name.topic])[name]:
            assert time.monotonic() < deadline, "the reader does not find the broker again"
            found += [value for batch in reader.poll(timeout=1.0) for value in batch.values]
    assert found == [b"before", b"after"] == values(drain(transport, [name.topic])[name])


def test_a_writer_survives_a_restart_between_appends(
    own_broker: Broker, transport: KafkaTransport, name: TopicPartition
) -> None:
    with closing(transport.writer(name.topic)) as writer:
        writer.append([Message(name.topic, b"before")])
        own_broker.stop()
        own_broker.start()
        try:
            writer.append([Message(name.topic, b"after")])
        except TransportError:
            with closing(open_writer(transport, name.topic)) as second:
                if b"after" not in values(drain(transport, [name.topic])[name]):
                    second.append([Message(name.topic, b"after")])
    assert values(drain(transport, [name.topic])[name]) == [b"before", b"after"]


def publish_again(transport: KafkaTransport, name: TopicPartition, value: bytes) -> bool:
    """What the daemon does after an error: a new writer first, then a read, then what is absent. Whether it was."""
    with closing(open_writer(transport, name.topic)) as writer:
        absent = value not in values(drain(transport, [name.topic])[name])
        if absent:
            writer.append([Message(name.topic, value)])
    return absent


def test_a_pause_while_sending_leaves_a_publication_once(
    own_broker: Broker, transport: KafkaTransport, name: TopicPartition
) -> None:
    with closing(transport.writer(name.topic)) as writer:
        writer.append([Message(name.topic, b"0")])
        pausing = threading.Timer(0.05, own_broker.pause)
        pausing.start()
        point, begin = 0, time.monotonic()
        try:
            with pytest.raises(TransportError):
                while time.monotonic() - begin < 90:
                    point += 1
                    writer.append([Message(name.topic, b"%d" % point)])
            assert time.monotonic() - begin < 60
        finally:
            pausing.join()
            own_broker.resume()
    publish_again(transport, name, b"%d" % point)
    assert values(drain(transport, [name.topic])[name]) == [b"%d" % i for i in range(point + 1)]


@pytest.mark.parametrize("loss", ["pause", "kill"])
def test_a_broker_lost_at_the_commit_leaves_a_publication_once(
    own_broker: Broker, transport: KafkaTransport, name: TopicPartition, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused broker may still find the request to commit when it goes on; a killed one never saw it."""
    with closing(transport.writer(name.topic)) as writer:
        commit = writer._transactions.begin_commit

        def lose_then_commit() -> object:
            getattr(own_broker, loss)()
            return commit()

        monkeypatch.setattr(writer._transactions, "begin_commit", lose_then_commit)
        begin = time.monotonic()
        try:
            with pytest.raises(TransportError, match="is not known"):
                writer.append([Message(name.topic, b"point")])
            assert time.monotonic() - begin < 60
        finally:
            if loss == "pause":
                own_broker.resume()
            else:
                own_broker.start()
    absent = publish_again(transport, name, b"point")
    assert absent or loss == "pause"
    assert values(drain(transport, [name.topic])[name]) == [b"point"]
