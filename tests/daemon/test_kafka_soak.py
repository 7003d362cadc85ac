"""Half an hour at full speed on a real broker: 200 partitions, two million users, one daemon."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pytest
from harness import WARDS
from kafka_broker.broker import Broker
from kafka_stream import KafkaStream
from waiting import PATIENCE

from streamdp.journal import JournalReader

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long]

SECONDS = float(os.environ.get("STREAMDP_SOAK_SECONDS", "1800"))
PARTITIONS, USERS = 200, 2_000_000
AHEAD = 1_000_000
"""So many records wait for the daemon, some seconds' worth: it is never without work."""
READINGS = 6
"""So often the producer pauses, at equal intervals, until the daemon has read everything."""
IDLE = 12
"""A reading takes so many seconds and points after that: freed memory goes back to the system every five seconds."""
MAX_GROWTH_MB = 8.0
"""From a third of the time to the end: 7 KB a point, or a byte in twenty records.

In a run of half an hour the least when drained rose by 3 MB in that time. It is not known whether that goes on.
"""
KCAT = ["setpriv", "--pdeathsig", "KILL", "kcat", "-P", "-K", "|", "-z", "lz4"]
"""It ends with the process that started it, even if that is killed."""
KCAT += ["-X", "linger.ms=1000", "-X", "queue.buffering.max.messages=1000000"]  # large batches
KCAT += ["-X", "enable.idempotence=true"]  # A batch sent twice would make the counts of records differ for good.


def own_memory_mb(process: subprocess.Popen[bytes]) -> float:
    """What the process has allocated and is in memory.

    The pages of its program and libraries are left out. The system drops and reads them as it sees fit, and this moves
    the whole resident size by tens of MB.
    """
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


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
        self.command = [*KCAT, "-b", stream.server, "-t", stream.topic, "-l"]
        self.times = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

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


HEADING = "minute  records/s       MB   fds        lag  points"


def committed(stream: KafkaStream) -> tuple[int, int]:
    """The last point in the journal, and how many records lie below its cut."""
    with JournalReader.open(stream.config.journal_path) as journal:
        cuts = journal.cuts(since=max(0, journal.last_time_point - 5))
        return journal.last_time_point, sum(cuts[-1][1].values()) if cuts else 0


@dataclass(frozen=True)
class Soak:
    """A daemon at work, and what it uses."""

    stream: KafkaStream
    daemon: subprocess.Popen[bytes]
    producer: Producer
    begin: float = field(default_factory=time.monotonic)

    def sample(self) -> Sample:
        assert self.daemon.poll() is None, self.stream.log_text()
        points, read = committed(self.stream)
        lag, seconds = self.producer.sent - read, time.monotonic() - self.begin
        return Sample(seconds, own_memory_mb(self.daemon), descriptors(self.daemon), points, read, lag)

    def work(self, seconds: float) -> Sample:
        """Keeps the producer ahead for so long."""
        now = begin = self.sample()
        while now.seconds < begin.seconds + seconds:
            self.producer.keep_ahead(now.read)
            time.sleep(0.5)
            now = self.sample()
        return now

    def drain(self) -> Sample:
        """Lets the daemon read everything, and says what it uses then: the least, as a point at work only adds."""
        while (now := self.sample()).lag > 0:
            self.producer.is_idle()
            time.sleep(0.5)
        idle = [now]
        while idle[-1].points < now.points + IDLE or idle[-1].seconds < now.seconds + IDLE:
            time.sleep(0.1)
            idle.append(self.sample())
        least = min(each.memory for each in idle)
        return replace(idle[-1], memory=least, descriptors=min(each.descriptors for each in idle))


def show(line: str) -> None:
    print(line, flush=True)  # noqa: T201


@pytest.mark.timeout(SECONDS + 1_800)
@pytest.mark.skipif(shutil.which("kcat") is None, reason="KAFKA TESTS SKIPPED: no kcat to produce fast enough")
def test_half_an_hour_at_full_speed(own_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory and descriptors stay as they are once all users are in; and nothing was lost."""
    short = {"retention.bytes": "10000000", "segment.bytes": "5000000"}
    server = own_broker.addresses.plain
    stream = KafkaStream(tmp_path, server=server, length="1s", partitions=PARTITIONS, topic_configs=short)
    stream.path.write_text(stream.path.read_text().replace("checkpoint_every = 3\n", "checkpoint_every = 30\n"))
    with Producer(stream, tmp_path) as producer, capsys.disabled():
        daemon = stream.start()
        stream.wait(lambda: stream.last_published() >= 1, daemon)
        soak = Soak(stream, daemon, producer)
        empty = soak.sample()
        producer.keep_ahead(0)
        readings = [soak.drain()]
        show(f"\n{HEADING}\n{readings[0].row(empty)} drained: {USERS:,} users are in")
        while len(readings) <= READINGS:
            busy = soak.work(SECONDS / READINGS)
            readings.append(soak.drain())
            show(f"{busy.row(readings[-2])}\n{readings[-1].row(readings[-2])} drained")
    third, last = readings[READINGS // 3], readings[-1]
    assert last.memory - third.memory <= MAX_GROWTH_MB, readings
    assert last.descriptors <= third.descriptors, readings
    assert last.read == producer.sent
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0, stream.log_text()
    stream.run_until(points=1)
    stream.check_outputs()
    stream.check_ledger()
    got, _ = stream.recovered()
    assert got == producer.standing()
