"""The input loses its end, under a daemon and while none runs: the daemon goes on, and counts what is written since.

One broker is enough. It is given back what the topic held before (see tests/transport/test_kafka_truncation.py).
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from harness import cells
from kafka_broker.broker import Broker
from test_kafka_broker_campaigns import Night
from waiting import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def read_what_will_be_lost(stream: Night, broker: Broker, lost: int) -> tuple[subprocess.Popen[bytes], Path]:
    """A daemon that has counted everything, and a copy of the input that lacks its end."""
    stream.feed(200)
    stream.flush()
    broker.stop()
    copy = broker.copy_of(stream.topic, stream.directory / "copy")
    broker.start()
    stream.feed(lost)
    stream.flush()
    daemon = stream.start()
    stream.more_points(4, daemon)  # There is a checkpoint.
    ends = stream.ends()
    stream.wait(lambda: stream.covers(ends), daemon)
    return daemon, copy


def lose_the_end(stream: Night, broker: Broker, copy: Path) -> None:
    broker.kill()
    broker.put_back(copy)
    broker.start()
    assert sum(stream.ends().values()) == 200
    stream.feed_everybody()  # What was lost stays counted until its users are heard of again.
    stream.flush()


def check_goes_on(stream: Night, daemon: subprocess.Popen[bytes]) -> None:
    ends = stream.ends()
    stream.wait(lambda: stream.covers(ends), daemon)
    assert cells(stream.newest_release().counts) == dict(stream.count_below(ends))
    assert "lost messages at its end" in stream.log_text()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0, stream.log_text()
    stream.check()


def test_under_a_daemon(own_broker: Broker, tmp_path: Path) -> None:
    stream = Night(tmp_path, own_broker.addresses.plain)
    daemon, copy = read_what_will_be_lost(stream, own_broker, lost=600)
    lose_the_end(stream, own_broker, copy)
    check_goes_on(stream, daemon)
    assert stream.starts() == 1


# 300 messages come in their place.
@pytest.mark.parametrize("lost", [600, 100], ids=["shorter than before", "longer than before"])
def test_while_no_daemon_runs(own_broker: Broker, tmp_path: Path, lost: int) -> None:
    stream = Night(tmp_path, own_broker.addresses.plain)
    daemon, copy = read_what_will_be_lost(stream, own_broker, lost)
    daemon.kill()
    daemon.wait()
    lose_the_end(stream, own_broker, copy)
    check_goes_on(stream, stream.start())
