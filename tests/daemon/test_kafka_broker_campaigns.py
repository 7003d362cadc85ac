"""A long night on real brokers, one and three of them: paused and killed again and again. The daemon never ends, and at
the end its releases are exact counts of all that was sent: epsilon is so large that the noise is zero.

`STREAMDP_PAUSES` and `STREAMDP_KILLS` make the campaigns shorter.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import cells
from kafka.errors import KafkaError
from kafka_broker.broker import Broker
from kafka_stream import KafkaStream
from test_kafka_outages import SHORT, SHORT_OUTPUT, pause

from streamdp import messages
from streamdp.journal import JournalReader
from streamdp.transport.base import Message, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(3_600)]

PAUSES = int(os.environ.get("STREAMDP_PAUSES", "30"))
KILLS = int(os.environ.get("STREAMDP_KILLS", "20"))
RECOVERY_SECONDS = 180
"""The producer and the readers of these tests must find their brokers again, too."""


class Night(KafkaStream):
    """A stream whose producer never rests, and that knows what it sent."""

    def __init__(self, directory: Path, server: str, **settings: object) -> None:
        self.sent: set[tuple[bytes, bytes]] = set()
        super().__init__(
            directory,
            server=server,
            input_keys=SHORT,
            output_keys=SHORT_OUTPUT,
            epsilon="100000",
            guarantee="window = 60",
            **settings,
        )

    def append(self, batch: list[Message]) -> None:
        super().append(batch)
        self.sent |= {(message.key, message.value) for message in batch}

    @contextlib.contextmanager
    def feeding(self) -> Iterator[None]:
        over = threading.Event()

        def feed() -> None:
            while not over.wait(0.2):
                self.feed(20)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            over.set()
            feeder.join()

    def published(self) -> int:
        """The last point that is out; 0 while the broker of the head is not to be had."""
        try:
            return self.last_published()
        except (KafkaError, AssertionError):
            return 0

    def more_points(self, count: int, daemon: subprocess.Popen[bytes]) -> None:
        begin = max(1, self.published())
        self.wait(lambda: self.published() >= begin + count, RECOVERY_SECONDS, daemon)

    def covers(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether a release of everything below these offsets is out."""
        try:
            released = self.newest_release().header["time_point"]
        except (KafkaError, AssertionError):
            return False
        with JournalReader.open(self.config.journal_path) as journal:
            cuts = journal.cuts(since=released - 10)
        return any(time_point <= released and cut == ends for time_point, cut in cuts)

    def newest_release(self) -> messages.Decoded:
        decoded = (messages.decode(value) for value in reversed(self.outputs()))
        return next(m for m in decoded if m.header["histogram"] == "ages" and m.kind == "release")

    def check_exact(self, ends: dict[TopicPartition, int]) -> None:
        """What was sent is in the topic, and the newest release counts it."""
        found = {(key, value) for _, key, value in self.records_below(ends)}
        assert found == self.sent
        assert cells(self.newest_release().counts) == dict(self.count_below(ends))

    def figures(self) -> str:
        headers = [messages.decode(value).header for value in self.outputs()]
        points = [header for header in headers if header["histogram"] == "ages"]
        missed = Counter(header["kind"] == "repeat" and header.get("reason") == "missed" for header in points)[True]
        return f"{len(self.sent)} messages, {len(points)} points, {missed} of them missed"


def spend_the_night(stream: Night, rounds: int, disturb: Callable[[], None]) -> None:
    begin = time.monotonic()
    stream.feed(200)
    stream.flush()
    daemon = stream.start()
    with stream.feeding():
        for _ in range(rounds):
            stream.more_points(2, daemon)
            disturb()
            assert daemon.poll() is None, stream.log_text()
        stream.more_points(3, daemon)
    stream.flush()
    ends = stream.ends()
    stream.wait(lambda: stream.covers(ends), RECOVERY_SECONDS, daemon)
    assert daemon.poll() is None and stream.starts() == 1, stream.log_text()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(90) == 0, stream.log_text()
    stream.run_until(points=2)
    stream.check()
    stream.check_exact(ends)
    print(f"{rounds} times: {stream.figures()}, {time.monotonic() - begin:.0f} s")  # noqa: T201


def pauses(brokers: list[Broker]) -> Callable[[], None]:
    randomness = random.Random(23)
    return lambda: pause(randomness.choice(brokers), randomness.uniform(5, 60))


def kills(brokers: list[Broker]) -> Callable[[], None]:
    randomness = random.Random(5)

    def kill() -> None:
        broker = randomness.choice(brokers)
        time.sleep(randomness.uniform(0, 1))
        broker.kill()
        time.sleep(randomness.uniform(0, 10))
        broker.start()

    return kill


def test_a_broker_that_pauses(own_broker: Broker, tmp_path: Path) -> None:
    spend_the_night(Night(tmp_path, own_broker.addresses.plain), PAUSES, pauses([own_broker]))


def test_a_broker_that_is_killed(own_broker: Broker, tmp_path: Path) -> None:
    spend_the_night(Night(tmp_path, own_broker.addresses.plain), KILLS, kills([own_broker]))


def test_one_of_three_brokers_pauses(own_cluster, tmp_path: Path) -> None:
    spend_the_night(Night(tmp_path, own_cluster.servers), PAUSES, pauses(own_cluster.brokers))


def test_one_of_three_brokers_is_killed(own_cluster, tmp_path: Path) -> None:
    spend_the_night(Night(tmp_path, own_cluster.servers), KILLS, kills(own_cluster.brokers))
