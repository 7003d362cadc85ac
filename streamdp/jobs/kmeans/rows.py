"""The private rows, a block at a time: clamped to public bounds, scaled to [-1, 1], rounded to a public lattice.

What becomes of a row depends on that row and on public facts only. In floating point that takes care: a matrix product
may round the same row differently at another place in the batch, and a near tie between two centres would then depend
on who else is there. Rows and centres are therefore multiples of `1 / LATTICE`, whose sums, and sums of products,
are exact in float64, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.jobs.base import ParameterError
from streamdp.jobs.kmeans.bounds import Bounds
from streamdp.jobs.kmeans.product import product
from streamdp.jobs.values import float_table

LATTICE = 2**20
# A block's columns stay in the processor's cache; memory never grows with rows times clusters.
BLOCK = 8192

Labels = npt.NDArray[np.int64]


def as_table(X: Any, attributes: int | None) -> npt.NDArray[Any]:
    """The data as a two-dimensional numeric array, without a copy where it is one already.

    What is no number becomes NaN, one value at a time: an error would tell that somebody's value is odd.
    """
    table = float_table(X, attributes)
    if attributes is not None and table.shape[1] != attributes:
        raise ParameterError(f"X has {table.shape[1]} columns, but the bounds are for {attributes}")
    return table


class Table(Protocol):
    """Rows of numbers that are read in slices: an array, or what makes one of a few rows at a time."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> npt.NDArray[Any]: ...


class Rows:
    """A table and its bounds. Rows with a NaN are left out; values outside the bounds are moved to the nearer one.

    Every pass reads the table anew, block by block, and keeps nothing: memory does not depend on the number of rows.
    """

    def __init__(self, table: Table, bounds: Bounds) -> None:
        self._table = table
        self._axes = bounds.axes
        self._middle = bounds.middle[self._axes, np.newaxis]
        self._factor = LATTICE / bounds.half_width[self._axes, np.newaxis]
        self.attributes = len(self._axes)

    def blocks(self) -> Iterator[Floats]:
        """Attribute by attribute, the rows without a NaN."""
        for block, whole in self._scaled():
            yield block if whole.all() else block[:, whole]

    def count(self) -> int:
        return sum(block.shape[1] for block in self.blocks())

    def labels(self, centres: Floats) -> Labels:
        """The nearest centre of every row, -1 for a row with a NaN."""
        labels = [np.zeros(0, dtype=np.int64)]
        for block, whole in self._scaled():
            labels.append(np.full(len(whole), -1, dtype=np.int64))
            labels[-1][whole] = nearest(block[:, whole], centres)
        return np.concatenate(labels)

    def _scaled(self) -> Iterator[tuple[Floats, npt.NDArray[np.bool_]]]:
        """Block by block, attribute by attribute; and which rows have no NaN."""
        length, attributes = self._table.shape
        for start in range(0, length, BLOCK):
            part = self._table[start : start + BLOCK].T
            if self.attributes < attributes:
                part = part[self._axes]
            block: Floats = np.empty(part.shape)
            # What overflows lies outside the bounds, and a NaN stays one.
            with np.errstate(over="ignore", invalid="ignore"):
                np.subtract(part, self._middle, out=block)
                block *= self._factor
            np.rint(block, out=block)
            np.clip(block, -LATTICE, LATTICE, out=block)
            block *= 1 / LATTICE
            whole: npt.NDArray[np.bool_] = np.logical_not(np.isnan(block).any(axis=0))
            yield block, whole


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
