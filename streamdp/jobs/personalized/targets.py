"""Sums as targets: range counts, whole histograms, sums and means, and clusters by way of a histogram.

Each states the L1 norm of what one row adds, the sensitivity of `Session.estimate`, and how much it is expected to vary
from user to user, from public facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.jobs.base import Meter, ParameterError
from streamdp.jobs.kmeans.bounds import Bounds, checked_bounds, declared_attributes
from streamdp.jobs.kmeans.grids import PRUNED_THETA, pruned_outcome
from streamdp.jobs.kmeans.rows import Rows, as_table
from streamdp.jobs.kmeans.synopsis import Synopsis, cells_of, eugkm_cells, side_for
from streamdp.jobs.kmeans.task import LARGEST_SIZE, Task
from streamdp.jobs.personalized.session import Session
from streamdp.jobs.values import floats_of, table_of

Range = tuple[float, float]

LATTICE = 2**20
"""Values are whole numbers of a part in so many of their bounds, row by row, before they are summed."""

# Of a value that is spread evenly over [-1, 1].
UNIFORM_VARIANCE = 1 / 3
MAX_CELLS = 2**24


class Target(Protocol):
    """What is computed. `fit` returns the learned attributes of the model, without their trailing underscores."""

    def check(self) -> None:
        """Raise ParameterError for what is wrong with the parameters, before anything is spent."""

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]: ...


@dataclass(frozen=True)
class RangeCounts:
    """How many rows lie in each of some ranges: a mapping from column to (low, high), both ends included, for each.

    `bounds` maps columns to the public (low, high) of their values; with the ranges they tell how wide a query is.
    `step` is the distance of neighbouring values, 1 for codes and whole numbers, 0 for real ones. Every range gets an
    equal share of epsilon, for one row may lie in all of them. Learned: `counts_`.
    """

    ranges: Sequence[Mapping[Any, Range]]
    bounds: Mapping[Any, Range]
    step: float = 1.0

    def check(self) -> None:
        if not self.ranges:
            raise ParameterError("ranges: give at least one")
        for query in self.ranges:
            if not set(query) <= set(self.bounds):
                raise ParameterError("ranges: each column needs its public bounds")
        for low, high in [*self.bounds.values(), *(pair for query in self.ranges for pair in query.values())]:
            if not (np.isfinite([low, high]).all() and low <= high):
                raise ParameterError("ranges and bounds: give (low, high), finite numbers")

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]:
        share = Fraction(1, len(self.ranges))
        counts = np.empty(len(self.ranges))
        names, columns = table_of(X, 1 + max((each for each in self.bounds if isinstance(each, int)), default=-1))
        places = range(len(columns)) if names is None else names
        column_at = dict(zip(places, columns, strict=True))
        if any(column not in column_at for query in self.ranges for column in query):
            raise ParameterError("ranges: X has no such column")
        for place, query in enumerate(self.ranges):
            inside = np.ones(len(session.levels), dtype=np.bool_)
            for column, (low, high) in query.items():
                values = floats_of(column_at[column])
                inside &= (values >= low) & (values <= high)
            width = self.width(query)
            counts[place] = session.count(inside, width * (1 - width), share)
        return {"counts": counts}

    def width(self, query: Mapping[Any, Range]) -> float:
        """The part of the domain that the range holds: what is known in public of how many rows it has."""
        return prod(
            min(
                1.0, (high - low + self.step) / max(self.bounds[column][1] - self.bounds[column][0] + self.step, 1e-300)
            )
            for column, (low, high) in query.items()
        )


@dataclass(frozen=True)
class Histogram:
    """How many rows lie in each cell of a grid of codes of this shape. One row lies in one cell: sensitivity 1.

    X holds a column of codes for each axis; a row without a number in one of them is left out. Learned: `counts_`,
    signed, of that shape, and `equivalent_epsilon_`, at which plain noise would be as large.
    """

    shape: Sequence[int]

    def check(self) -> None:
        if not self.shape or min(self.shape) < 1 or prod(self.shape) > MAX_CELLS:
            raise ParameterError(f"shape: give the number of codes of each axis, at most {MAX_CELLS:,} cells in all")

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]:
        columns = table_of(X, len(self.shape)).columns
        if len(columns) != len(self.shape):
            raise ParameterError("X: give a column of codes for each axis of the shape")
        cells = np.zeros(len(session.levels), dtype=np.int64)
        whole = np.ones(len(cells), dtype=np.bool_)
        for column, size in zip(columns, self.shape, strict=True):
            codes = floats_of(column)
            whole &= ~np.isnan(codes)
            cells *= size
            cells += np.nan_to_num(np.clip(codes, 0, size - 1)).astype(np.int64)
        size = prod(self.shape)
        estimate = session.estimate(lambda weights: binned(cells, weights * whole, size), 1, (1 - 1 / size) / size)
        return {"counts": estimate.value.reshape(self.shape), "equivalent_epsilon": estimate.epsilon}


@dataclass(frozen=True)
class Sum:
    """The sum of every column. `bounds` are public, (low, high), numbers or one for each column; values outside are
    moved to the nearer one, and a row with a NaN is left out. Learned: `sums_`."""

    bounds: Any

    def check(self) -> None:
        checked_bounds(self.bounds, declared_attributes(self.bounds) or 1)

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]:
        table, bounds = bounded(X, self.bounds)
        largest = np.maximum(np.abs(bounds.low), np.abs(bounds.high))
        parts = on_lattice(table / np.where(largest, largest, 1))
        with np.errstate(over="ignore"):
            return {"sums": sums_of(parts, session, Fraction(1)) * largest}


@dataclass(frozen=True)
class Mean(Sum):
    """The mean of every column, as the quotient of a noisy sum of distances from the middle of the bounds and a noisy
    count, for half of epsilon each. `bounds` as for `Sum`. Learned: `means_`, within the bounds."""

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]:
        table, bounds = bounded(X, self.bounds)
        half = np.where(bounds.half_width > 0, bounds.half_width, 1)
        with np.errstate(over="ignore"):
            parts = (table - bounds.middle) / half
        sums = sums_of(on_lattice(parts), session, Fraction(1, 2))
        counted = session.count(_whole(table), 0.0, Fraction(1, 2))
        with np.errstate(over="ignore"):
            means = bounds.middle + sums * half / max(counted, 1.0)
        return {"means": np.clip(means, bounds.low, bounds.high)}


@dataclass(frozen=True)
class Clusters:
    """k-means on a personalised synopsis: the k-means job's grid (`streamdp.jobs.KMeans`, method "pruned") with counts
    that the mechanism estimates. How fine it is follows from the public table. Learned: `cluster_centers_`,
    `cluster_sizes_`, `synopsis_`."""

    n_clusters: int
    bounds: Any
    clusters: range = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clusters", range(self.n_clusters, self.n_clusters + 1))

    def check(self) -> None:
        if isinstance(self.n_clusters, bool) or self.n_clusters < 1:
            raise ParameterError("n_clusters: a whole number of at least 1")
        bounds = checked_bounds(self.bounds, declared_attributes(self.bounds) or 1)
        side_for(1, len(bounds.axes), self.n_clusters)

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]:
        table, bounds = bounded(X, self.bounds)
        whole = _whole(table)
        rows = Rows(table[whole], bounds)
        users, mean = session.preferences.total, _mean_epsilon(session)
        side = side_for(
            eugkm_cells(max(users, 1), mean, rows.attributes, PRUNED_THETA), rows.attributes, self.n_clusters
        )
        cells, size = cells_of(rows, side), side**rows.attributes
        estimate = session.estimate(lambda weights: binned(cells, weights[whole], size), 1, (1 - 1 / size) / size)
        noisy = np.clip(np.rint(estimate.value), -LARGEST_SIZE, LARGEST_SIZE)
        counts = noisy.astype(np.int64).reshape((side,) * rows.attributes)
        synopsis = Synopsis(counts, Fraction(max(estimate.epsilon, 1e-9)), bounds)
        task = Task(rows, bounds, self.clusters, Meter(Fraction(0)), users)
        outcome = pruned_outcome(task, synopsis, f"a grid of {side} cells a side")
        return {
            "cluster_centers": bounds.to_units(outcome.centres),
            "cluster_sizes": np.maximum(outcome.sizes, 0),
            "synopsis": synopsis,
        }


def bounded(X: Any, bounds: Any) -> tuple[Floats, Bounds]:
    """The table with its values moved into the bounds, and these; NaN stays."""
    table = as_table(X, declared_attributes(bounds)).astype(np.float64)
    checked = checked_bounds(bounds, table.shape[1])
    return np.clip(table, checked.low, checked.high), checked


def binned(cells: npt.NDArray[np.int64], weights: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Sums of weights by cell; exact while they stay below 2**53, which a population of 2**36 rows would not."""
    return np.bincount(cells, weights, size).astype(np.int64)


