"""The broker goes away under a daemon: killed, paused, or only the output's. It goes on, and nothing differs."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from kafka_broker.broker import Broker
from kafka_stream import KafkaStream
from waiting import PATIENCE

from streamdp.journal import JournalReader

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SHORT = "socket.timeout.ms = 2000\nsocket.connection.setup.timeout.ms = 3000\n"
SHORT_OUTPUT = SHORT + "message.timeout.ms = 3000\n"


def stream_on(directory: Path, server: str, **settings: object) -> KafkaStream:
    stream = KafkaStream(directory, server=server, input_keys=SHORT, output_keys=SHORT_OUTPUT, **settings)
    stream.feed(200)
    stream.flush()
    return stream


def more_points(stream: KafkaStream, count: int, process: subprocess.Popen[bytes], seconds: float = PATIENCE) -> None:
    goal = stream.last_published() + count
    stream.feed(40)
    stream.wait(lambda: stream.last_published() >= goal, process, seconds)


def end(stream: KafkaStream, process: subprocess.Popen[bytes]) -> None:
    """The daemon, told to stop, does so in good order; then checks everything."""
    assert process.wait(PATIENCE) == 0, stream.log_text()
    stream.flush()
    stream.run_until(points=2)
    stream.check()


def pause(broker: Broker, seconds: float) -> None:
    broker.pause()
    try:
        time.sleep(seconds)
    finally:
        broker.resume()


def test_a_killed_broker(own_broker: Broker, tmp_path: Path) -> None:
    stream = stream_on(tmp_path, own_broker.addresses.plain)
    process = stream.start()
    try:
        for _ in range(2):
            more_points(stream, 3, process)
            own_broker.kill()
            time.sleep(1)
            assert process.poll() is None, stream.log_text()
            own_broker.start()
        more_points(stream, 3, process)
    finally:
        process.send_signal(signal.SIGTERM)
    end(stream, process)


def test_a_broker_that_pauses_for_longer_than_requests_may_take(own_broker: Broker, tmp_path: Path) -> None:
    stream = stream_on(tmp_path, own_broker.addresses.plain)
    process = stream.start()
    try:
        more_points(stream, 3, process)
        own_broker.pause()
        time.sleep(8)
        assert process.poll() is None, stream.log_text()
        own_broker.resume()
        more_points(stream, 3, process)
    finally:
        own_broker.resume()
        process.send_signal(signal.SIGTERM)
    end(stream, process)


def test_a_broker_that_pauses_again_and_again(own_broker: Broker, tmp_path: Path) -> None:
    """Also for so long that the client drops the broker from its list, and then does not know it (as it once died)."""
    stream = stream_on(tmp_path, own_broker.addresses.plain)
    process = stream.start()
    try:
        for seconds in (5, 7, 10):
            more_points(stream, 2, process)
            pause(own_broker, seconds)
            assert process.poll() is None, stream.log_text()
        more_points(stream, 3, process)
    finally:
        process.send_signal(signal.SIGTERM)
    end(stream, process)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_broker_that_pauses_for_longer_than_a_transaction_may_last(own_broker: Broker, tmp_path: Path) -> None:
    stream = stream_on(tmp_path, own_broker.addresses.plain)
    process = stream.start()
    try:
        more_points(stream, 3, process)
        own_broker.pause()
        time.sleep(130)
        assert process.poll() is None, stream.log_text()
        own_broker.resume()
        more_points(stream, 3, process, seconds=240)
    finally:
        own_broker.resume()
        process.send_signal(signal.SIGTERM)
    end(stream, process)


def committed(stream: KafkaStream) -> int:
    with JournalReader.open(stream.config.journal_path) as journal:
        return journal.last_time_point


def test_an_output_that_is_down_while_input_flows(broker, own_broker: Broker, tmp_path: Path) -> None:
    stream = stream_on(tmp_path, broker.plain, output=own_broker.addresses.plain)
    process = stream.start()
    try:
        more_points(stream, 3, process)
        own_broker.kill()
        down = committed(stream)
        for _ in range(60):
            stream.feed(20)
            time.sleep(0.2)
        assert process.poll() is None, stream.log_text()
        with JournalReader.open(stream.config.journal_path) as journal:
            points = journal.points(since=down)
            owed = {stored.time_point for stored in journal.unpublished()}
        # Points were closed with cuts of their own while nothing could be published.
        assert len([point for point in points if point.cut is not None]) >= 40
        assert len(owed) >= 40
        own_broker.start()
        more_points(stream, 45, process)
        log = stream.log_text()
        assert log.count("the output fails") == log.count("the output answers again") == 1
    finally:
        process.send_signal(signal.SIGTERM)
    end(stream, process)


def test_a_stop_while_the_output_is_down_leaves_what_is_owed_to_the_next_start(
    broker, own_broker: Broker, tmp_path: Path
) -> None:
    stream = stream_on(tmp_path, broker.plain, output=own_broker.addresses.plain)
    process = stream.start()
    more_points(stream, 2, process)
    own_broker.kill()
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    code, took = process.wait(PATIENCE), time.monotonic() - begin
    own_broker.start()
    assert code == 0, stream.log_text()
    assert took < 60
    stream.run_until(points=2)
    stream.check()
