"""The exact privacy loss of one history: run on a dataset, replay its outputs on a neighbour, add up every step.

A step is one noisy sum, one comparison, one selection, or a whole sparse vector: bit by bit, a hundred answers "below"
would count forty times what they cost together. Its loss is the largest log-ratio of an output's probability on one
dataset to that on the other. For a sparse vector that is known in closed form (Lyu, Su, Li 2017), and other rows of
the audit integrate over its threshold noise to check it. By adaptive composition the history loses at most the sum.

It sees a wrong scale, split or sensitivity anywhere between the data and the answer, and a call that the neighbour
would not have made. It does not see data that goes round the mechanisms (the tests of non-interference do), nor draws
that do not have the scale that was asked for (the rows about draws do).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from streamdp.arrays import Floats
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource, uniform_below
from streamdp.privacy.queries import Comparison, NoisySum, Query, RowDraws, Selection, ThresholdNoise

Data = TypeVar("Data")

# Draws for rows come in blocks of this size: the draws of the first rows are the same whether one more row follows.
_ROWS = 1 << 12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def traced_loss(
    run: Callable[[Data, NoiseSource], Any], data: Data, neighbours: Iterable[Data], seed: int = 1
) -> float:
    """The most that the outputs of `run` on `data` tell between it and one of its neighbours.

    Infinite when the calls themselves tell. `run` draws from the source it is given and from nothing else. In a table
    the row that only one of two neighbours has is the last.
    """
    recorder = _Recorder(seed)
    run(data, recorder)
    return max(_loss(run, recorder, neighbour, seed) for neighbour in neighbours)


def _loss(run: Callable[[Data, NoiseSource], Any], recorder: _Recorder, neighbour: Data, seed: int) -> float:
    replayer = _Replayer(seed, recorder)
    try:
        run(neighbour, replayer)
    except _Diverged:
        return math.inf
    if len(replayer.queries) != len(recorder.queries):
        return math.inf
    total = _Total()
    for here, there, answer in zip(recorder.queries, replayer.queries, recorder.answers, strict=True):
        total.add(here, there, answer)
    return total.loss


class _Diverged(Exception):
    """The neighbour asked something else."""


class _Recorder(NoiseSource):
    """Runs every mechanism, and keeps what it was asked and what it answered."""

    def __init__(self, seed: int) -> None:
        self.queries: list[Query] = []
        self.answers: list[Any] = []
        self._seed = seed
        self._public = InsecureSeededSource(seed)
        self._mechanisms = InsecureSeededSource(seed + 1)
        self._is_answering = False
        self._row_draws = 0

    def random_bytes(self, count: int) -> bytes:
        """Draws outside of any query are public, and the same in the replay."""
        return (self._mechanisms if self._is_answering else self._public).random_bytes(count)

    def answer(self, query: Query, run: Callable[[], Any]) -> Any:
        if isinstance(query, RowDraws):
            self._row_draws += 1
            source = InsecureSeededSource((self._seed << 32) + self._row_draws)
            return uniform_below(query.bound, -(-query.rows // _ROWS) * _ROWS, source)[: query.rows]
        answer = self._settle(query, run)
        self.queries.append(query)
        self.answers.append(answer)
        return answer

    def _settle(self, query: Query, run: Callable[[], Any]) -> Any:
        self._is_answering = True
        try:
            return run()
        finally:
            self._is_answering = False


class _Replayer(_Recorder):
    """Gives the answers that were recorded."""

    def __init__(self, seed: int, recorded: _Recorder) -> None:
        super().__init__(seed)
        self._recorded = recorded

    def _settle(self, query: Query, run: Callable[[], Any]) -> Any:
        place = len(self.queries)
        known = self._recorded.queries
        if place >= len(known) or known[place].public != query.public:
            raise _Diverged
        return self._recorded.answers[place]


class _Total:
    """The sum of the losses of all steps. Infinite where a sparse vector did what nobody paid for: it was not begun, or
    said "above" too often."""

    def __init__(self) -> None:
        self._exact, self._selections = Fraction(0), 0.0
        self._vectors: dict[Hashable, _Vector] = {}
        self._is_unpaid = False

    @property
    def loss(self) -> float:
        if self._is_unpaid:
            return math.inf
        return float(self._exact + sum(vector.loss for vector in self._vectors.values())) + self._selections

    def add(self, here: Query, there: Query, answer: Any) -> None:
        match here, there:
            case NoisySum(), NoisySum():
                moved = np.abs(here.exact.astype(object) - there.exact.astype(object)).sum()
                self._exact += int(moved) / here.scale
            case ThresholdNoise(), _:
                # Vectors are told apart by their noise. One that ends and one that begins may have the same.
                if ended := self._vectors.pop((here, answer), None):
                    self._exact += ended.loss
                self._vectors[here, answer] = _Vector(here)
            case Comparison(vector=None), Comparison():
                self._exact += abs(here.value - there.value) / here.scale
            case Comparison(), Comparison():
                vector = self._vectors.get((here.vector, here.threshold_noise))
                self._is_unpaid |= vector is None or not vector.answered(abs(here.value - there.value), answer)
            case Selection(), Selection():
                self._selections += _selection_loss(here, there)


class _Vector:
    """A sparse vector, and how far its answers moved."""

    def __init__(self, begun: ThresholdNoise) -> None:
        self._begun = begun
        self._moved = self._above = 0

    def answered(self, moved: int, is_above: bool) -> bool:
        """Whether this answer was paid for."""
        self._moved = max(self._moved, moved)
        self._above += is_above
        return self._above <= self._begun.positives

    @property
    def loss(self) -> Fraction:
        """Of all its bits together."""
        return self._moved * (1 / self._begun.scale + self._begun.turns / self._begun.query_scale)


def _selection_loss(here: Selection, there: Selection) -> float:
    log_probabilities = _exponential if here.mechanism == "exponential mechanism" else _permute_and_flip
    return float(np.max(np.abs(log_probabilities(here) - log_probabilities(there))))


def _exponential(query: Selection) -> Floats:
    logs = -float(query.rate) * query.gaps.astype(np.float64)
    return np.asarray(logs - np.logaddexp.reduce(logs))


def _permute_and_flip(query: Selection) -> Floats:
    """In a random order each candidate comes at a uniform time x and is accepted with probability p_i, so the first is
    i with probability p_i * integral over x of the product over j != i of (1 - x p_j)."""
    logs = -float(query.rate) * query.gaps.astype(np.float64)
    accepted = np.exp(logs)
    # The product falls like exp(-x times the sum), so panels grow from a fraction of that scale.
    edges = np.append(0.0, np.geomspace(min(0.01 / accepted.sum(), 0.5), 1.0, 60))
    half = np.diff(edges) / 2
    times = ((edges[:-1] + edges[1:]) / 2)[:, np.newaxis] + half[:, np.newaxis] * _NODES
    weights = (half[:, np.newaxis] * _WEIGHTS).ravel()
    passed = np.log1p(-np.outer(times.ravel(), accepted))
    others = passed.sum(axis=1)[:, np.newaxis] - passed
    return np.asarray(logs + np.log(weights @ np.exp(others)))
