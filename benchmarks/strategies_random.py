"""How far `auto` is from the best `fixed` on random traces that nobody chose.

    python benchmarks/strategies_random.py [--traces 96] [--draws 2] [--processes 2]

Whoever changes `auto` by looking at benchmarks/strategies.py fits it to those traces. Here a number makes a trace: its
cells, users and points, and how the data wanders, jumps, has rhythms and trends, are all drawn. There are as many as
you like, so a change can be judged on some that had no part in it (--first). Only `fixed`, with its best interval, is
the opponent: no other strategy is searched, so the figures are lower than those of benchmarks/strategies.py.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from strategies import SETTINGS, Setting, arguments_for

from streamdp.cli._progress import Progress
from streamdp.replay.truth import Truth
from streamdp.replay.tune.trials import Trial, run_trial

Floats = NDArray[np.float64]
SHAPES = [(8,), (20,), (64,), (8, 8), (16, 16), (30,), (12, 10), (5, 4, 3), (200,)]
RELEASES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200)
SEED = 77


class Draw:
    """One random trace: its features add up to the logarithm of how many are in each cell."""

    def __init__(self, number: int) -> None:
        self._random = random = np.random.default_rng([SEED, number])
        self.shape = SHAPES[random.integers(len(SHAPES))]
        self.users = int(self._between(3e3, 1e6))
        self.points = int(random.integers(120, 400))
        self._time = np.arange(self.points)[:, None]
        self.features: list[str] = []
        self._logs: Floats = np.zeros((self.points, int(np.prod(self.shape))))
        for chance, feature in (
            (0.6, self._wander),
            (0.45, self._rhythm),
            (0.45, self._jumps),
            (0.3, self._trend),
            (0.2, self._days),
        ):
            if random.random() < chance:
                self._add(feature)
        if not self.features:
            self._add(self._days)

    @cached_property
    def truth(self) -> Truth:
        random, cells = self._random, self._logs.shape[1]
        weights = np.exp(random.normal(0, random.uniform(0.3, 1.5), cells) + self._logs)
        everybody = weights.sum(axis=1, keepdims=True)
        # Either people move, or they come and go.
        expected = self.users * weights / (everybody if random.random() < 0.5 else everybody.max())
        mixed = random.uniform(0.005, 0.2)
        deviation = random.normal(size=cells)
        counts = []
        for now in expected:
            deviation = np.sqrt(1 - mixed) * deviation + np.sqrt(mixed) * random.normal(size=cells)
            counts.append(np.maximum(np.rint(now + np.sqrt(now) * deviation), 0))
        return Truth(np.array(counts, np.int64), self.shape, np.zeros(self.points, bool))

    def _add(self, feature: Callable[[], Floats]) -> None:
        self._logs = self._logs + feature()
        self.features.append(feature.__name__.strip("_"))

    def _between(self, low: float, high: float) -> float:
        return float(np.exp(self._random.uniform(np.log(low), np.log(high))))

    def _pattern(self) -> Floats:
        """Over the cells: each on its own, or neighbours alike."""
        pattern = self._random.normal(size=self._logs.shape[1])
        if self._random.random() < 0.6:
            pattern = np.convolve(pattern, np.ones(max(1, pattern.size // 4)), "same")
        scaled: Floats = pattern / pattern.std()
        return scaled

    def _wander(self) -> Floats:
        speed, back = self._between(0.003, 0.1), self._random.choice([0, 0.02, 0.2])
        level, levels = np.zeros(3), []
        for _ in range(self.points):
            level = (1 - back) * level + self._random.normal(0, speed, 3)
            levels.append(level / 2)
        wander: Floats = np.array(levels) @ np.array([self._pattern() for _ in range(3)])
        return wander

    def _rhythm(self) -> Floats:
        period, size = int(self._random.choice([7, 24, 24, 48, 52, 168, 30])), self._between(0.03, 0.7)
        if self._random.random() < 0.4:
            return size * self._pattern() * (self._time % period >= period * 5 // 7)
        turn = 2 * np.pi * self._time / period
        rhythm: Floats = size * (self._pattern() * np.sin(turn) + self._pattern() * np.cos(turn) / 2)
        return rhythm

    def _jumps(self) -> Floats:
        number, size = self._random.poisson(self._between(1, 30)), self._between(0.1, 1.5)
        do_end = self._random.random() < 0.5
        jumps = np.zeros_like(self._logs)
        for begin in self._random.integers(5, self.points, number):
            lasts = self._random.geometric(1 / max(self.points / (4 * number), 2)) if do_end else self.points
            jumps[begin : begin + lasts] += size * self._pattern()
        return jumps

    def _trend(self) -> Floats:
        begin, end = np.sort(self._random.uniform(0, self.points, 2))
        passed = np.clip((self._time - begin) / max(end - begin, 5), 0, 1)
        trend: Floats = self._random.uniform(0.2, 1.5) * passed * self._pattern()
        return trend

    def _days(self) -> Floats:
        """Every point is another, as if nothing had been before."""
        days: Floats = self._random.normal(0, self._between(0.02, 0.3), (self.points, 1)) * self._pattern()
        return days


def measure(asked: tuple[int, Setting, int]) -> tuple[float, int, str]:
    """The error of `auto` over that of the best `fixed`, the interval of that one, and what the trace is."""
    number, setting, draws = asked
    draw = Draw(number)
    truth = draw.truth

    def error(kind: str, **parameters: int) -> float:
        arguments = {**arguments_for(kind, truth, setting), "parameters": parameters}
        return float(np.mean([run_trial(truth, Trial(arguments, SEED, run)).absolute for run in range(draws)]))

    span = setting.window or truth.points
    intervals = sorted({-(-span // releases) for releases in (*RELEASES, span)})
    best, interval = min((error("fixed", interval=interval), interval) for interval in intervals)
    about = f"{'x'.join(map(str, draw.shape))} cells, {draw.users} users, {draw.points} points: "
    return error("auto") / best, interval, about + ", ".join(draw.features)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=96)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trace")
    parser.add_argument("--draws", type=int, default=2, help="of noise, for each trace and strategy")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.traces)
    with ProcessPoolExecutor(given.processes) as pool:
        for setting in SETTINGS:
            found = []
            with Progress(setting.title, given.traces) as progress:
                for one in pool.map(measure, [(number, setting, given.draws) for number in numbers]):
                    found.append(one)
                    progress.at(len(found))
            ratios = np.array([ratio for ratio, _, _ in found])
            print(
                f"{setting.title}: mean {np.exp(np.log(ratios).mean()):.3f} of the best fixed, "
                f"{(ratios > 1.5).sum()} of {given.traces} above 1.5, worst:",
                flush=True,
            )
            for place in np.argsort(-ratios)[:3]:
                ratio, interval, about = found[place]
                print(f"  {ratio:.2f} trace {numbers[place]} ({about}; fixed {interval})", flush=True)


if __name__ == "__main__":
    main()