def _whole(table: Floats) -> npt.NDArray[np.bool_]:
    whole: npt.NDArray[np.bool_] = np.logical_not(np.isnan(table).any(axis=1))
    return whole


def on_lattice(parts: Floats) -> Floats:
    """Rows of numbers in [-1, 1] as whole numbers of `1 / LATTICE`; a row with a NaN is zero.

    The clip is part of the guarantee. Where the middle of the bounds is no float, the upper bound may lie two half
    widths from it: with bounds (1e16, 1e16 + 2) a row would add twice what is paid for.
    """
    with np.errstate(over="ignore"):
        rounded = np.clip(np.rint(parts * LATTICE), -LATTICE, LATTICE)
    rounded[np.isnan(rounded).any(axis=1)] = 0
    return rounded


def sums_of(parts: Floats, session: Session, share: Fraction) -> Floats:
    """Sums of rows of lattice values, in units of one. A row's L1 norm is at most LATTICE in each column."""
    columns = parts.astype(np.int64).T

    def tally(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.array([(column * weights).sum() for column in columns])

    estimate = session.estimate(tally, LATTICE * len(columns), UNIFORM_VARIANCE / len(columns) ** 2, share)
    return estimate.value / LATTICE


def _mean_epsilon(session: Session) -> float:
    sizes = session.preferences.sizes
    return float((session.preferences.floats() * sizes).sum() / max(sizes.sum(), 1)) or 1e-9
