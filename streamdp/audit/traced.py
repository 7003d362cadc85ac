"""Whole mechanisms traced: every strategy, every histogram method and every estimator on neighbouring data.

Each measurement is the largest loss over some datasets and some neighbours of each, in units of epsilon 1. A user has
up to `RECORDS` records in a stream, and one row in a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts
from streamdp.audit.findings import Measurement
from streamdp.audit.tracing import traced_loss
from streamdp.privacy.noise import NoiseSource

Series = list[Counts]

EPSILON = Fraction(1)
RECORDS = 2
CELLS, POINTS, WINDOW = 6, 40, 8
# A crash after some of them, and points that nobody asked.
RESTARTS, MISSED = frozenset({5, 11, 12, 30}), frozenset({7, 20, 21})
ROWS = 300

KMEANS_METHODS = ("auto", "dplloyd", "dplloyd_impr", "eugkm", "hybrid", "mkm", "pruned", "refined", "ugkm")
COPULA_METHODS = ("kendall", "mle", "hybrid")
TARGETS = ("histogram", "range_counts", "mean", "sum", "kmeans", "logistic_regression", "linear_svm")
DISTANCE: dict[str, Any] = {"releases": 4, "threshold": 200}
STRATEGIES: list[tuple[str, str, dict[str, Any]]] = [
    ("auto", "horizon", {}),
    ("auto", "window", {}),
    ("baseline", "horizon", {}),
    ("baseline", "window", {}),
    ("fixed", "horizon", {"interval": 3}),
    ("fixed", "window", {"interval": 3}),
    ("dsft", "horizon", DISTANCE),
    ("dsat", "horizon", DISTANCE),
    ("dsat_w", "window", DISTANCE),
    ("bd", "window", {}),
    ("ba", "window", {}),
]


def strategy(kind: str, guarantee: str, parameters: Mapping[str, Any]) -> Measurement:
    """Whole streams with restarts and missed points; neighbours differ in the horizon, or in one window of it."""
    # What is audited is built on this package, so it is looked up when it is audited and not before.
    from streamdp.strategies import make_strategy, restore_strategy

    span: dict[str, Any] = {"horizon": POINTS} if guarantee == "horizon" else {"window": WINDOW}
    common: dict[str, Any] = {"epsilon": EPSILON, "cells": CELLS, "sensitivity": RECORDS, "parameters": parameters}

    def run(series: Series, source: NoiseSource) -> None:
        strategy = make_strategy(kind, source=source, **span, **common)
        for time_point, counts in enumerate(series, start=1):
            if time_point in RESTARTS:
                state = json.loads(json.dumps(strategy.state()))
                strategy = restore_strategy(kind, state=state, last=strategy.released, source=source, **span, **common)
            if time_point in MISSED:
                strategy.skip()
            else:
                strategy.step(counts)

    differ = POINTS if guarantee == "horizon" else WINDOW
    return Measurement(
        max(
            traced_loss(run, series, _neighbours(series, differ), seed)
            for seed, series in enumerate(_streams(), start=1)
        )
    )


def _streams() -> list[Series]:
    """At rest, jumping, growing, and left by everybody, where a slack that follows the data would show."""
    rest = np.full(CELLS, 20_000)
    jumps = [np.roll(1_000 * np.arange(CELLS), point // 7) for point in range(POINTS)]
    growing = [(50 * point) * np.arange(1, CELLS + 1) for point in range(POINTS)]
    left = [rest if point < 6 else np.zeros_like(rest) for point in range(POINTS)]
    return [[rest] * POINTS, jumps, growing, left]


def _neighbours(series: Series, differ: int) -> Iterator[Series]:
    """With a user more during `differ` consecutive points: in one cell all the time, or in others at every point."""
    for first in range(0, POINTS - differ + 1, 5):
        for places in ([[0] * RECORDS] * POINTS, [[point % CELLS, (point + 2) % CELLS] for point in range(POINTS)]):
            neighbour = list(series)
            for point in range(first, first + differ):
                neighbour[point] = series[point].copy()
                np.add.at(neighbour[point], places[point], 1)
            yield neighbour


def histogram(method: str) -> Measurement:
    """One release of histograms of several shapes; neighbours have a user more, whose records lie in some cells."""
    from streamdp.histograms import method_named

    def traced(shape: tuple[int, ...], counts: Counts, seed: int) -> float:
        def run(some: Counts, source: NoiseSource) -> None:
            method_named(method).release(some, shape, EPSILON, RECORDS, source)

        places = [(0, 0), (counts.size - 1,) * 2, (counts.size // 2, counts.size // 3), (1, counts.size - 2)]
        return traced_loss(run, counts, [counts + _at(counts.size, each) for each in places], seed)

    shapes: list[tuple[int, ...]] = [(7,), (64,), (300,), (12, 10)]
    losses = [
        traced(shape, counts, seed) for shape in shapes for seed, counts in enumerate(_histograms(shape), start=1)
    ]
    return Measurement(max(losses))


def _histograms(shape: tuple[int, ...]) -> list[Counts]:
    cells = int(np.prod(shape))
    place = np.arange(cells)
    return [np.zeros(cells, np.int64), 30 * place, np.where(place % 17 == 3, 5_000, 2), 7_919 * place % 1_000]


def _at(cells: int, places: Sequence[int]) -> Counts:
    return np.bincount(places, minlength=cells).astype(np.int64)


def kmeans(method: str) -> Measurement:
    """Centres of a table of two columns; neighbours have a row more."""
    from streamdp.jobs import KMeans

    def run(table: npt.NDArray[np.float64], source: NoiseSource) -> None:
        bounds = ([0.0, -1.0], [10.0, 1.0])
        KMeans(3, EPSILON, bounds, method=method, source=source).fit(table)

    place = np.arange(ROWS)
    table = np.stack([place % 3 * 4 + place % 7 / 7, np.sin(place)], axis=1)
    rows = [[0.0, -1.0], [10.0, 1.0], [5.0, 0.0], [1e300, np.nan], [-4.0, 2.0]]
    return Measurement(max(_with_one_more(run, table, rows, seed) for seed in (1, 2)))


def _with_one_more(
    run: Callable[[Any, NoiseSource], None], table: npt.NDArray[Any], rows: Sequence[Sequence[Any]], seed: int
) -> float:
    return traced_loss(run, table, [np.vstack([table, row]) for row in rows], seed)


def copula(method: str) -> Measurement:
    """Synthetic data of three attributes; neighbours have a row more."""
    from streamdp.domain import Attribute, Domain
    from streamdp.jobs import Copula

    domain = Domain(
        [Attribute.integer("age", 0, 39), Attribute.categorical("sex", "fm"), Attribute.integer("weight", 0, 24)]
    )

    def run(codes: npt.NDArray[np.int64], source: NoiseSource) -> None:
        columns = dict(zip(domain.names, codes.T, strict=True))
        Copula(EPSILON, domain, method, "laplace", source=source).fit_codes(columns)

    place = np.arange(ROWS)
    codes = np.stack([place % 40, place % 5 // 3, (place % 40 + place % 3) // 2], axis=1)
    return Measurement(max(_with_one_more(run, codes, [[0, 0, 0], [39, 1, 24], [0, 1, 24]], seed) for seed in (1, 2)))


def privpfc(selection: str) -> Measurement:
    """The histogram for classification of two attributes; neighbours have a row more."""
    from streamdp.domain import Attribute
    from streamdp.jobs import PrivPfC

    attributes = [Attribute.integer("age", 0, 63, bins=16), Attribute.categorical("ward", "abcd")]

    def run(codes: npt.NDArray[np.int64], source: NoiseSource) -> None:
        model = PrivPfC(EPSILON, attributes, ["no", "yes"], pool_size=200, selection=selection, rounds=2, source=source)
        model.fit_codes({"age": codes[:, 0], "ward": codes[:, 1]}, codes[:, 2])

    place = np.arange(ROWS)
    codes = np.stack([place % 16, place % 4, (place % 16 > 7).astype(np.int64)], axis=1)
    return Measurement(max(_with_one_more(run, codes, [[0, 0, 1], [15, 3, 0], [8, 1, 1]], seed) for seed in (1, 2)))


def personalized(target: str) -> Measurement:
    """A personalised statistic of two columns; neighbours have a row more, of a user of each class.

    The loss is in units of that user's own epsilon, by every mechanism but `sampling`, whose rows by class say what
    it costs to take part by chance.
    """
    from streamdp.audit.by_class import CLASSES, MECHANISMS
    from streamdp.jobs import personalized as targets

    bounds = ([0.0, -1.0], [10.0, 1.0])
    made: Mapping[str, Any] = {
        "histogram": targets.Histogram((11, 2)),
        "range_counts": targets.RangeCounts([{0: (0, 4)}, {0: (3, 9), 1: (0, 1)}], {0: (0, 10), 1: (-1, 1)}),
        "mean": targets.Mean(bounds),
        "sum": targets.Sum(bounds),
        "kmeans": targets.Clusters(3, bounds),
        "logistic_regression": targets.LogisticRegression(bounds, classes=(0, 1)),
        "linear_svm": targets.LinearSVM(bounds, classes=(0, 1)),
    }
    place = np.arange(ROWS)
    levels = place % len(CLASSES)
    # The last column says whose row it is, by class, and the one before it is the label of classifiers.
    table = np.stack([place % 11, place % 2, place % 11 > 5, levels], axis=1).astype(np.float64)
    preferences = targets.Preferences.of_levels(list(CLASSES.values()), [ROWS // 3] * 3)

    def traced(mechanism: str, level: int, epsilon: Fraction) -> float:
        def run(rows: npt.NDArray[np.float64], source: NoiseSource) -> None:
            model = targets.Personalized(made[target], preferences, mechanism, rounds=2, smallest=10, source=source)
            model.fit_levels(rows[:, :2], rows[:, 2].astype(np.int64), rows[:, 3].astype(np.uint8))

        rows = [[0, 0, 0, level], [10, 1, 1, level], [4, 0, 0, level], [10, -1, 0, level]]
        return _with_one_more(run, table, rows, seed=1) / float(epsilon)

    mechanisms = [mechanism for mechanism in MECHANISMS if mechanism != "sampling"]
    return Measurement(
        max(
            traced(mechanism, level, epsilon)
            for mechanism in mechanisms
            for level, epsilon in enumerate(CLASSES.values())
        )
    )
