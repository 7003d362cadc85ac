"""Our discrete Laplace sampler against OpenDP's vector one, both in this run: `python benchmarks/noise.py`.

Exit code 1 when any scale is below the required ratio.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import opendp.prelude as dp

from streamdp.privacy.noise import discrete_laplace

SCALES = {"1/2": 1 / 2, "5": 5.0, "500": 500.0, "12345/7": 12345 / 7}
REQUIRED, GOAL = 20, 50


def seconds(draw: Callable[[], object]) -> float:
    begin = time.perf_counter()
    draw()
    return time.perf_counter() - begin


def opendp_vector_laplace(scale: float) -> Callable[[list[int]], list[int]]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    return dp.m.make_laplace(*space, scale=scale)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1_000_000)
    draws = parser.parse_args().draws
    zeros = [0] * draws
    print(f"{draws:,} draws of the discrete Laplace, OpenDP {version('opendp')}; ours is the median of five")
    print(f"{'scale':>10} {'streamdp s':>12} {'OpenDP s':>12} {'M draws/s':>12} {'ratio':>8}")
    worst = float("inf")
    for name, scale in SCALES.items():
        reference = opendp_vector_laplace(scale)
        theirs = seconds(partial(reference, zeros))
        ours = sorted(seconds(partial(discrete_laplace, scale, draws)) for _ in range(5))[2]
        worst = min(worst, theirs / ours)
        print(f"{name:>10} {ours:>12.4f} {theirs:>12.3f} {draws / ours / 1e6:>12.1f} {theirs / ours:>8.0f}", flush=True)
    verdict = "FAILED" if worst < REQUIRED else "passed" if worst < GOAL else "passed, and the goal is met"
    print(f"smallest ratio {worst:.0f} (required {REQUIRED}, goal {GOAL}): {verdict}")
    return int(worst < REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
