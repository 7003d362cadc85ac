"""What deciding and releasing one point costs, against the limits: 50 ms for 27,648 cells, 2 s for 1,048,576 cells.

Run with `python benchmarks/release_cost.py`. Each time is the median of a few points that ask and release (or just
release, where a strategy never asks), with the state taken and written as JSON, in one process without threads. The
noise is the operating system's. Exits 1 when a limit is passed.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np

from streamdp.strategies import make_strategy

LIMITS = {27_648: 0.050, 1_048_576: 2.0}
POINTS = 7

ADAPTIVE: dict[str, Any] = {"releases": 50, "threshold": 1, "scale": 0}
STRATEGIES: list[tuple[str, str, dict[str, Any]]] = [
    ("auto", "auto", {"horizon": 100}),
    ("auto, w-event", "auto", {"window": 100}),
    ("baseline", "baseline", {"horizon": 100}),
    ("dsft", "dsft", {"horizon": 100, "parameters": {"releases": 50, "threshold": 1}}),
    ("dsat, post-processed", "dsat", {"horizon": 100, "parameters": ADAPTIVE, "post": ["consistent_total"]}),
    ("dsat, 64 groups", "dsat", {"horizon": 100, "parameters": ADAPTIVE | {"groups": 64}}),
    ("dsat_w", "dsat_w", {"window": 100, "parameters": ADAPTIVE}),
    ("bd", "bd", {"window": 100}),
    ("ba", "ba", {"window": 100}),
]


def seconds_per_point(kind: str, settings: dict[str, Any], cells: int) -> float:
    """Median over points that release; counts move far, so that what asks does so soon."""
    strategy = make_strategy(kind, epsilon=1, cells=cells, **settings)
    generator = np.random.default_rng(1)
    times: list[float] = []
    for _ in range(10 * POINTS):
        counts = generator.integers(0, 50, cells) + int(generator.integers(0, 10**9))
        begun = time.perf_counter()
        decision = strategy.step(counts)
        json.dumps(strategy.state())
        if decision.fresh:
            times.append(time.perf_counter() - begun)
        if len(times) > POINTS:
            break
    assert len(times) > POINTS, "it hardly ever releases"
    return statistics.median(times[1:])


def main() -> int:
    worst = 0.0
    print(f"{'strategy':<22}{'cells':>12}{'ms':>10}{'limit ms':>10}{'ratio':>8}")
    for cells, limit in LIMITS.items():
        for label, kind, settings in STRATEGIES:
            seconds = seconds_per_point(kind, settings, cells)
            worst = max(worst, seconds / limit)
            print(f"{label:<22}{cells:>12,}{seconds * 1e3:>10.1f}{limit * 1e3:>10.0f}{seconds / limit:>8.2f}")
    print(f"worst ratio to the limit: {worst:.2f}")
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
