"""The private rows, a block at a time: clamped to public bounds, scaled to [-1, 1], rounded to a public lattice.

What becomes of a row depends on that row and on public facts only. In floating point that takes care: a matrix product
may round the same row differently at another place in the batch, and a near tie between two centres would then depend
on who else is there. Rows and centres are therefore multiples of `1 / LATTICE`, whose sums, and sums of products,
are exact in float64, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.jobs.base import ParameterError
from streamdp.jobs.kmeans.bounds import Bounds
from streamdp.jobs.kmeans.product import product
from streamdp.jobs.values import float_table

LATTICE = 2**20
# A block's columns stay in the processor's cache; memory never grows with rows times clusters.
BLOCK = 8192
# A small table is scaled once; a large one in every pass, so that it is never held twice.
KEPT_VALUES = 2**22

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def as_table(X: Any, attributes: int | None) -> npt.NDArray[Any]:
    """The data as a two-dimensional numeric array, without a copy where it is one already.

    What is no number becomes NaN, one value at a time: an error would tell that somebody's value is odd.
    """
    table = float_table(X, attributes)
    if attributes is not None and table.shape[1] != attributes:
        raise ParameterError(f"X has {table.shape[1]} columns, but the bounds are for {attributes}")
    return table


class Rows:
    """A table and its bounds. Rows with a NaN are left out; values outside the bounds are moved to the nearer one.

    `clamped` is how many rows were moved, by more than the lattice can tell, in the last pass: as private as they are.
    """

    def __init__(self, table: npt.NDArray[Any], bounds: Bounds) -> None:
        self._columns = table.T if len(bounds.axes) == table.shape[1] else table.T[bounds.axes]
        self._middle = bounds.middle[bounds.axes, np.newaxis]
        self._factor = LATTICE / bounds.half_width[bounds.axes, np.newaxis]
        self.attributes = len(bounds.axes)
        self._length = len(table)
        self.clamped = 0
        self._kept = list(self._scaled_blocks()) if self._columns.size <= KEPT_VALUES else None

    def blocks(self) -> Iterator[Floats]:
        return self._scaled_blocks() if self._kept is None else iter(self._kept)

    def count(self) -> int:
        return sum(block.shape[1] for block in self.blocks())

    def labels(self, centres: Floats) -> Labels:
        """The nearest centre of every row, -1 for a row with a NaN."""
        labels = np.full(self._length, -1, dtype=np.int64)
        for start in range(0, self._length, BLOCK):
            block, whole, _ = self._scaled(start)
            labels[start : start + BLOCK][whole] = nearest(block[:, whole], centres)
        return labels

    def _scaled_blocks(self) -> Iterator[Floats]:
        self.clamped = 0
        for start in range(0, self._length, BLOCK):
            block, whole, outside = self._scaled(start)
            self.clamped += int(np.count_nonzero(outside & whole))
            yield block if whole.all() else block[:, whole]

    def _scaled(self, start: int) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """The block that begins at row `start`, attribute by attribute; which rows are whole, and which are outside."""
        part = self._columns[:, start : start + BLOCK]
        block = np.empty(part.shape)
        # What overflows lies outside the bounds, and a NaN stays one.
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(part, self._middle, out=block)
            block *= self._factor
        np.rint(block, out=block)
        lowest, highest = block.min(axis=0), block.max(axis=0)
        np.clip(block, -LATTICE, LATTICE, out=block)
        block *= 1 / LATTICE
        return block, ~np.isnan(highest), (lowest < -LATTICE) | (highest > LATTICE)


def nearest(block: Floats, centres: Floats) -> Labels:
    """The nearest centre of every column of the block; the first of equals."""
    labels: Labels = members(block, centres).argmax(axis=0)
    return labels


def members(block: Floats, centres: Floats) -> npt.NDArray[np.bool_]:
    """Which centre is nearest to which column of the block: exactly one for each, the first of equals.

    By |x - c|^2 without the |x|^2 that all centres share, halved. Centres are rounded to the lattice first, so these
    are sums of products of lattice values and exact in any order.
    """
    centres = to_lattice(centres)
    scores = product(centres, block)
    np.subtract((np.square(centres).sum(axis=1) / 2)[:, np.newaxis], scores, out=scores)
    closest: npt.NDArray[np.bool_] = scores <= scores.min(axis=0)
    if np.count_nonzero(closest) > block.shape[1]:
        closest &= np.cumsum(closest, axis=0) == 1
    return closest


def to_lattice(values: Floats) -> Floats:
    """Values in [-1, 1], each rounded to a multiple of `1 / LATTICE`."""
    rounded = values * LATTICE
    np.rint(rounded, out=rounded)
    rounded *= 1 / LATTICE
    return rounded
