"""Between releases one question at every point: has something happened that nobody foresaw?"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, log, pi, prod, sqrt
from typing import Any

import numpy as np
from scipy.special import ndtr

from streamdp.arrays import Counts, Floats
from streamdp.histograms.bands import Bands
from streamdp.privacy.exact import as_fraction, to_text
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.sparse_vector import SparseVector, noise_scales
from streamdp.strategies.statistic import L1Distance

SHARE = Fraction(1, 64)
"""The most that one watch costs, of epsilon."""
_GROUPS = 32
"""At most; fewer where axes cannot be halved."""
_FALSE = 0.3
"""The chance, about, that a watch cries for nothing while a span passes."""
_SEEN = 0.1
"""A watch is as cheap as lets it see that this part of everybody is elsewhere, and worth nothing where it cannot."""
_CONFIRMED = 0.5
"""A cry is confirmed by a release in which this part of the threshold is elsewhere, beyond what noise shows."""
_CHEAPEST, _STEPS = 1 / 40, 2**10
"""The cheapest, of the dearest; and prices are multiples of this fraction of that, so that exact sums stay short."""
_TINY = 1e-9
_LARGEST = 2.0**53
"""Slack is no larger: it would overflow the integers it is taken from, and one record could then move a sum by all."""


class Watch:
    """A sparse vector over how far the data is from what is published, in some public groups of cells.

    What it asks is the sum, over the groups, of what their counts differ from those published beyond a slack: noise
    alone stays within the slack in most groups, while one group that moved by much, or many that moved by more than
    noise, are seen.

    Guarantee: one watch is a `SparseVector(epsilon, m, 1)`: all its answers, however many until it cries, cost
    `epsilon`. Groups are disjoint, and what is published and the slack are public; a record in a group moves that
    group's part of the sum by at most one, and no other. So the sum has sensitivity `m`. The threshold is a constant. A
    watch that cried has ended, and another is another charge.
    """

    def __init__(self, bands: Bands, epsilon: Fraction, sensitivity: int, span: int) -> None:
        """`epsilon` is the most that one costs."""
        self._sensitivity, self._span = sensitivity, span
        self._cost(epsilon)
        self.sees = False
        """Whether there are enough records for it to see any move."""
        self._ended: list[int] = []
        """The points at which one cried, of a span."""
        self._confirmed: list[int] = []
        """Those at which the release that answered saw a reason."""
        levels = _levels(bands)
        self._distance = L1Distance(prod(bands.shape), bands.groups(levels)[0])
        self._energy: Floats = np.array([bands.energy_of(block) for block in bands.blocks(levels)])
        self._sparse_vector: SparseVector | None = None

    def _cost(self, epsilon: Fraction) -> None:
        self.epsilon = epsilon
        """What one costs."""
        of_threshold, of_query = noise_scales(epsilon, self._sensitivity, 1, False)
        self.threshold = ceil(float(of_query) * log(self._span / _FALSE) + float(of_threshold) * log(1 / _FALSE))
        """It cries when so many records are elsewhere, beyond the slack."""

    @property
    def is_on(self) -> bool:
        return self._sparse_vector is not None

    def fit(self, total: float) -> None:
        """Makes it as cheap as it may be among so many records, if it can see anything through its noise at all."""
        self.sees = self.threshold <= _SEEN * total
        if self.sees:
            part = max(self.threshold / (_SEEN * total), _CHEAPEST)
            self._cost(self.epsilon * Fraction(ceil(part * _STEPS), _STEPS))

    def slack(self, variances: Floats) -> Floats:
        """Of each group, what is nothing to cry for, when the bands have these variances: a standard deviation."""
        return np.minimum(np.rint(np.sqrt(self._energy @ variances)), _LARGEST)

    def heard_after(self, held: Floats, profile: Floats, slack: Floats, speeds: Floats, ages: Floats) -> Floats:
        """At each of the speeds, after which of the ages (points since a release) it would cry: infinite, if never.

        `held` are the variances of the estimate in its bands, and `profile` says how a speed is shared by them.
        """
        begin, moving = (self._energy @ values for values in (held, profile))
        deviations = np.sqrt(begin + speeds[:, None, None] * ages[:, None] * moving) + _TINY
        heard = _beyond(deviations, slack) > self.threshold
        after: Floats = np.where(heard.any(axis=1), ages[heard.argmax(axis=1)], np.inf)
        return after

    def begin(self, source: NoiseSource | None) -> None:
        """Spends `epsilon`."""
        self._sparse_vector = SparseVector(self.epsilon, self._sensitivity, 1, source=source)

    def cries(self, counts: Counts, published: Counts, slack: Floats, time_point: int) -> bool:
        """Whether the data is that far away; then the watch has ended."""
        assert self._sparse_vector is not None  # it was begun
        differ = np.abs(self._distance.grouped(counts - published))
        beyond = np.maximum(differ - slack.astype(np.int64), 0)
        is_far = self._sparse_vector.above(int(beyond.sum()), self.threshold)
        if is_far:
            self._sparse_vector = None
            self._ended = self._of_a_span(self._ended, time_point)
        return is_far

    def confirm(self, noisy: Counts, published: Counts, slack: Floats, variances: Floats, time_point: int) -> bool:
        """Whether a release sees what it cried for, which has these variances itself in the bands."""
        beyond = np.maximum(np.abs(self._distance.grouped(noisy - published)) - slack, 0).sum()
        by_chance = _beyond(np.sqrt(self._energy @ variances) + _TINY, slack)
        is_seen = bool(beyond - by_chance >= _CONFIRMED * self.threshold)
        if is_seen:
            self._confirmed = self._of_a_span(self._confirmed, time_point)
        return is_seen

    def _of_a_span(self, points: list[int], time_point: int) -> list[int]:
        return [point for point in points if point > time_point - self._span] + [time_point]

    def ended_since(self, time_point: int) -> int:
        """How many have cried after that point, at most a span ago."""
        return sum(point > time_point for point in self._ended)

    def confirmed_since(self, time_point: int) -> int:
        """The same of those that a release confirmed."""
        return sum(point > time_point for point in self._confirmed)

    def state(self) -> dict[str, Any]:
        """It holds threshold noise: as private as the input data."""
        state = None if self._sparse_vector is None else self._sparse_vector.state()
        return {
            "sees": self.sees,
            "epsilon": to_text(self.epsilon),
            "ended": self._ended,
            "confirmed": self._confirmed,
            "sparse_vector": state,
        }

    def resume(self, state: Mapping[str, Any], source: NoiseSource | None) -> None:
        self._cost(as_fraction(state["epsilon"]))
        self.sees = state["sees"]
        self._ended, self._confirmed = list(state["ended"]), list(state["confirmed"])
        if state["sparse_vector"] is not None:
            self._sparse_vector = SparseVector.from_state(state["sparse_vector"], source)


def _beyond(deviations: Floats, slack: Floats) -> Floats:
    """What is to be expected beyond the slack, of all groups together, along the last axis; from normal deviations."""
    relative = slack / deviations
    beyond = np.exp(-(relative**2) / 2) / sqrt(2 * pi) - relative * ndtr(-relative)
    total: Floats = 2 * (deviations * beyond).sum(axis=-1)
    return total


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
