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
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka_broker.broker import Broker
from kafka_stream import KafkaStream
from test_kafka_outages import SHORT, SHORT_OUTPUT, pause
from waiting import until

from streamdp import messages
from streamdp.journal import JournalReader
from streamdp.transport.base import Message, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(3_600)]

PAUSES = int(os.environ.get("STREAMDP_PAUSES", "30"))
KILLS = int(os.environ.get("STREAMDP_KILLS", "20"))
PRODUCER = {
    "acks": "all",
    "enable_idempotence": False,
    "api_version": (3, 0),  # Else it asks when it is made, and leaves sockets open if nobody answers.
    "max_block_ms": 5_000,
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 10_000,
}
"""Gives up before `flush` and `close` do: they would leave its thread behind."""


class Night(KafkaStream):
    """A stream whose producer never rests, and that knows what it sent."""

    def __init__(self, directory: Path, server: str, **settings: object) -> None:
        self.sent: set[tuple[bytes, bytes]] = set()
        """What the brokers acknowledged."""
        self.waiting: list[Message] = []
        """What they did not."""
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
        self.waiting += batch

    def deliver(self) -> bool:
        """Sends what no broker has acknowledged yet; a record that is there twice counts as one.

        Each time with a new producer: an old one may take minutes to find its brokers again.
        """
        batch, sending = self.waiting, []
        with contextlib.suppress(KafkaError):
            producer = KafkaProducer(bootstrap_servers=self.server, **PRODUCER)
            try:
                for each in batch:
                    sending.append(producer.send(each.topic, each.value, each.key, partition=each.partition))
                producer.flush(30)
            finally:
                producer.close(5)
        there = [message for message, future in zip(batch, sending, strict=False) if future.succeeded()]
        self.sent |= {(message.key, message.value) for message in there}
        self.waiting = [message for message in batch if (message.key, message.value) not in self.sent]
        return not self.waiting

    def flush(self) -> None:
        until(self.deliver)

    @contextlib.contextmanager
    def feeding(self) -> Iterator[None]:
        over = threading.Event()

        def feed() -> None:
            while not over.wait(0.5):
                self.feed(50)
                self.deliver()

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            over.set()
            feeder.join()

    def published(self) -> int:
        """The last point that is out. The journal says it: a client of the test's would have outages of its own."""
        with JournalReader.open(self.config.journal_path) as journal:
            owed = [stored.time_point for stored in journal.unpublished()]
            return min(owed) - 1 if owed else journal.last_time_point

    def more_points(self, count: int, daemon: subprocess.Popen[bytes]) -> None:
        self.wait(lambda: self.starts() > 0, daemon)
        goal = self.published() + count
        self.wait(lambda: self.published() >= goal, daemon)

    def covers(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether a release of everything below these offsets is out: one comes every three points."""
        with JournalReader.open(self.config.journal_path) as journal:
            cuts = journal.cuts(since=journal.last_time_point - 1_000)
        covering = [time_point for time_point, cut in cuts if cut == ends]
        return len(covering) > 6 and self.published() >= covering[6]

    def newest_release(self) -> messages.Decoded:
        decoded = (messages.decode(value) for value in reversed(self.outputs()))
        return next(m for m in decoded if m.header["histogram"] == "ages" and m.kind == "release")

    def check_exact(self, ends: dict[TopicPartition, int]) -> None:
        """What was acknowledged is in the topic, and the newest release counts what is there."""
        found = {(key, value) for _, key, value in self.records_below(ends)}
        assert self.sent <= found
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
    stream.wait(lambda: stream.covers(ends), daemon)
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


def test_an_unclean_election(own_cluster, tmp_path: Path) -> None:
    """A leader is chosen that lacks what the daemon has read. The daemon goes on, and reads what is written since."""
    leader, follower, _ = own_cluster.brokers
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    stream = Night(tmp_path, own_cluster.servers, replicas=(1, 2), topic_configs=unclean)
    stream.feed(200)
    stream.flush()
    daemon = stream.start()
    stream.more_points(5, daemon)
    follower.pause()
    time.sleep(6)  # It is no longer in sync.
    stream.feed(200)
    stream.flush()
    before = stream.ends()
    stream.wait(lambda: stream.covers(before), daemon)
    leader.kill()
    follower.resume()
    stream.wait(lambda: "lost messages at its end" in stream.log_text(), daemon)
    after = stream.ends()
    assert any(after[partition] < end for partition, end in before.items()), "nothing was lost"
    stream.feed(20)
    stream.flush()
    stream.more_points(5, daemon)
    leader.start()
    # What was lost stays counted until its users are heard of again.
    stream.feed_everybody()
    stream.flush()
    ends = stream.ends()
    stream.wait(lambda: stream.covers(ends), daemon)
    assert daemon.poll() is None and stream.starts() == 1, stream.log_text()
    assert cells(stream.newest_release().counts) == dict(stream.count_below(ends))
    daemon.kill()
    daemon.wait()
    stream.run_until(points=2)
    stream.check()
