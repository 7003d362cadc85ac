"""Half an hour at full speed on a real broker: 200 partitions, two million users, one daemon."""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import WARDS
from kafka_broker.broker import Broker
from kafka_stream import KafkaStream
from test_kafka_campaigns import memory_mb
from waiting import PATIENCE

from streamdp.journal import JournalReader

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long]

SECONDS = float(os.environ.get("STREAMDP_SOAK_SECONDS", "1800"))
PARTITIONS, USERS = 200, 2_000_000
AHEAD = 1_000_000
"""So many records wait for the daemon, some seconds' worth: it is never without work."""
MAX_GROWTH = 0.01
"""Of the memory in use, over the last two thirds: some MB, so a few KB a point, or a byte in some records."""
KCAT = ["kcat", "-P", "-K", "|", "-z", "lz4"]
LARGE_BATCHES = "linger.ms=1000,batch.num.messages=10000,queue.buffering.max.messages=1000000"


def descriptors(process: subprocess.Popen[bytes]) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


Counts = Counter[tuple[str, int]]


def write_records(path: Path, randomness: random.Random, ts: int) -> Counts:
    """A record of each user, as `kcat` takes them: the key, a bar, the value; and what they count."""
    counts = Counts()
    with path.open("w") as file:
        for user in range(USERS):
            ward, age = randomness.choice(WARDS), randomness.randrange(100)
            counts[ward, age // 10] += 1
            record = f'{{"ward": "{ward}", "age": {age}}}'
            file.write(f'user-{user}|{{"ts": {ts}, "op": "upsert", "record": {record}}}\n')
    return counts


class Producer:
    """Sends two files in turn, over and over, in a process of its own.

    All records have one timestamp, so that of a user's records the last one in the topic stands.
    """

    def __init__(self, stream: KafkaStream, directory: Path) -> None:
        self.paths = [directory / "a.txt", directory / "b.txt"]
        randomness, now = random.Random(1), int(time.time() * 1000)
        self.counts = [write_records(path, randomness, now) for path in self.paths]
        self.command = [*KCAT, "-X", LARGE_BATCHES, "-b", stream.server, "-t", stream.topic, "-l"]
        self.times = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def sent(self) -> int:
        return self.times * USERS

    def keep_ahead(self, read: int) -> None:
        if self.sent - read <= AHEAD and self.is_idle():
            self.process = subprocess.Popen([*self.command, str(self.paths[self.times % 2])], stderr=subprocess.DEVNULL)
            self.times += 1

    def is_idle(self) -> bool:
        code = 0 if self.process is None else self.process.poll()
        assert not code, f"kcat ended with {code}"
        return code == 0

    def standing(self) -> Counts:
        """What the population must be when everything has been read."""
        return self.counts[(self.times - 1) % 2]


@dataclass(frozen=True)
class Sample:
    """What the daemon used at a moment, and how far it had come."""

    seconds: float
    memory: float
    descriptors: int
    points: int
    read: int
    lag: int

    def row(self, before: Sample) -> str:
        rate = (self.read - before.read) / (self.seconds - before.seconds)
        figures = f"{rate:10,.0f} {self.memory:8.1f} {self.descriptors:5} {self.lag:10,} {self.points:7,}"
        return f"{self.seconds / 60:6.1f} {figures}"


HEADING = "minute  records/s   rss MB   fds        lag  points"


def committed(stream: KafkaStream) -> tuple[int, int]:
    """The last point in the journal, and how many records lie below its cut."""
    with JournalReader.open(stream.config.journal_path) as journal:
        cuts = journal.cuts(since=max(0, journal.last_time_point - 5))
        return journal.last_time_point, sum(cuts[-1][1].values()) if cuts else 0


def sample(stream: KafkaStream, daemon: subprocess.Popen[bytes], producer: Producer, begin: float) -> Sample:
    """Looks, and keeps the producer ahead."""
    assert daemon.poll() is None, stream.log_text()
    points, read = committed(stream)
    producer.keep_ahead(read)
    seconds = time.monotonic() - begin
    return Sample(seconds, memory_mb(daemon), descriptors(daemon), points, read, producer.sent - read)


def growth(samples: list[Sample]) -> float:
    """By how many MB memory rises over the samples: the median of slopes (Theil 1950, Sen 1968), times the time.

    What is in flight differs from one sample to the next, so the ends alone say little.
    """
    half = len(samples) // 2
    pairs = zip(samples[:half], samples[-half:], strict=True)
    slope = statistics.median((late.memory - early.memory) / (late.seconds - early.seconds) for early, late in pairs)
    return slope * (samples[-1].seconds - samples[0].seconds)


@pytest.mark.timeout(SECONDS + 1_800)
@pytest.mark.skipif(shutil.which("kcat") is None, reason="KAFKA TESTS SKIPPED: no kcat to produce fast enough")
def test_half_an_hour_at_full_speed(own_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory and descriptors stay as they are once all users are in; and nothing was lost."""
    short = {"retention.bytes": "10000000", "segment.bytes": "5000000"}
    server = own_broker.addresses.plain
    stream = KafkaStream(tmp_path, server=server, length="1s", partitions=PARTITIONS, topic_configs=short)
    stream.path.write_text(stream.path.read_text().replace("checkpoint_every = 3\n", "checkpoint_every = 30\n"))
    producer = Producer(stream, tmp_path)
    daemon = stream.start()
    stream.wait(lambda: stream.last_published() >= 1, daemon)
    begin = time.monotonic()
    said = sample(stream, daemon, producer, begin)
    while said.read < USERS:
        time.sleep(0.5)
        said = sample(stream, daemon, producer, begin)
    begin = time.monotonic()
    said = sample(stream, daemon, producer, begin)
    samples = [said]
    with capsys.disabled():
        print(f"\n{USERS:,} users are in\n{HEADING}", flush=True)  # noqa: T201
        while samples[-1].seconds < SECONDS:
            time.sleep(0.5)
            samples.append(sample(stream, daemon, producer, begin))
            if samples[-1].seconds >= said.seconds + 60:
                print(samples[-1].row(said), flush=True)  # noqa: T201
                said = samples[-1]
        late = samples[len(samples) // 3 :]
        grown, level = growth(late), statistics.median(each.memory for each in late)
        print(samples[-1].row(samples[0]))  # noqa: T201
        print(f"over the last two thirds memory moves by {grown:+.1f} MB of {level:.0f} MB")  # noqa: T201
    assert grown < MAX_GROWTH * level
    third = len(samples) // 3
    first, last = samples[:third], samples[-third:]
    assert statistics.median(each.descriptors for each in last) <= statistics.median(each.descriptors for each in first)
    stream.wait(producer.is_idle, daemon)
    stream.wait(lambda: committed(stream)[1] == producer.sent, daemon, seconds=600)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0, stream.log_text()
    stream.run_until(points=1)
    stream.check_outputs()
    stream.check_ledger()
    got, _ = stream.recovered()
    assert got == producer.standing()
