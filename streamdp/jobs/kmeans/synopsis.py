"""A noisy histogram on a grid of equal cells, and how fine the grid should be.

Guarantee: a row lies in one cell, so the counts have L1 sensitivity 1 and discrete Laplace noise of scale `1 / epsilon`
on each costs `epsilon`. Everything computed from the counts afterwards is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.jobs.base import Meter, ParameterError
from streamdp.jobs.kmeans.bounds import Bounds
from streamdp.jobs.kmeans.rows import Rows

MAX_CELLS = 2**20


@dataclass(frozen=True)
class Synopsis:
    """Published noisy counts, signed, of `side` equal cells along each attribute that varies.

    `axes` are the columns those attributes have in the data; `low` and `high` are their bounds.
    """

    counts: npt.NDArray[np.int64]
    epsilon: Fraction
    bounds: Bounds

    @property
    def side(self) -> int:
        return int(self.counts.shape[0])

    @property
    def axes(self) -> list[int]:
        return self.bounds.axes

    @property
    def low(self) -> Floats:
        return self.bounds.low[self.axes]

    @property
    def high(self) -> Floats:
        return self.bounds.high[self.axes]

    def cell_centers(self) -> Floats:
        """The middle of every cell in the data's own units, in the order of `counts.ravel()`."""
        return self.bounds.to_units(self.points())[:, self.axes]

    def points(self, cells: npt.NDArray[np.intp] | None = None) -> Floats:
        """The middle of the given cells, or of all, in [-1, 1]."""
        indices = np.arange(self.counts.size) if cells is None else cells
        return (2 * np.stack(np.unravel_index(indices, self.counts.shape), axis=1) + 1) / self.side - 1

    def significant(self, clusters: int) -> tuple[Floats, Floats]:
        """The cells whose count can hardly be noise, and their counts; at least as many as there are clusters.

        Noise of scale `1/epsilon` passes `ln(M/2)/epsilon` about once in M cells. Ordinary k-means on these is not
        pulled about by the noise of empty cells, of which there are many more than of others.
        """
        counts = self.counts.reshape(-1)
        threshold = math.log(max(counts.size / 2, 1)) / float(self.epsilon)
        cells = np.flatnonzero(counts >= max(threshold, 1))
        if cells.size < clusters:
            cells = np.sort(np.argsort(-counts, kind="stable")[:clusters])
        return self.points(cells), np.maximum(counts[cells], 1).astype(np.float64)


def release_synopsis(rows: Rows, bounds: Bounds, side: int, epsilon: Fraction, meter: Meter) -> Synopsis:
    shape = (side,) * rows.attributes
    counts = np.zeros(side**rows.attributes, dtype=np.int64)
    for block in rows.blocks():
        np.add.at(counts, _cells(block, side), 1)
    return Synopsis(meter.noisy(counts, 1, epsilon).reshape(shape), epsilon, bounds)


def cells_of(rows: Rows, side: int) -> npt.NDArray[np.int64]:
    """The cell of every row that has no NaN."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *(_cells(block, side) for block in rows.blocks())])


def _cells(block: Floats, side: int) -> npt.NDArray[np.int64]:
    cells = np.zeros(block.shape[1], dtype=np.int64)
    for column in block:
        cells *= side
        cells += np.minimum((column + 1) * (side / 2), side - 1).astype(np.int64)
    return cells


def side_for(cells: float, attributes: int, clusters: int) -> int:
    """The nearest side to that many cells (rounding down costs much in high dimensions), within public limits.

    There are at least as many cells as clusters, and never more than `MAX_CELLS`.
    """
    largest = _whole_root(MAX_CELLS, attributes)
    smallest = smallest_side(attributes, clusters)
    if smallest > largest:
        raise ParameterError(
            f"{clusters} clusters in {attributes} attributes need a grid of more than {MAX_CELLS} cells: "
            "use fewer clusters or method='dplloyd_impr', which needs no grid"
        )
    return min(max(round(math.pow(cells, 1 / attributes)), smallest), largest)


def smallest_side(attributes: int, clusters: int) -> int:
    """Of a grid with at least as many cells as clusters."""
    return _whole_root(clusters - 1, attributes) + 1


def _whole_root(number: int, degree: int) -> int:
    """The largest whole number whose power is no greater than `number`."""
    root = round(math.pow(number, 1 / degree))
    return root if root**degree <= number else root - 1


def ugkm_cells(size: int, epsilon: float, attributes: int) -> float:
    """Eq. 4.12: best for range queries in two dimensions (Qardaji, Yang, Li 2013)."""
    return size * epsilon / 10


def eugkm_cells(size: int, epsilon: float, attributes: int, theta: float = 10) -> float:
    """Eq. 4.13: noise of all the cells in a range against the rows in the cells on its border."""
    return float((size * epsilon / theta) ** (2 * attributes / (2 + attributes)))


def mkm_cells(size: int, epsilon: float, attributes: int) -> float:
    """Eq. 4.11: for M-estimators, whatever epsilon is (Lei 2011)."""
    return float((size / math.sqrt(math.log(max(size, 3)))) ** (2 * attributes / (2 + attributes)))
