"""Several strategies on one trace, side by side, several times each.

The trace is read and decoded once: at every point all runs of all strategies step on the same true counts, so memory is
the population and one released histogram per run. Private: the result tells how far off the truth each of them is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from statistics import stdev
from typing import Any

import numpy as np

from streamdp.arrays import Counts
from streamdp.config import StreamConfig
from streamdp.privacy import InsecureSeededSource, NoiseSource
from streamdp.replay.candidates import Candidate, Settings, candidates, fitting
from streamdp.replay.play import Player
from streamdp.replay.queries import QUERIES, RangeQueries, errors
from streamdp.replay.reader import TraceReader
from streamdp.replay.result import PRIVATE, l1_distance
from streamdp.strategies import StreamStrategy

VERSION = 1


@dataclass
class Standing:
    """One strategy on one histogram. Means are over all points and runs; spreads are between the runs' means."""

    histogram: str
    strategy: str
    parameters: dict[str, Any]
    absolute: float = 0.0
    absolute_spread: float = 0.0
    relative: float = 0.0
    l1: float = 0.0
    releases: float = 0.0
    epsilon: float = 0.0
    """The most that any run spent, over the horizon or in a window."""
    absolute_by_point: list[float] = field(default_factory=list)
    """Mean absolute error at each point, over the runs."""
    releases_by_point: list[float] = field(default_factory=list)
    """In what part of the runs the point was released."""


@dataclass
class Comparison:
    stream: str
    trace: str
    runs: int
    seed: int | None
    time_points: int
    standings: list[Standing]

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, "private": PRIVATE, **asdict(self)}

    def of(self, histogram: str) -> list[Standing]:
        """The strategies of a histogram, the most accurate first."""
        mine = [standing for standing in self.standings if standing.histogram == histogram]
        return sorted(mine, key=lambda standing: standing.absolute)

    @property
    def histograms(self) -> list[str]:
        return list(dict.fromkeys(standing.histogram for standing in self.standings))


class _Run:
    """One strategy, once."""

    def __init__(self, strategy: StreamStrategy, queries: RangeQueries) -> None:
        self._strategy, self._queries = strategy, queries
        self._answered = np.zeros(queries.count, np.int64)
        self._window: deque[tuple[int, Fraction]] = deque()
        self._spent = Fraction(0)
        self.max_spent = Fraction(0)
        self.absolute: list[float] = []
        self.relative: list[float] = []
        self.l1: list[int] = []
        self.released: list[bool] = []

    def step(self, truth: Counts, answers: Counts, records: int, missed: int) -> None:
        decision = self._strategy.skip(missed) if missed else self._strategy.step(truth)
        if decision.kind != "repeat" and decision.counts is not None:
            self._answered = self._queries.answers(decision.counts)
        self._spend(decision.time_point, sum((cost.epsilon for cost in decision.costs), Fraction(0)))
        absolute, relative = errors(answers, self._answered, records)
        self.absolute.append(absolute)
        self.relative.append(relative)
        held = np.zeros_like(truth) if decision.counts is None else decision.counts
        self.l1.append(l1_distance(held, truth))
        self.released.append(decision.fresh)

    def _spend(self, time_point: int, epsilon: Fraction) -> None:
        if epsilon:
            self._window.append((time_point, epsilon))
            self._spent += epsilon
        while self._window and self._window[0][0] <= time_point - self._strategy.span:
            self._spent -= self._window.popleft()[1]
        self.max_spent = max(self.max_spent, self._spent)


def compare(
    config: StreamConfig,
    trace: TraceReader,
    *,
    strategies: Sequence[str] | None = None,
    runs: int = 10,
    settings: Settings | None = None,
    histograms: Sequence[str] | None = None,
    seed: int | None = None,
    queries: int = QUERIES,
    on_point: Callable[[int], None] | None = None,
) -> Comparison:
    """Runs the strategies (all that fit, when none are named) on every histogram (or those named)."""
    player = Player(config, trace)
    population = player.pipeline.population
    fields: list[_Field] = []
    for histogram, view in zip(config.histogram, player.pipeline.views, strict=True):
        if histograms is None or histogram.name in histograms:
            chosen = candidates(config, histogram, view, strategies or fitting(config), settings or {})
            fields.append(_Field(view.name, chosen, RangeQueries(view.shape, queries), runs, seed))
    points = 0
    for event in player.timeline.points():
        player.pipeline.expire(event.time_point)
        for one in fields:
            one.step(population.counts(one.name), event.missed)
        points += 1
        if on_point is not None:
            on_point(event.time_point)
        if event.time_point == config.horizon:
            break
    standings = [standing for one in fields for standing in one.standings()]
    return Comparison(config.name, trace.name, runs, seed, points, standings)


class _Field:
    """All runs of all candidates for one histogram."""

    def __init__(
        self, name: str, chosen: Sequence[Candidate], queries: RangeQueries, runs: int, seed: int | None
    ) -> None:
        self.name = name
        self._queries = queries
        self._runs = [
            (candidate, [_Run(candidate.make(source_of(seed, run)), queries) for run in range(runs)])
            for candidate in chosen
        ]

    def step(self, truth: Counts, missed: int) -> None:
        answers, records = self._queries.answers(truth), int(truth.sum())
        for _, runs in self._runs:
            for run in runs:
                run.step(truth, answers, records, missed)

    def standings(self) -> list[Standing]:
        return [self._standing(candidate, runs) for candidate, runs in self._runs]

    def _standing(self, candidate: Candidate, runs: Sequence[_Run]) -> Standing:
        means = [mean_of(run.absolute) for run in runs]
        middle = mean_of(means)
        parameters = {name: plain(value) for name, value in candidate.parameters.items()}
        return Standing(
            histogram=self.name,
            strategy=candidate.kind,
            parameters=parameters,
            absolute=middle,
            absolute_spread=spread_of(means),
            relative=mean_of([mean_of(run.relative) for run in runs]),
            l1=mean_of([mean_of(run.l1) for run in runs]),
            releases=mean_of([sum(run.released) for run in runs]),
            epsilon=float(max(run.max_spent for run in runs)),
            absolute_by_point=np.mean([run.absolute for run in runs], axis=0).tolist(),
            releases_by_point=np.mean([run.released for run in runs], axis=0).tolist(),
        )


def source_of(seed: int | None, run: int) -> NoiseSource | None:
    """The noise of a run; the system's own without a seed."""
    # The same noise for every strategy in run r would tie them together; their draws differ in number, so it does not.
    return None if seed is None else InsecureSeededSource(1_000_003 * seed + run)


def mean_of(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def spread_of(values: Sequence[float]) -> float:
    """The standard deviation."""
    return stdev(values) if len(values) > 1 else 0.0


def plain(value: Any) -> Any:
    return str(value) if isinstance(value, Fraction) else value
