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

from streamdp.journal import JournalReader

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long]

SECONDS = float(os.environ.get("STREAMDP_SOAK_SECONDS", "1800"))
PARTITIONS, USERS, CHUNK = 200, 2_000_000, 500_000
GROUPS = USERS // CHUNK
AHEAD = 2_000_000
"""So many records wait for the daemon, some seconds' worth: it is never without work."""
MAX_GROWTH = 0.01
"""Of the memory in use, over the last two thirds: some MB, so a few KB a point, or a byte in a hundred records."""
KCAT = ["kcat", "-P", "-K", "|", "-z", "lz4", "-X", "linger.ms=1000", "-X", "batch.num.messages=10000"]


def descriptors(process: subprocess.Popen[bytes]) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def chunk_files(directory: Path) -> list[tuple[Path, Counter[tuple[str, int]]]]:
    """Two records of every user, in files of a group of users each, as `kcat` takes them; and what each file holds.

    All have one timestamp, so that of a user's records the last one in the topic stands.
    """
    now, randomness, files = int(time.time() * 1000), random.Random(1), []
    for number in range(2 * GROUPS):
        held: Counter[tuple[str, int]] = Counter()
        path = directory / f"chunk-{number}.txt"
        with path.open("w") as file:
            for user in range(number % GROUPS * CHUNK, (number % GROUPS + 1) * CHUNK):
                ward, age = randomness.choice(WARDS), randomness.randrange(100)
                held[ward, age // 10] += 1
                record = f'{{"ward": "{ward}", "age": {age}}}'
                file.write(f'user-{user}|{{"ts": {now}, "op": "upsert", "record": {record}}}\n')
        files.append((path, held))
    return files


class Producer:
    """Sends one file after the other, over and over, one at a time and in a process of its own."""

    def __init__(self, stream: KafkaStream, directory: Path) -> None:
        self.files = chunk_files(directory)
        self.command = [*KCAT, "-b", stream.server, "-t", stream.topic, "-l"]
        self.chunks = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def sent(self) -> int:
        return self.chunks * CHUNK

    def keep_ahead(self, read: int) -> None:
        if self.sent - read < AHEAD and self.is_idle():
            path, _ = self.files[self.chunks % len(self.files)]
            self.process = subprocess.Popen([*self.command, str(path)], stderr=subprocess.DEVNULL)
            self.chunks += 1

    def is_idle(self) -> bool:
        code = None if self.process is None else self.process.poll()
        assert not code, f"kcat ended with {code}"
        return self.process is None or code == 0

    def held(self) -> Counter[tuple[str, int]]:
        """What the population must be: the last file that was sent of each group of users."""
        last = range(self.chunks - GROUPS, self.chunks)
        return sum((self.files[number % len(self.files)][1] for number in last), Counter())


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
    stream = KafkaStream(
        tmp_path,
        server=own_broker.addresses.plain,
        length="1s",
        partitions=PARTITIONS,
        topic_configs=short,
        checkpoint_every=30,
    )
    producer = Producer(stream, tmp_path)
    daemon = stream.start()
    stream.wait(lambda: stream.last_published() >= 1, 120, daemon)
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
    assert abs(grown) < MAX_GROWTH * level or grown < 0
    assert max(each.descriptors for each in late[len(late) // 2 :]) <= max(each.descriptors for each in late)
    stream.wait(producer.is_idle, 120, daemon)
    stream.wait(lambda: committed(stream)[1] == producer.sent, 300, daemon)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(90) == 0, stream.log_text()
    stream.run_until(points=1)
    stream.check_outputs()
    stream.check_ledger()
    got, _ = stream.recovered()
    assert got == producer.held()
