"""Histograms of the population, kept up to date by what leaves and what comes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamdp.domain import View
from streamdp.population.moved import CountsMoved

Columns = Sequence[npt.NDArray[np.unsignedinteger]]

# Adding up over all cells beats sorting the touched ones until cells outnumber them this much.
CELLS_PER_TOUCHED = 8


class Counts:
    """Exact counts of every view. Private."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = tuple(views)
        self._counts = {view.name: np.zeros(view.cells, np.int64) for view in self._views}
        if len(self._counts) != len(self._views):
            raise ValueError("histogram names must differ")

    def of(self, histogram: str) -> npt.NDArray[np.int64]:
        return self._counts[histogram].copy()

    def move(self, left: Columns, came: Columns) -> dict[str, CountsMoved]:
        """Old cells down, new cells up."""
        moved = {}
        for view in self._views:
            cells, changes = _net(view.cells, view.cell_of(left), view.cell_of(came))
            self._counts[view.name][cells] += changes
            moved[view.name] = CountsMoved(view.name, cells, changes)
        return moved


def _net(
    size: int, left: npt.NDArray[np.int64], came: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    if size <= CELLS_PER_TOUCHED * (len(left) + len(came)):
        change = np.bincount(came, minlength=size)
        change -= np.bincount(left, minlength=size)
        cells = np.flatnonzero(change)
        return cells, change[cells]
    # One word carries cell and direction, so that a plain sort does.
    words = np.concatenate([left << 1, (came << 1) | 1])
    words.sort()
    touched = words >> 1
    starts = np.flatnonzero(np.diff(touched, prepend=-1))
    if not len(starts):
        return starts, starts
    change = np.add.reduceat(2 * (words & 1) - 1, starts)
    some = np.flatnonzero(change)
    return touched[starts[some]], change[some]
