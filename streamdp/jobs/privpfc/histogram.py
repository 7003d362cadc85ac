"""What is released: a grid, its noisy counts, and what follows from them for free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Integers
from streamdp.domain import OUTSIDE
from streamdp.jobs.privpfc.taxonomy import Taxonomy
from streamdp.privacy.noise import NoiseSource, uniform_below


@dataclass(frozen=True)
class ClassHistogram:
    """Noisy counts of a grid: an axis for each attribute of it, in the order of `taxonomies`, then the classes.

    `counts` are integers of at least 0 that sum to `size`, the noisy or public number of records, at least 1.
    Everything here is computed from them, so it costs nothing.
    """

    taxonomies: tuple[Taxonomy, ...]
    levels: tuple[int, ...]
    classes: npt.NDArray[Any]
    counts: Integers
    size: int

    @property
    def grid(self) -> dict[str, int]:
        """The level of each attribute that the grid divides."""
        return {taxonomy.name: level for taxonomy, level in zip(self.taxonomies, self.levels, strict=True)}

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """What the nodes along each axis are called."""
        return {
            taxonomy.name: taxonomy.labels(level) for taxonomy, level in zip(self.taxonomies, self.levels, strict=True)
        }

    def rows(self) -> tuple[Integers, npt.NDArray[Any], Integers]:
        """The rows to train a learner on: nodes, class and weight of every cell and class with a count above 0."""
        *nodes, classes = np.nonzero(self.counts)
        return self._by_row(nodes, len(classes)), self.classes[classes], self.counts[(*nodes, classes)]

    def sample(self, n: int, source: NoiseSource | None = None) -> tuple[Integers, npt.NDArray[Any]]:
        """`n` rows drawn from the counts: nodes and class."""
        nodes, classes = self.sample_places(n, source)
        return nodes, self.classes[classes]

    def sample_places(self, n: int, source: NoiseSource | None) -> tuple[Integers, Integers]:
        """The same, a class as its place in `classes`."""
        ends = np.cumsum(self.counts)
        drawn = np.searchsorted(ends, uniform_below(self.size, n, source), side="right")
        *nodes, classes = np.unravel_index(drawn, self.counts.shape)
        return self._by_row(nodes, n), classes

    def _by_row(self, nodes: Sequence[npt.NDArray[np.intp]], rows: int) -> Integers:
        return np.array(nodes, dtype=np.int64).reshape(len(self.levels), rows).T

    def shares(self, nodes: Integers) -> npt.NDArray[np.float64]:
        """The share of each class in the cell of every row of nodes.

        A cell without counts, or a row outside of the domain, has the shares of all records together.
        """
        flat = self.counts.reshape(-1, len(self.classes)).astype(np.float64)
        overall = flat.sum(axis=0) / self.size
        totals = flat.sum(axis=1, keepdims=True)
        table = np.vstack([np.where(totals > 0, flat / np.maximum(totals, 1), overall), overall])
        outside = (nodes == OUTSIDE).any(axis=1)
        cells = np.zeros(len(nodes), dtype=np.int64)
        for axis, length in enumerate(self.counts.shape[:-1]):
            cells = cells * length + nodes[:, axis]
        cells[outside] = len(flat)
        return table[cells]


def with_total(noisy: Integers, total: int) -> Integers:
    """Non-negative integers nearest to the noisy ones in L2, of that total.

    Cutting at zero alone would leave all the noise that points up, thousands of records in empty cells. The projection
    onto the simplex subtracts one number from every count before it cuts.
    """
    flat = noisy.reshape(-1)
    descending = -np.sort(-flat)
    ranks = np.arange(1, len(flat) + 1)
    excess = np.cumsum(descending) - total
    active = int(np.flatnonzero(ranks * descending > excess).max(initial=0)) + 1
    quotient, remainder = divmod(int(excess[active - 1]), active)
    order = np.argsort(-flat, kind="stable")[:active]
    projected = np.zeros_like(flat)
    projected[order] = flat[order] - quotient
    # The whole units that are left are taken from the smallest of them.
    projected[order[active - remainder :]] -= 1
    return projected.reshape(noisy.shape)
