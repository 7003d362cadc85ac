"""Memory and speed of the population table: `python benchmarks/population.py [users ...]`.

For each number of users: fill the table, then apply batches of updates for random users to two histograms (27,648
cells and 100 x 100), close a point, write and load a checkpoint, write a snapshot. Memory is given twice: by the
arrays' own sizes, and by the growth of the process's resident set (Linux), which also holds whatever a batch leaves
behind.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from streamdp.domain import Attribute, Axis, Domain, View
from streamdp.population import Population, Snapshot, load_latest, write_checkpoint, write_snapshot

BATCH = 100_000
DOMAIN = Domain(
    [
        Attribute.integer("age", 0, 95),
        Attribute.categorical("region", [f"region {i}" for i in range(24)]),
        Attribute.categorical("plan", [f"plan {i}" for i in range(12)]),
        Attribute.real("latitude", 0, 1, bins=100),
        Attribute.real("longitude", 0, 1, bins=100),
    ]
)
VIEWS = [
    View("people", DOMAIN, ["age", "region", "plan"]),
    View("places", DOMAIN, [Axis("latitude"), Axis("longitude")]),
]


class Feed:
    """Batches of messages whose timestamps follow their offsets, but for those said to be late."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        self._offset = 0

    def batch(self, numbers: np.ndarray, late: float = 0.0) -> dict[str, object]:
        count = len(numbers)
        low = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        low ^= low >> np.uint64(29)
        low *= np.uint64(0xBF58476D1CE4E5B9)
        ts = np.arange(self._offset, self._offset + count)
        if late:
            ts -= np.where(self._random.random(count) < late, self._random.integers(0, 2 * count, count), 0)
        offsets = np.arange(self._offset, self._offset + count)
        self._offset += count
        return {
            "user": np.stack([low, low ^ np.uint64(0xC2B2AE3D27D4EB4F)], axis=1),
            "record": None,
            "ts": ts,
            "delete": self._random.random(count) < 0.01,
            "codes": [self._random.integers(0, size, count) for size in DOMAIN.sizes],
            "partition": 0,
            "offsets": offsets,
        }

    def update(self, users: int, late: float = 0.0) -> dict[str, object]:
        return self.batch(self._random.integers(0, users, BATCH), late)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak_bytes() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def measure(users: int) -> None:
    feed = Feed()
    population = Population(DOMAIN, VIEWS, expire_after=1000, tombstone_points=10)
    # Once through, so that what a batch needs for itself is resident before and after.
    Population(DOMAIN, VIEWS).apply(**feed.update(users), time_point=0)  # type: ignore[arg-type]
    before = resident_bytes()
    filling = slowest = 0.0
    for start in range(0, users, BATCH):
        batch = feed.batch(np.arange(start, min(start + BATCH, users)))
        began = time.perf_counter()
        population.apply(**batch, time_point=0)  # type: ignore[arg-type]
        took = time.perf_counter() - began
        filling += took
        slowest = max(slowest, took)
    del batch
    attributes = population.attribute_bytes
    own = population.nbytes / users - attributes
    resident = (resident_bytes() - before) / users - attributes
    peak = (peak_bytes() - before) / users - attributes
    print(f"{users:,} users")
    print(f"  bytes a user beyond the {attributes} of attributes: {own:.1f} ({resident:.1f} resident, {peak:.1f} peak)")
    print(f"  first messages: {filling / users * 1e9:.0f} ns a row; slowest batch {slowest:.2f} s (the index grows)")
    for name, late in (("in order", 0.0), ("a tenth late", 0.1)):
        batches = [feed.update(users, late) for _ in range(12)]
        times = []
        for batch in batches:
            began = time.perf_counter()
            population.apply(**batch, time_point=0)  # type: ignore[arg-type]
            times.append(time.perf_counter() - began)
        print(f"  updates, {name}: {np.median(times) / BATCH * 1e9:.0f} ns a row")
    began = time.perf_counter()
    population.close(0)
    print(f"  close, nothing due: {time.perf_counter() - began:.3f} s")
    with tempfile.TemporaryDirectory() as name:
        measure_files(population, Path(name))


def measure_records(users: int) -> None:
    """Users with up to three counted records out of five ids."""
    feed, random = Feed(), np.random.default_rng(2)
    population = Population(DOMAIN, VIEWS, records_per_user=3)
    times = []
    for _ in range(max(20, 8 * users // BATCH)):
        batch = feed.update(users)
        ids = random.integers(1, 6, BATCH).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        batch["record"] = np.stack([ids, ids], axis=1)
        began = time.perf_counter()
        population.apply(**batch, time_point=0)  # type: ignore[arg-type]
        times.append(time.perf_counter() - began)
    settled = np.median(times[len(times) // 2 :]) / BATCH * 1e9
    print(f"{users:,} users with about five remembered records each, three of them counted")
    print(f"  updates: {settled:.0f} ns a row; {population.nbytes / users:.0f} bytes a user, attributes included")


def measure_files(population: Population, directory: Path) -> None:
    clock = [time.perf_counter()]
    checkpoint = write_checkpoint(population, directory, {}, 0)
    clock.append(time.perf_counter())
    snapshot = write_snapshot(population, directory, 0)
    clock.append(time.perf_counter())
    mapped = len(Snapshot.open(snapshot))
    clock.append(time.perf_counter())
    restored = load_latest(directory, DOMAIN, VIEWS, expire_after=1000, tombstone_points=10)
    clock.append(time.perf_counter())
    assert restored is not None and mapped == restored.population.counts("people").sum()
    size = checkpoint.stat().st_size / 1e6
    wrote, wrote_snapshot, opened, loaded = np.diff(clock)
    print(f"  checkpoint: {size:.0f} MB written in {wrote:.2f} s, loaded in {loaded:.2f} s")
    print(f"  snapshot: written in {wrote_snapshot:.2f} s, checked and mapped in {opened:.2f} s")


if __name__ == "__main__":
    for text in sys.argv[1:] or ["100000", "10000000"]:
        measure(int(text))
    measure_records(100_000)
