"""The private records as counts: distinct rows of leaves and class, each with how often it occurs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Integers
from streamdp.jobs.privpfc.taxonomy import Taxonomy

_LARGEST_KEY = 2**62


@dataclass(frozen=True)
class Records:
    """`nodes[a][r]` is the node of distinct row `r` of attribute `a` on its finest useful level, `finest[a]`."""

    taxonomies: Sequence[Taxonomy]
    finest: tuple[int, ...]
    nodes: tuple[Integers, ...]
    labels: Integers
    counts: Integers
    classes: int

    @classmethod
    def distinct(
        cls, taxonomies: Sequence[Taxonomy], leaves: Sequence[Integers], labels: Integers, classes: int, max_cells: int
    ) -> Records:
        """Rows that no grid of at most `max_cells` cells can tell apart become one."""
        finest = tuple(int(np.searchsorted(taxonomy.nodes, max_cells, side="right")) - 1 for taxonomy in taxonomies)
        columns = [
            taxonomy.nodes_of_leaves(level)[column]
            for taxonomy, level, column in zip(taxonomies, finest, leaves, strict=True)
        ]
        sizes = [taxonomy.nodes[level] for taxonomy, level in zip(taxonomies, finest, strict=True)]
        keys, span = labels, classes
        for column, size in zip(columns, sizes, strict=True):
            if span * size > _LARGEST_KEY:
                keys = np.unique(keys, return_inverse=True)[1].reshape(-1)
                span = len(labels)
            keys = keys * size + column
            span *= size
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        return cls(
            taxonomies,
            finest,
            tuple(column[first] for column in columns),
            labels[first],
            counts.astype(np.int64),
            classes,
        )

    def histogram(self, attributes: Iterable[int], levels: Iterable[int]) -> Integers:
        """The exact counts: an axis for each attribute at its level, then one for the classes."""
        pairs = list(zip(attributes, levels, strict=True))
        shape = (*(self.taxonomies[attribute].nodes[level] for attribute, level in pairs), self.classes)
        small = math.prod(shape) < 2**31
        cells: Integers = np.zeros(len(self.labels), dtype=np.int32 if small else np.int64)
        for (attribute, level), size in zip(pairs, shape, strict=False):
            cells *= size
            cells += self._nodes_on(attribute, level)
        cells *= self.classes
        cells += self._labels
        counts = np.bincount(cells, weights=self._weights, minlength=math.prod(shape))
        return counts.astype(np.int64).reshape(shape)

    def _nodes_on(self, attribute: int, level: int) -> npt.NDArray[np.unsignedinteger]:
        """The nodes on a level, made once: most grids need the same few."""
        known = self._made.get((attribute, level))
        if known is None:
            taxonomy = self.taxonomies[attribute]
            finest_starts = taxonomy.starts[self.finest[attribute]]
            table = taxonomy.nodes_of_leaves(level)[finest_starts]
            known = table.astype(np.min_scalar_type(taxonomy.nodes[level] - 1))[self.nodes[attribute]]
            self._made[attribute, level] = known
        return known

    @cached_property
    def _made(self) -> dict[tuple[int, int], npt.NDArray[np.unsignedinteger]]:
        return {}

    @cached_property
    def _labels(self) -> npt.NDArray[np.unsignedinteger]:
        return self.labels.astype(np.min_scalar_type(self.classes))

    @cached_property
    def _weights(self) -> npt.NDArray[np.float64]:
        """Floats, as numpy counts with; sums of integers are exact in them far beyond any number of records."""
        return self.counts.astype(np.float64)
