"""How far from hindsight everybody must be: the least ratio that any strategy can promise, with a finite horizon.

    python benchmarks/hindsight.py [--points 1000] [--jumps 40] [--draws 12]

Two kinds of traces, the same until a moment that nobody knows. In the quiet one people move, but less than noise shows
in the whole horizon: in hindsight one release with all of epsilon is best. In the others, from that moment on,
everything jumps so many times: in hindsight `dsft` is best, which saves epsilon until then. Their errors are measured
here, with real noise; let `c` be the ratio of jumps times the first to the second.

Who spent the part s(t) of epsilon before the moment t has 1 - s(t) for the jumps after it, so its error there is at
least (1 - t) c / (1 - s(t)) of hindsight's: to be within R of it, s(t) is at most 1 - (1 - t) c / R. In the quiet trace
the error at t is at least 1 / s(t) of hindsight's, whatever is made of the releases until then, and its mean

    is at least the integral of 1 / (1 - (1 - t) c / R), so R is at least c / (1 - exp(-c))

(1.58 for c = 1). Averages of releases, the best that is known, have 1 / sqrt(the sum of the squares of their parts)
instead, and the least R is larger: it is searched for. All of this is granted to a strategy: that it learns for nothing
when the jumps begin, when each comes and how many there will be.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from fractions import Fraction
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from streamdp.replay.queries import QUERIES
from streamdp.replay.truth import Truth
from streamdp.replay.tune.trials import Trial, run_trial

SHAPE, USERS, EPSILON = (8, 8), 10_000_000, Fraction(1, 10)
MOMENTS = (0.1, 0.3, 0.5, 0.7)
MAX_AVERAGED, STARTS = 6, 10
SEED = 1


def trace(points: int, begins: int, jumps: int) -> Truth:
    """Two people move at every point; from `begins` on all of them do, now and then."""
    generator = np.random.default_rng(SEED)
    cells = SHAPE[0] * SHAPE[1]
    counts = np.empty((points, cells), np.int64)
    now = generator.multinomial(USERS, generator.dirichlet(np.ones(cells)))
    moments = set(np.linspace(begins, points, jumps, endpoint=False).astype(int)) if begins < points else set()
    for point in range(points):
        if point in moments:
            now = generator.multinomial(USERS, generator.dirichlet(np.ones(cells)))
        now = now + np.eye(cells, dtype=np.int64)[generator.integers(cells, size=2)].T @ np.array([1, -1])
        counts[point] = now.clip(0)
    return Truth(counts, SHAPE, np.zeros(points, bool), QUERIES)


def error(truth: Truth, kind: str, parameters: Mapping[str, Any], draws: int) -> float:
    arguments = {
        "kind": kind,
        "epsilon": EPSILON,
        "cells": truth.cells,
        "shape": truth.shape,
        "horizon": truth.points,
        "window": None,
        "sensitivity": 1,
        "parameters": parameters,
    }
    return float(np.mean([run_trial(truth, Trial(arguments, SEED, draw)).absolute for draw in range(draws)]))


def quiet_error(ratio: float, c: float, times: NDArray[np.float64]) -> float:
    """On the quiet trace, relative to hindsight, when releases at 0 and `times` take all that `ratio` lets them."""
    begins = np.concatenate([[0.0], np.sort(np.clip(times, 0, 1))])
    parts = np.diff(1 - (1 - begins) * c / ratio, prepend=0)
    lasts = np.diff(begins, append=1)
    return float((lasts / np.sqrt(np.cumsum(parts**2))).sum())


def least_with_averages(c: float) -> float:
    generator = np.random.default_rng(SEED)
    starts = [generator.random(size) for size in range(1, MAX_AVERAGED + 1) for _ in range(STARTS)]

    def beyond(ratio: float) -> float:
        found = (minimize(lambda times: quiet_error(ratio, c, times), start, method="Nelder-Mead") for start in starts)
        return min(quiet_error(ratio, c, np.empty(0)), *(one.fun for one in found)) - ratio

    return float(brentq(beyond, 1.01 * c, 4, xtol=1e-3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--jumps", type=int, default=40)
    parser.add_argument("--draws", type=int, default=12)
    given = parser.parse_args()
    points, jumps, draws = given.points, given.jumps, given.draws
    saving = {"releases": jumps + 1, "threshold": USERS // 5, "groups": 16, "decision_ratio": "1/30"}
    quiet = trace(points, points, jumps)
    once = error(quiet, "fixed", {"interval": points}, draws)
    print(f"{'trace':<16}{'hindsight':>10}{'auto':>8}{'c':>7}")
    print(f"{'quiet':<16}{once:>10.0f}{error(quiet, 'auto', {}, draws) / once:>8.2f}{'':>7}", flush=True)
    ratios = []
    for moment in MOMENTS:
        truth = trace(points, int(moment * points), jumps)
        saved = error(truth, "dsft", saving, draws)
        ratios.append(jumps * once / saved)
        auto = error(truth, "auto", {}, draws) / saved
        print(f"{f'jumps from {moment:.0%}':<16}{saved:>10.0f}{auto:>8.2f}{ratios[-1]:>7.3f}", flush=True)
    c = min(ratios)
    print(f"\nwith c = {c:.3f} nobody can promise less than {c / (1 - exp(-c)):.2f} on all of these")
    print(f"and nobody who averages releases less than {least_with_averages(c):.2f}")


if __name__ == "__main__":
    main()
