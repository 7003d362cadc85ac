"""Runs real daemons in processes of their own, kills them, and checks what they left against independent counts."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from waiting import PATIENCE, until

from streamdp import messages
from streamdp.config import StreamConfig, load
from streamdp.config.transports import open_input, open_output
from streamdp.daemon.recovery import recover
from streamdp.daemon.start import open_journal
from streamdp.engine import Topics
from streamdp.ingest.dead_letters import DeadLetterFile
from streamdp.journal import JournalReader
from streamdp.transport.base import Message, TopicPartition, TopicSpec
from streamdp.transport.filelog import FileLog

WARDS = ("north", "south", "east", "west")

CONFIG = """\
[stream]
name = "{name}"

[domain.ward]
type = "categorical"
values = ["north", "south", "east", "west"]

[domain.age]
type = "integer"
low = 0
high = 99
bins = 10

[time]
length = "{length}"
skew = "1h"
{expiry}

[privacy]
epsilon = "{epsilon}"
{guarantee}

[[histogram]]
name = "wards"
attributes = ["ward"]
share = "0.5"
strategy = "{strategy}"
[histogram.parameters]
{parameters}

[[histogram]]
name = "ages"
attributes = ["ward", "age"]
share = "0.5"
strategy = "fixed"
[histogram.parameters]
interval = 3

{transport}

