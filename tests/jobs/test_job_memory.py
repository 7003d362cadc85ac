"""Failure is an output: whether a job has the memory it needs must not depend on how many rows there are."""

from __future__ import annotations

import re
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

from streamdp.domain import Attribute, Domain
from streamdp.jobs import worker
from streamdp.jobs.executor import Limits, SpawnExecutor
from streamdp.population import Population, write_snapshot

ATTRIBUTES = 8
DOMAIN = Domain([Attribute.integer(f"a{place}", 0, 9) for place in range(ATTRIBUTES)])
MEGABYTE = 1 << 20


def snapshot(directory: Path, rows: int) -> Path:
    population = Population(DOMAIN, [], record_ids=False, records_per_user=1, tombstone_points=10)
    generator = np.random.default_rng(1)
    population.apply(
        user=generator.integers(2**64, size=(rows, 2), dtype=np.uint64),
        record=None,
        ts=np.full(rows, 1_000),
        delete=np.zeros(rows, dtype=bool),
        codes=list(generator.integers(10, size=(ATTRIBUTES, rows))),
        partition=0,
        offsets=np.arange(rows),
        time_point=1,
    )
    population.close(1)
    return write_snapshot(population, directory, 1)


def fit(path: Path, method: str) -> bytes:
    return worker.run("kmeans", Fraction(1), {"n_clusters": 3, "method": method, "size": 1_000}, path)


def bytes_in_use(path: Path) -> bytes:
    """What a worker has allocated by the end of a job: what its limit counts."""
    fit(path, "dplloyd")
    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return str(1024 * int(found[1])).encode()


@pytest.mark.parametrize("method", ["auto", "dplloyd", "dplloyd_impr", "hybrid", "refined"])
def test_the_memory_of_kmeans_on_a_snapshot_does_not_grow_with_rows(tmp_path: Path, method: str) -> None:
    """A table of 160,000 rows would hold 10 MB."""
    peaks = []
    for rows in (20_000, 160_000):
        path = snapshot(tmp_path, rows)
        fit(path, method)
        tracemalloc.start()
        fit(path, method)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < MEGABYTE


@pytest.mark.slow
def test_a_kmeans_job_has_a_result_within_the_memory_that_no_rows_need(tmp_path: Path) -> None:
    """The snapshot is 12 MB, a table of its values would be 96 MB, and 32 MB are left for blocks of rows."""
    with SpawnExecutor(1, Limits(seconds=60, memory_bytes=4096 * MEGABYTE)) as pool:
        needed = int(pool.submit(bytes_in_use, snapshot(tmp_path, 0)).result(PATIENCE))
    path = snapshot(tmp_path, 1_500_000)
    with SpawnExecutor(1, Limits(seconds=60, memory_bytes=needed + 32 * MEGABYTE)) as pool:
        assert pool.submit(fit, path, "dplloyd").result(PATIENCE)
