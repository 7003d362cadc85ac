"""A user's open transaction on the input: time points are late, and hold everybody's records below their cuts."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka_stream import KafkaStream
from waiting import PATIENCE

from streamdp import messages
from streamdp.daemon.schedule import now_ms
from streamdp.journal import JournalReader, Point
from streamdp.transport.base import Message, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

OTHERS = 100
EXACT = "10000"
"""An epsilon at which a release of every point is the true counts, but for a chance below 1e-90."""


def make_stream(broker, directory: Path) -> KafkaStream:
    return KafkaStream(
        directory,
        server=broker.plain,
        length="500ms",
        epsilon=EXACT,
        strategy="fixed",
        parameters="interval = 1",
        partitions=1,
    )


@pytest.fixture
def stream(broker, tmp_path) -> KafkaStream:
    return make_stream(broker, tmp_path)


def visit(ward: str) -> bytes:
    return json.dumps({"ts": now_ms(), "op": "upsert", "record": {"ward": ward, "age": 50}}).encode()


def feed_others(stream: KafkaStream, ward: str = "north") -> None:
    """A record of each of the others, in no transaction."""
    stream.append([Message(stream.topic, visit(ward), key=b"other-%d" % i, partition=0) for i in range(OTHERS)])
    stream.flush()


@contextmanager
def transaction(stream: KafkaStream) -> Iterator[KafkaProducer]:
    """A transaction that is open, with one record of one user. It is aborted unless the test ends it."""
    producer = KafkaProducer(
        bootstrap_servers=stream.server, transactional_id=uuid.uuid4().hex, transaction_timeout_ms=150_000
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(stream.topic, visit("south"), b"one", partition=0).get(PATIENCE)
    try:
        yield producer
    finally:
        producer.close(5)


def running(stream: KafkaStream) -> subprocess.Popen[bytes]:
    starts = stream.starts()
    daemon = stream.start()
    stream.wait(lambda: stream.starts() > starts, daemon)
    return daemon


def stop(stream: KafkaStream, daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0, stream.log_text()


def publishes(stream: KafkaStream, daemon: subprocess.Popen[bytes], points: int) -> None:
    goal = stream.last_published() + points
    stream.wait(lambda: stream.last_published() >= goal, daemon)


def points(stream: KafkaStream) -> list[Point]:
    with JournalReader.open(stream.config.journal_path) as journal:
        return journal.points()


def closes(stream: KafkaStream, daemon: subprocess.Popen[bytes], moment: int) -> None:
    """Waits for a point that was over after this moment."""
    stream.wait(lambda: any((point.closed_ts or 0) > moment for point in points(stream)), daemon)


def closed_between(stream: KafkaStream, begin: int, end: int) -> list[Point]:
    """Without those that a slow machine missed."""
    return [point for point in points(stream) if begin < (point.closed_ts or 0) < end and point.cut is not None]


def wards(stream: KafkaStream) -> dict[int, list[int]]:
    """The published counts of every time point that has a release: north, south, east, west."""
    decoded = [messages.decode(value) for value in stream.outputs()]
    return {
        message.header["time_point"]: message.counts.tolist()
        for message in decoded
        if message.kind == "release" and message.header["histogram"] == "wards"
    }


@pytest.mark.parametrize("is_committed", [True, False])
def test_points_wait_for_the_transaction_and_then_hold_everybody(stream, is_committed):
    daemon = running(stream)
    publishes(stream, daemon, 2)
    with transaction(stream) as producer:
        feed_others(stream)
        fed = now_ms()
        time.sleep(5)
        before = stream.last_published()
        ended = now_ms()
        producer.commit_transaction() if is_committed else producer.abort_transaction()
        closes(stream, daemon, ended)
    stop(stream, daemon)
    waited = closed_between(stream, fed, ended)
    assert waited, "a point in ten was not missed"
    assert before < waited[0].time_point, "none of them leaves while the transaction is open"
    assert {point.cut[TopicPartition(stream.topic, 0)] for point in waited} == {1 + OTHERS}, "the high watermark"
    found = wards(stream)
    assert [found[point.time_point] for point in waited] == [[OTHERS, int(is_committed), 0, 0]] * len(waited)
    stream.check()


def test_points_that_close_meanwhile_have_cuts_of_their_own(stream):
    daemon = running(stream)
    publishes(stream, daemon, 1)
    with transaction(stream) as producer:
        feed_others(stream)
        first = now_ms()
        time.sleep(5)
        second = now_ms()
        feed_others(stream, "east")
        third = now_ms()
        time.sleep(5)
        ended = now_ms()
        producer.commit_transaction()
        closes(stream, daemon, ended)
    stop(stream, daemon)
    found = wards(stream)
    early, late = closed_between(stream, first, second), closed_between(stream, third, ended)
    assert early and late, "of ten points each one was not missed"
    assert [found[point.time_point] for point in early] == [[OTHERS, 1, 0, 0]] * len(early)
    assert [found[point.time_point] for point in late] == [[0, 1, OTHERS, 0]] * len(late)
    stream.check()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_while_the_transaction_is_open(stream, number):
    daemon = running(stream)
    publishes(stream, daemon, 4)  # Past a checkpoint.
    with transaction(stream) as producer:
        feed_others(stream)
        fed = now_ms()
        time.sleep(1.2)
        daemon.send_signal(number)
        assert daemon.wait(PATIENCE) == (0 if number == signal.SIGTERM else -signal.SIGKILL), (
            "a stop does not wait for ever"
        )
        daemon = running(stream)
        time.sleep(1.2)
        producer.commit_transaction()
        stream.wait(lambda: [OTHERS, 1, 0, 0] in wards(stream).values(), daemon)
    stop(stream, daemon)
    found, after = wards(stream), closed_between(stream, fed, now_ms())
    assert [found[point.time_point] for point in after] == [[OTHERS, 1, 0, 0]] * len(after), "missed, never short"
    stream.check()


def test_a_stream_that_begins_with_the_latest_record_while_a_transaction_is_open(stream):
    """It begins at the high watermark: an open transaction brings nobody's older records into the dataset."""
    text = stream.path.read_text()
    stream.path.write_text(text.replace("[input]\n", '[input]\nstart = "latest"\n'))
    with transaction(stream) as producer:
        feed_others(stream)
        daemon = running(stream)
        publishes(stream, daemon, 4)
        daemon.kill()
        daemon.wait()
        daemon = running(stream)  # Not refused, although what was read ends above the last stable offset.
        stream.append([Message(stream.topic, visit("west"), key=b"later", partition=0)])
        stream.flush()
        producer.commit_transaction()
        stream.wait(lambda: [0, 0, 0, 1] in wards(stream).values(), daemon)
    stop(stream, daemon)
    assert set(map(tuple, wards(stream).values())) == {(0, 0, 0, 0), (0, 0, 0, 1)}
    stream.check_outputs()
    stream.check_ledger()


def test_a_first_start_waits_and_can_be_stopped(stream):
    with transaction(stream) as producer:
        feed_others(stream)
        daemon = stream.start()
        time.sleep(4)
        assert stream.starts() == 0
        stop(stream, daemon)
        daemon = stream.start()
        time.sleep(2)
        producer.commit_transaction()
        stream.wait(lambda: wards(stream), daemon)
    stop(stream, daemon)
    assert set(map(tuple, wards(stream).values())) == {(OTHERS, 1, 0, 0)}
    stream.check()
