"""How far the current histogram is from the last released one."""

from __future__ import annotations

import operator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError

Number = TypeVar("Number", np.int64, np.float64)
Groups = int | npt.NDArray[np.int64] | None


class L1Distance:
    """The L1 distance of counts, cell by cell or summed over disjoint public groups of cells.

    Sensitivity: exactly that of the counts, `m`, because the released histogram is public and a user's records lie in
    groups that do not overlap. Groups lower the noise floor: the noise of a release adds up over all cells in the
    distance of cells, and averages out inside a group.

    `groups` is a number of groups of neighbouring cells in flat order, or an array that names the group of every cell.
    """

    def __init__(self, cells: int, groups: Groups = None) -> None:
        self._cells = cells
        self._order: npt.NDArray[np.intp] | None = None
        self._starts: npt.NDArray[np.intp] | None = None
        self.groups: int | npt.NDArray[np.int64] | None = None
        if groups is None:
            return
        if isinstance(groups, np.ndarray | list | tuple):
            of_cell = np.asarray(groups)
            if of_cell.shape != (cells,) or not np.issubdtype(of_cell.dtype, np.integer):
                raise ConfigurationError("groups must name one group, an integer, for every cell in flat order")
            self.groups = of_cell.astype(np.int64)
            self._order = np.argsort(of_cell, kind="stable")
            self._starts = np.unique(of_cell[self._order], return_index=True)[1]
            return
        self.groups = operator.index(groups)
        if not 1 <= self.groups <= cells:
            raise ConfigurationError(f"groups must be between 1 and the number of cells, {cells}")
        self._starts = np.array([group * cells // self.groups for group in range(self.groups)], dtype=np.intp)

    def between(self, counts: Counts, released: Counts) -> int:
        """The distance, an integer. It is private: only a noisy comparison of it may leave."""
        difference = self.grouped(counts - released)
        return int(np.abs(difference, out=difference).sum())

    def grouped(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """The values of cells summed within each group; unchanged where there are none."""
        if self._order is not None:
            values = values[self._order]
        if self._starts is not None:
            values = np.add.reduceat(values, self._starts)
        return values
