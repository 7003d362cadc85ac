"""When to release next, and with how much: the schedule whose error, as far as anybody can tell, is the least.

A schedule is an interval between releases. With what releases taught about drift, the error to expect under it is a
matter of arithmetic; it is averaged over what the drift may be. All of it is public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamdp.arrays import Floats
from streamdp.histograms.bands import Bands
from streamdp.histograms.variance import laplace_variances
from streamdp.strategies.auto.estimate import Estimate
from streamdp.strategies.auto.watch import Watch

# Every one at first, then each about a fifth longer than the one before.
_INTERVALS = np.unique(np.round(1.2 ** np.arange(90)))
_EVEN = 12
_GROWTH = 3
"""The silence before a release is at most so many times the one before it: long ones must be earned."""
_FIRST_GAP = 3
"""The longest first one: one release tells nothing of drift, and the next point hardly more."""
_BOOSTS = (1.0, 2.0, 4.0)
"""How many shares the next release may take, when the schedule would have it later than it comes."""
_WORTH = 0.04
"""How much better, relatively, twice the share must be."""
_SAME = 0.003
"""Schedules that differ by less are equally good, and the one with fewer releases is taken."""
_MISSED = 0.1
"""The part of what is foreseen to move in a silence, in squares, that is counted on to be foreseen wrongly."""
_SCENARIOS = 7
_EXACT = 4
"""Releases looked at one by one; those after them by the formula for many."""
_GROUPS = 24
_FINEST = 1e-7


def intervals(span: int, fewest: int) -> Floats:
    """Those worth a thought when at least `fewest` releases lie in the span.

    Among them are the shortest that make so many releases in a span and no more, for a few releases: a window cannot
    tell them from longer ones.
    """
    even = np.ceil(span / np.arange(fewest, max(fewest, _EVEN) + 1))
    return np.unique(np.concatenate([_INTERVALS[even[0] >= _INTERVALS], even]))


@dataclass(frozen=True)
class Next:
    """The next release: how many points from now, with what part of epsilon, and the interval it is the first of."""

    gap: int
    epsilon: float
    interval: int


@dataclass(frozen=True)
class Means:
    """What there is to spend, in the points `ahead`.

    `shares(gap, interval, boost)` is the epsilon of the next release and of later ones;
    `granted(when, interval, before, wanted)` is what a release `when` points from now gets of what it wants, after
    those `before` it, which lie `interval` points apart. No release gets less than a tiny part of `least`.
    """

    ahead: float
    intervals: Floats
    least: float
    sensitivity: float
    shares: Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]
    granted: Callable[[Floats, Floats, list[Floats], Floats], Floats]


def longest_gap(last: int, meant: int) -> int:
    """How long the next silence may be, after one of `last` points, or none. A cry takes away nothing that was `meant`.

    While somebody watches, a silence that was earned need not be earned again.
    """
    return max(_GROWTH * last, meant) if last else _FIRST_GAP


def next_release(
    bands: Bands, estimate: Estimate, longest: int, means: Means, watch: Watch | None, slack: Floats
) -> Next:
    """The best schedule's next release, after a silence that is no longer than the `longest`.

    A `watch` that can be had makes long silences less of a risk: at a speed at which it would cry, a schedule with a
    longer interval is no worse than the one with that interval.
    """
    drift = estimate.drift
    assert drift is not None
    limit = float(longest)
    intervals = means.intervals
    interval, boost = (values.reshape(-1) for values in np.meshgrid(intervals, np.array(_BOOSTS), indexing="ij"))
    allowed = (boost == 1) | (interval >= min(limit, intervals[-1]))
    interval, boost = interval[allowed], boost[allowed]
    gap = np.minimum(np.minimum(interval, limit), means.ahead)
    epsilon, later = means.shares(gap, interval, boost)
    energy, profile, variances, factors = _grouped(
        bands, drift.profile, estimate.held(), estimate.left * estimate.factors
    )
    trend = _MISSED * float(bands.energy @ estimate.motion.slopes())
    speeds = drift.scenarios(_SCENARIOS)
    costs = _Costs(energy, profile, variances, factors, speeds, trend, means)
    errors = costs.mean_error(gap, interval, epsilon, later)
    if watch is not None:
        heard = watch.heard_after(estimate.held(), drift.profile, slack, speeds, means.intervals)
        for row, after in zip(errors, heard, strict=True):
            longer = interval > after
            row[longer] = np.minimum(row[longer], row[(interval == after) & (boost == 1)])
    regret = (errors / errors.min(axis=1, keepdims=True)).mean(axis=0) * (1 + _WORTH * np.log2(boost))
    best = np.flatnonzero(regret <= regret.min() + _SAME)[-1]
    return Next(int(gap[best]), float(epsilon[best]), int(interval[best]))


def _grouped(bands: Bands, profile: Floats, *more: Floats) -> tuple[Floats, ...]:
    """Bands of like drift together, which is all that matters here: their energies, and the means of the rest."""
    energy = bands.energy
    if bands.number <= _GROUPS:
        return energy, profile, *more
    order = np.argsort(profile)
    upto = np.cumsum(energy[order])
    group = np.minimum((upto / upto[-1] * _GROUPS).astype(np.intp), _GROUPS - 1)
    total = np.bincount(group, energy[order], _GROUPS).astype(np.float64)
    used = total > 0
    means = (np.bincount(group, (energy * values)[order], _GROUPS)[used] / total[used] for values in (profile, *more))
    return total[used], *means


class _Costs:
    """The mean error of a random range over the points ahead, for many schedules (columns) and speeds (rows)."""

    def __init__(
        self,
        energy: Floats,
        profile: Floats,
        variances: Floats,
        factors: Floats,
        speeds: Floats,
        trend: float,
        means: Means,
    ) -> None:
        self._energy, self._variances, self._factors = energy, variances, factors
        self._trend, self._means = trend, means
        self._drift = profile * speeds[:, None, None]
        self._speed = speeds[:, None]

    def mean_error(self, gap: Floats, interval: Floats, epsilon: Floats, later: Floats) -> Floats:
        ahead, drift, energy = self._means.ahead, self._drift, self._energy
        total = self._held(float(energy @ self._variances) + self._speed, gap - 1.0)
        left = ahead - (gap - 1.0)
        variances: Floats = self._variances
        spent: list[Floats] = []
        since = gap
        for number in range(_EXACT):
            wanted = epsilon if number == 0 else later
            granted = self._means.granted(gap + number * interval, interval, spent, wanted)
            spent.append(granted)
            noise = self._noise(granted)
            variances = variances + drift * since[:, None]
            variances = variances * noise / (variances + noise)
            points = np.clip(np.minimum(interval, left), 0, None)
            total = total + self._held(variances @ energy, points)
            left = left - points
            since = interval
        if (left > 0).any():
            total = total + self._many(variances, interval, later, np.maximum(left, 0))
        return total / ahead

    def _many(self, variances: Floats, interval: Floats, later: Floats, left: Floats) -> Floats:
        """The variance under many releases follows a Riccati equation, whose solution is a hyperbolic tangent."""
        noise = self._noise(later)
        added = self._drift * interval[:, None]
        steady = np.sqrt(added * noise + added**2 / 4)
        begin = variances + added / 2
        total: Floats = np.zeros(())
        for part in (0.1, 0.3, 0.5, 0.7, 0.9):
            tangent = np.tanh((part * left / interval)[:, None] * added / steady)
            now = steady * (begin + steady * tangent) / (steady + begin * tangent)
            total = total + left / 5 * self._held(np.maximum(now - added / 2, 0) @ self._energy, interval) / interval
        return total

    def _held(self, variance: Floats | float, points: Floats) -> Floats:
        """The sum of standard deviations over `points` points, from `variance` on: the integral.

        What is missed of a trend counts as if an estimate for the middle of a silence were off by it at both ends.
        """
        variance = variance + self._trend * points**2 / 12
        speed = np.maximum(self._speed, 1e-9 * np.asarray(variance))
        begin = np.maximum(variance - speed / 2, 0)
        end = variance + speed * np.maximum(points - 0.5, 0)
        held: Floats = 2 / (3 * speed) * (end**1.5 - begin**1.5) * (points > 0)
        return held

    def _noise(self, epsilon: Floats) -> Floats:
        rate = np.maximum(epsilon, self._means.least * _FINEST) / self._means.sensitivity
        noise: Floats = laplace_variances(rate)[:, None] * self._factors
        return noise