[journal]
path = "state/journal.db"
checkpoint_every = 3
keep_points = 100000
"""


@dataclass
class Stream:
    """A stream in a directory of its own, with a feeder that knows what it fed. See also KafkaStream."""

    made: ClassVar[list[Stream]] = []
    """What `streams_end` closes."""

    directory: Path
    length: str = "100ms"
    epsilon: str = "1"
    guarantee: str = "window = 20"
    strategy: str = "dsat_w"
    parameters: str = "releases = 5\nthreshold = 20"
    expiry: str = ""
    partitions: int = 2
    randomness: random.Random = field(default_factory=lambda: random.Random(7))
    fed: int = 0
    name: str = "clinic"
    topic: str = "visits"
    program: ClassVar[list[str]] = ["-m", "streamdp"]

    def __post_init__(self) -> None:
        self.made.append(self)
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.path = self.directory / "clinic.toml"
        text = CONFIG.format(
            name=self.name,
            transport=self.transport_text(),
            length=self.length,
            epsilon=self.epsilon,
            guarantee=self.guarantee,
            strategy=self.strategy,
            parameters=self.parameters,
            expiry=self.expiry,
        )
        self.path.write_text(text)
        self.make_input()

    def transport_text(self) -> str:
        """The configuration of input and output."""
        return f'[input]\ntopics = ["{self.topic}"]\n[input.log]\npath = "log"'

    def make_input(self) -> None:
        log = FileLog(self.directory / "log")
        log.ensure_topics([TopicSpec(self.topic, partitions=self.partitions)])
        log.close()

    @property
    def config(self) -> StreamConfig:
        return load(self.path)

    # Feeding

    def feed(self, count: int = 40) -> None:
        """Appends upserts, deletes, stale records and rubbish of a few hundred users."""
        batch = []
        for _ in range(count):
            user = self.randomness.randrange(300)
            value: bytes | None = self._value(user)
            batch.append(Message(self.topic, value, key=f"user-{user}".encode(), partition=user % self.partitions))
        self.append(batch)
        self.fed += count

    def feed_everybody(self) -> None:
        """One record of each user, newer than all before."""
        ts = int(time.time() * 1000) + 10
        batch = []
        for user in range(300):
            record = {"ward": self.randomness.choice(WARDS), "age": self.randomness.randrange(100)}
            value = json.dumps({"ts": ts, "op": "upsert", "record": record}).encode()
            batch.append(Message(self.topic, value, key=f"user-{user}".encode(), partition=user % self.partitions))
        self.append(batch)

    def append(self, batch: list[Message]) -> None:
        log = FileLog(self.directory / "log", durable=False)
        try:
            writer = log.writer("feeder")
            writer.append(batch)
            writer.close()
        finally:
            log.close()

    def _value(self, user: int) -> bytes:
        kind = self.randomness.random()
        ts = int(time.time() * 1000) - self.randomness.randrange(2_000)
        if kind < 0.05:
            return b"{rubbish"
        if kind < 0.15:
            return json.dumps({"ts": ts, "op": "delete", "record": None}).encode()
        record = {"ward": self.randomness.choice(WARDS), "age": self.randomness.randrange(100)}
        return json.dumps({"ts": ts, "op": "upsert", "record": record}).encode()

    # Running

    def start(
        self, kill_at: str | None = None, options: tuple[str, ...] = (), **environment: str
    ) -> subprocess.Popen[bytes]:
        variables = {**os.environ, **environment}
        variables.pop("STREAMDP_TEST_KILL", None)
        if kill_at is not None:
            variables["STREAMDP_TEST_KILL"] = kill_at
        with (self.directory / "daemon.log").open("ab") as log:
            command = [sys.executable, *self.program, "run", str(self.path), *options]
            self.daemons.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=variables))
        return self.daemons[-1]

    def close(self) -> None:
        """Ends what a test left running."""
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()

    def run_until(self, points: int) -> None:
        """A daemon that lives until the output holds so many more points, then stops in good order.

        It publishes what an earlier one owes before it runs, and a signal that comes then only ends it.
        """
        starts = self.starts()
        goal = self.last_published() + points
        process = self.start()
        try:
            self.wait(lambda: self.starts() > starts and self.last_published() >= goal, process)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE)
        assert code == 0, self.log_text()

    def starts(self) -> int:
        """How many daemons have come to run so far."""
        return self.log_text().count('"running"')

    def wait(self, condition, process: subprocess.Popen[bytes] | None = None, seconds: float = PATIENCE) -> None:
        def holds() -> bool:
            if condition():
                return True
            assert process is None or process.poll() is None, f"the daemon ended early:\n{self.log_text()}"
            return False

        until(holds, seconds, said=self.log_text)

    def log_text(self) -> str:
        path = self.directory / "daemon.log"
        return path.read_text() if path.exists() else ""

    # What came out

    def outputs(self, topic: str = "releases") -> list[bytes]:
        name = f"{self.name}.{topic}"
        if not (self.directory / "log" / name).exists():
            return []
        log = FileLog(self.directory / "log")
        try:
            partition = TopicPartition(name, 0)
            end = log.end_offsets([name])[partition]
            reader = log.reader({partition: 0})
            values: list[bytes] = []
            while reader.positions()[partition] < end:
                for batch in reader.poll(timeout=1):
                    values += [value for value in batch.values if value is not None]
            reader.close()
            return values
        finally:
            log.close()

    def last_published(self) -> int:
        heads = self.outputs("head")
        return int(messages.decode(heads[-1]).header["time_point"]) if heads else 0

    # What must be true

    def check(self) -> None:
        """Everything the crash tests promise; call it with no daemon running."""
        self.check_outputs()
        self.check_ledger()
        self.check_population()

    def check_outputs(self) -> None:
        """Every point once and in order for each histogram, and every byte as the journal stored it."""
        values = self.outputs()
        decoded = [messages.decode(value) for value in values]
        with JournalReader.open(self.config.journal_path) as journal:
            stored = [
                entry.message.value
                for point in journal.points()
                for entry in journal.messages(point.time_point)
                if entry.message.topic == Topics.of(self.name).releases
            ]
            owed = len([m for m in journal.unpublished() if m.message.topic == Topics.of(self.name).releases])
        published, expected = self.summary(values), self.summary(stored[: len(stored) - owed])
        differ = [pair for pair in zip_longest(published, expected) if pair[0] != pair[1]]
        assert not differ, f"published, stored: {differ[:5]}\n{self.log_text()}"
        assert values == stored[: len(stored) - owed]
        for histogram in ("wards", "ages"):
            last = 0
            for header in (m.header for m in decoded if m.header["histogram"] == histogram and m.kind != "ended"):
                assert header.get("first_missed", header["time_point"]) == last + 1
                last = header["time_point"]
            assert last == self.last_published()
            stands = None
            for header in (m.header for m in decoded if m.header["histogram"] == histogram):
                if header["kind"] in ("release", "forecast"):
                    stands = header["release_id"]
                assert header["release_id"] == stands, "a repeat points elsewhere than at what stands"

    @staticmethod
    def summary(values: list[bytes]) -> list[tuple[int, str, str]]:
        """Readable when a comparison fails."""
        headers = [messages.decode(value).header for value in values]
        return [(header["time_point"], header["histogram"], header["kind"]) for header in headers]

    def check_ledger(self) -> None:
        """Each message's charges are in the ledger, the ledger has no others, and no reservation is passed."""
        with JournalReader.open(self.config.journal_path) as journal:
            ledger = journal.read_ledger(whole=True)  # raises when any window or horizon is overspent
            published = journal.published_until()
        told = self.told_charges()
        booked = Counter(
            (entry.time_point, entry.owner, entry.epsilon, entry.purpose)
            for entry in ledger.entries
            if entry.time_point <= published
        )
        assert told == booked

    def told_charges(self) -> Counter[tuple[int, str, Fraction, str]]:
        """Time point, histogram, epsilon and purpose, as published."""
        return Counter(
            (m.header["time_point"], m.header["histogram"], Fraction(epsilon), purpose)
            for m in map(messages.decode, self.outputs())
            for epsilon, purpose in m.header.get("charges", [])
        )

    def check_population(self) -> None:
        """What recovery rebuilds equals a count of the input by other means."""
        got, cut = self.recovered()
        assert got == self.count_below(cut)

    def recovered(self) -> tuple[Counter[tuple[str, int]], dict[TopicPartition, int]]:
        """The population that recovery rebuilds, as counts of ward and age group, and the cut it stands at."""
        config = self.config
        source, target = open_input(config), open_output(config)
        journal = open_journal(config, source, target)
        dead_letters = DeadLetterFile(config.dead_letters_path)
        try:
            pipeline, reader, _ = recover(config, journal, source, dead_letters, False, None)
            reader.close()
            cuts = journal.cuts()
            cut = dict(cuts[-1][1]) if cuts else dict(journal.opening().backlog)
            return Counter(cells(pipeline.population.counts("ages"))), cut
        finally:
            dead_letters.close()
            journal.close()
            target.close()
            source.close()

    def count_below(self, cut: dict[TopicPartition, int]) -> Counter[tuple[str, int]]:
        """Newest timestamp wins, later offset on a tie, counted message by message with the standard library."""
        newest: dict[bytes, tuple[tuple[int, int], dict | None]] = {}
        for offset, key, value in self.records_below(cut):
            try:
                message = json.loads(value)
            except ValueError:
                continue
            stamp = (message["ts"], offset)
            if key not in newest or newest[key][0] < stamp:
                newest[key] = (stamp, message["record"] if message["op"] == "upsert" else None)
        records = [record for _, record in newest.values() if record is not None]
        return Counter((record["ward"], record["age"] // 10) for record in records)

    def records_below(self, cut: dict[TopicPartition, int]) -> Iterator[tuple[int, bytes, bytes]]:
        """Offset, key and value of every input message below the cut."""
        source = FileLog(self.directory / "log")
        reader = source.reader(dict.fromkeys(cut, 0))
        while any(reader.positions()[partition] < offset for partition, offset in cut.items()):
            for batch in reader.poll(timeout=1, until=cut):
                yield from zip(batch.offsets.tolist(), batch.keys, batch.values, strict=True)
        reader.close()
        source.close()


def cells(ages: npt.NDArray[np.int64]) -> dict[tuple[str, int], int]:
    """The counts of the histogram `ages` by ward and bin, without zeros."""
    counts = ages.reshape(4, 10)
    return {(WARDS[w], a): int(counts[w, a]) for w in range(4) for a in range(10) if counts[w, a]}


@pytest.fixture(autouse=True)
def streams_end() -> Iterator[None]:
    """Whatever becomes of a test, its daemons and its clients end with it: else they fail the tests that follow."""
    before = len(Stream.made)
    yield
    while len(Stream.made) > before:
        Stream.made.pop().close()
