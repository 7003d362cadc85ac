"""Between releases one question at every point: has something happened that nobody foresaw?"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import log, pi, prod, sqrt
from typing import Any

import numpy as np

from streamdp.histograms import Counts
from streamdp.histograms.bands import Bands, Floats
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.sparse_vector import SparseVector, noise_scales
from streamdp.strategies.statistic import L1Distance

SHARE = Fraction(1, 50)
"""What one watch costs, of epsilon."""
_GROUPS = 32
"""At most; fewer where axes cannot be halved."""
_FALSE = 0.05
"""The chance, about, that a watch cries for nothing while a span passes."""
_FORESEEN = 2.0
"""So many times the distance that is foreseen is nothing to cry for: the next release will tell."""
_VISIBLE = 0.25
"""A watch is worth its price when it sees this part of everybody move."""


class Watch:
    """A sparse vector over the distance of the data from what is published, in some public groups of cells.

    Guarantee: one watch is a `SparseVector(epsilon, m, 1)`: all its answers, however many until it cries, cost
    `epsilon`. Groups are disjoint and what is published is public, so the distance has sensitivity `m`; thresholds are
    functions of what is published. A watch that cried has ended, and another is another charge.
    """

    def __init__(self, bands: Bands, epsilon: Fraction, sensitivity: int, span: int) -> None:
        self.epsilon = epsilon
        self.ended = 0
        """The point at which the last one cried; 0 when none has."""
        self._sensitivity = sensitivity
        levels = _levels(bands)
        self._distance = L1Distance(prod(bands.shape), bands.groups(levels)[0])
        self._energy: Floats = np.array([bands.energy_of(block) for block in bands.blocks(levels)])
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


def _levels(bands: Bands) -> list[int]:
    """How deep to cut each axis: the one with the longest blocks once more, as long as there are not too many."""
    levels = [0] * len(bands.shape)
    while True:
        lengths = [
            size / 2**level if level + 1 < most else 0.0
            for size, level, most in zip(bands.shape, levels, bands.levels, strict=True)
        ]
        longest = int(np.argmax(lengths))
        deeper = [level + (axis == longest) for axis, level in enumerate(levels)]
        if not lengths[longest] or bands.coarseness(deeper)[0] > _GROUPS:
            return levels
        levels = deeper
