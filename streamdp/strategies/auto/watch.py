"""Between releases one question at every point: has something happened that nobody foresaw?"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, log, pi, prod, sqrt
from typing import Any

import numpy as np

from streamdp.histograms import Counts
from streamdp.histograms.bands import Bands, Floats
from streamdp.privacy.exact import as_fraction, to_text
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.sparse_vector import SparseVector, noise_scales
from streamdp.strategies.statistic import L1Distance

SHARE = Fraction(1, 50)
"""The most that one watch costs, of epsilon."""
_GROUPS = 32
"""At most; fewer where axes cannot be halved."""
_FALSE = 0.05
"""The chance, about, that a watch cries for nothing while a span passes."""
_FORESEEN = 2.0
"""So many times the distance that is foreseen is nothing to cry for: the next release will tell."""
_VISIBLE = 0.25
"""A watch is worth its price when it sees that this part of everybody is elsewhere."""
_SEEN = 0.1
"""Where it would see less than this part of them, a cheaper one does."""
_CHEAPEST, _STEPS = 1 / 50, 2**10
"""The cheapest, of the dearest; and prices are multiples of this fraction of that, so that exact sums stay short."""


class Watch:
    """A sparse vector over the distance of the data from what is published, in some public groups of cells.

    Guarantee: one watch is a `SparseVector(epsilon, m, 1)`: all its answers, however many until it cries, cost
    `epsilon`. Groups are disjoint and what is published is public, so the distance has sensitivity `m`; thresholds are
    functions of what is published. A watch that cried has ended, and another is another charge.
    """

    def __init__(self, bands: Bands, epsilon: Fraction, sensitivity: int, span: int) -> None:
        """`epsilon` is the most that one costs."""
        self._sensitivity, self._span = sensitivity, span
        self._cost(epsilon)
        self._ended: list[int] = []
        """The points at which one cried, of a span."""
        levels = _levels(bands)
        self._distance = L1Distance(prod(bands.shape), bands.groups(levels)[0])
        self._energy: Floats = np.array([bands.energy_of(block) for block in bands.blocks(levels)])
        self._sparse_vector: SparseVector | None = None

    def _cost(self, epsilon: Fraction) -> None:
        self.epsilon = epsilon
        """What one costs."""
        of_threshold, of_query = noise_scales(epsilon, self._sensitivity, 1, False)
        self._margin = float(of_query) * log(self._span / _FALSE) + float(of_threshold) * log(1 / _FALSE)

    @property
    def is_on(self) -> bool:
        return self._sparse_vector is not None

    def fit(self, total: float) -> bool:
        """As cheap as it may be among so many records; or not at all, when it could see nothing through its noise."""
        if self._margin >= _VISIBLE * total:
            return False
        part = min(max(self._margin / (_SEEN * total), _CHEAPEST), 1.0)
        self._cost(self.epsilon * Fraction(ceil(part * _STEPS), _STEPS))
        return True

    def threshold(self, foreseen: Floats) -> int:
        """The distance that nobody foresaw, when the estimate has these variances in its bands."""
        return int(self._limits(self._energy @ foreseen))

    def heard_after(self, held: Floats, profile: Floats, foreseen: float, speeds: Floats, ages: Floats) -> Floats:
        """At each of the speeds, after which of the ages (points since a release) it would cry: infinite, if never.

        `held` are the variances of the estimate in its bands, `profile` how a speed is shared by them, and `foreseen`
        is the speed that thresholds know of.
        """
        begin, moving = (self._energy @ values for values in (held, profile))
        moved = ages[:, None] * moving
        heard = _distances(begin + speeds[:, None, None] * moved) > self._limits(begin + foreseen * moved)
        after: Floats = np.where(heard.any(axis=1), ages[heard.argmax(axis=1)], np.inf)
        return after

    def _limits(self, of_groups: Floats) -> Floats:
        return _FORESEEN * _distances(of_groups) + self._margin

    def begin(self, source: NoiseSource | None) -> None:
        """Spends `epsilon`."""
        self._sparse_vector = SparseVector(self.epsilon, self._sensitivity, 1, source=source)

    def cries(self, counts: Counts, published: Counts, threshold: int, time_point: int) -> bool:
        """Whether the data is that far away; then the watch has ended."""
        assert self._sparse_vector is not None  # it was begun
        is_far = self._sparse_vector.above(self._distance.between(counts, published), threshold)
        if is_far:
            self._sparse_vector = None
            self._ended = [point for point in self._ended if point > time_point - self._span] + [time_point]
        return is_far

    def ended_since(self, time_point: int) -> int:
        """How many have cried after that point, at most a span ago."""
        return sum(point > time_point for point in self._ended)

    def state(self) -> dict[str, Any]:
        """It holds threshold noise: as private as the input data."""
        state = None if self._sparse_vector is None else self._sparse_vector.state()
        return {"epsilon": to_text(self.epsilon), "ended": self._ended, "sparse_vector": state}

    def resume(self, state: Mapping[str, Any], source: NoiseSource | None) -> None:
        self._cost(as_fraction(state["epsilon"]))
        self._ended = list(state["ended"])
        if state["sparse_vector"] is not None:
            self._sparse_vector = SparseVector.from_state(state["sparse_vector"], source)


def _distances(of_groups: Floats) -> Floats:
    """How far off all groups, along the last axis, are to be expected together; from their variances."""
    distances: Floats = sqrt(2 / pi) * np.sqrt(of_groups).sum(axis=-1)
    return distances


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
