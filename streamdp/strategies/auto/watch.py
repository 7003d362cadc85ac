"""Between releases one question at every point: has something happened that nobody foresaw?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import log, pi, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.histograms import Counts
from streamdp.histograms.bands import Bands, Floats
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.sparse_vector import SparseVector, noise_scales
from streamdp.strategies.statistic import L1Distance

SHARE = Fraction(1, 50)
"""What one watch costs, of epsilon."""
_GROUPS = 16
_FALSE = 0.05
"""The chance, about, that a watch cries for nothing while a span passes."""
_FORESEEN = 2.0
"""So many times the distance that is foreseen is nothing to cry for: the next release will tell."""
_VISIBLE = 0.25
"""A watch is worth its price when it sees this part of everybody move."""


class Watch:
    """A sparse vector over the distance of the data from what is published, in about 16 public groups of cells.

    Guarantee: one watch is a `SparseVector(epsilon, m, 1)`: all its answers, however many until it cries, cost
    `epsilon`. Groups are disjoint and what is published is public, so the distance has sensitivity `m`; thresholds are
    functions of what is published. A watch that cried has ended, and another is another charge.
    """

    def __init__(self, bands: Bands, epsilon: Fraction, sensitivity: int, span: int) -> None:
        self.epsilon = epsilon
        self.ended = 0
        """The point at which the last one cried; 0 when none has."""
        self._sensitivity = sensitivity
        parts = _parts(bands.shape)
        self._distance = L1Distance(prod(bands.shape), _group_of_cells(bands.shape, parts))
        self._energy: Floats = np.array([bands.energy_of(group) for group in _groups(bands.shape, parts)])
        of_threshold, of_query = noise_scales(epsilon, sensitivity, 1, False)
        self._margin = float(of_query) * log(span / _FALSE) + float(of_threshold) * log(1 / _FALSE)
        self._sparse_vector: SparseVector | None = None

    @property
    def is_on(self) -> bool:
        return self._sparse_vector is not None

    def is_worth_while(self, total: float) -> bool:
        """Whether it could see anything through its noise among so many records."""
        return self._margin < _VISIBLE * total

    def threshold(self, foreseen: Floats) -> int:
        """The distance that nobody foresaw, when the estimate has these variances in its bands."""
        distance = sqrt(2 / pi) * float(np.sqrt(self._energy @ foreseen).sum())
        return int(_FORESEEN * distance + self._margin)

    def begin(self, source: NoiseSource | None) -> None:
        """Spends `epsilon`."""
        self._sparse_vector = SparseVector(self.epsilon, self._sensitivity, 1, source=source)

    def cries(self, counts: Counts, published: Counts, threshold: int, time_point: int) -> bool:
        """Whether the data is that far away; then the watch has ended."""
        assert self._sparse_vector is not None  # it was begun
        is_far = self._sparse_vector.above(self._distance.between(counts, published), threshold)
        if is_far:
            self._sparse_vector, self.ended = None, time_point
        return is_far

    def state(self) -> dict[str, Any]:
        """It holds threshold noise: as private as the input data."""
        state = None if self._sparse_vector is None else self._sparse_vector.state()
        return {"ended": self.ended, "sparse_vector": state}

    def resume(self, state: Mapping[str, Any], source: NoiseSource | None) -> None:
        self.ended = state["ended"]
        if state["sparse_vector"] is not None:
            self._sparse_vector = SparseVector.from_state(state["sparse_vector"], source)


def _parts(shape: tuple[int, ...]) -> list[int]:
    """Into how many parts to cut each axis: the one with the longest parts is halved until there are enough groups."""
    parts = [1] * len(shape)
    while prod(parts) < _GROUPS:
        lengths = [size / part if size >= 2 * part else 0.0 for size, part in zip(shape, parts, strict=True)]
        longest = int(np.argmax(lengths))
        if not lengths[longest]:
            break
        parts[longest] *= 2
    return parts


def _edges(size: int, parts: int) -> npt.NDArray[np.int64]:
    edges: npt.NDArray[np.int64] = np.arange(parts + 1) * size // parts
    return edges


def _groups(shape: tuple[int, ...], parts: list[int]) -> Iterator[list[slice]]:
    edges = [_edges(size, number) for size, number in zip(shape, parts, strict=True)]
    for place in np.ndindex(*parts):
        yield [slice(int(along[i]), int(along[i + 1])) for along, i in zip(edges, place, strict=True)]


def _group_of_cells(shape: tuple[int, ...], parts: list[int]) -> npt.NDArray[np.int64]:
    groups = np.empty(shape, np.int64)
    for number, group in enumerate(_groups(shape, parts)):
        groups[tuple(group)] = number
    return groups.reshape(-1)
