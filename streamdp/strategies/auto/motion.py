"""How the data moves, learnt from releases alone: it may wander, go on as it went lately, or come back.

Everything here is a function of what was released: it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import Any

import numpy as np

from streamdp.histograms.bands import Bands, Floats

_COEFFICIENTS = 512
"""Only so many of the coarsest coefficients have models of their own: motion is in them, and a journal keeps them."""
_RETURNS = (0.5, 2.0, 8.0)
_TRENDS = (1.0, 4.0, 16.0)
"""How long a deviation or a trend lasts, in silences: those that releases can tell apart."""
_FIRST_PACE = 3.0
"""The length of a silence before there was one."""
_PACE = 0.3
"""The weight of the newest silence in their mean length."""
_WANDERS = 0.2
"""Of the motion of a trend, what is none; and of that around a mean, what moves the mean."""
_MEAN_WANDERS = 0.02
_FORGET = 0.8
"""What earlier evidence counts for, at every release."""
_MOST_COUNTED = 16.0
"""A band counts for no more coefficients than this: they are not independent."""
_BEFORE = (1.0, 0.3, 0.5)
"""How likely the data wanders, returns, or follows a trend, each of them, before any evidence."""


class Motion:
    """A bank of Kalman filters over the coarse coefficients: one for each way to move, averaged band by band.

    Each has two numbers for a coefficient, a level `a` and a deviation or velocity `b`, and their covariances for a
    band. A coefficient that wanders is `a` alone. One that returns is `a + b`, where `b` decays. One with a trend is
    `a`, which moves by `b`, which decays. A band believes each of them by how well it foresaw the last releases.
    """

    def __init__(self, bands: Bands) -> None:
        self._bands = bands
        self.coarse = bands.coarsest(_COEFFICIENTS)
        self._band_of = bands.band_of(self.coarse)
        returns, trends = np.array(_RETURNS), np.array(_TRENDS)
        self._lasts: Floats = np.concatenate([[1.0], returns, trends])[:, None]
        kinds = np.repeat([0, 1, 2], [1, returns.size, trends.size])
        self._returns, self._trends = (kinds == 1)[:, None], (kinds == 2)[:, None]
        self._before: Floats = np.log(np.array(_BEFORE))[kinds][:, None]
        number = kinds.size
        self._levels: Floats = np.zeros((number, self.coarse.size))
        self._others: Floats = np.zeros((number, self.coarse.size))
        self._covariances: Floats = np.zeros((3, number, bands.number))
        self._evidence: Floats = np.zeros((number, bands.number))
        self._pace = log(_FIRST_PACE)
        self._is_first = True

    def begin(self, coefficients: Floats, variances: Floats, speeds: Floats) -> None:
        """After the first release: the estimate of the coarse coefficients, and of every band its variance and speed.

        Speed is the variance that a time point adds.
        """
        lasts = self._lasts * exp(self._pace)
        self._levels = np.tile(coefficients, (len(lasts), 1))
        self._others = np.zeros_like(self._levels)
        around = self._returns * speeds * lasts / 2
        self._covariances = np.stack([variances + around, -around, around + self._trends * speeds / lasts])

    def foreseen(self, points: float) -> Floats:
        """The coarse coefficients so many points from the last release."""
        return self._mixed(self._reach(np.array([points])))

    def held(self, silence: int) -> Floats:
        """The same, on average over a silence."""
        return self._mixed(self._reach(np.arange(silence, dtype=np.float64)))

    def correct(self, noisy: Floats, noise: Floats, speeds: Floats, gap: int) -> None:
        """After a release `gap` points after the one before; of every band the variance of its noise, and its speed."""
        self._pace = log(gap) if self._is_first else self._pace + _PACE * (log(gap) - self._pace)
        self._is_first = False
        decays, moves = self._decays(float(gap)), self._moves(float(gap))
        covariances = self._grown(decays, moves, speeds, gap)
        self._levels = self._levels + moves * self._others
        self._others = decays * self._others
        news = noisy - self._levels - self._returns * self._others
        of_level, of_both, of_other = covariances
        with_level, with_other = of_level + self._returns * of_both, of_both + self._returns * of_other
        expected = with_level + self._returns * with_other + noise
        counted = np.minimum(self._bands.sizes, _MOST_COUNTED)
        # Of all models relative to what wandering would let expect: the better forecast, not the bolder one.
        self._evidence = _FORGET * self._evidence - counted * self._mean_square(news) / expected[0]
        self._levels = self._levels + (with_level / expected)[:, self._band_of] * news
        self._others = self._others + (with_other / expected)[:, self._band_of] * news
        self._covariances = covariances - np.stack([with_level**2, with_level * with_other, with_other**2]) / expected

    def _grown(self, decays: Floats, moves: Floats, speeds: Floats, gap: int) -> Floats:
        """The covariances at the next release. Whatever the model, `gap` points move a coefficient as fast as told."""
        of_level, of_both, of_other = self._covariances
        lasts = self._lasts * exp(self._pace)
        moved = gap * speeds
        around = self._returns * moved / (2 * (1 - decays) + ~self._returns)
        path = 2 * lasts**2 * (gap / lasts - 1 + np.exp(-gap / lasts))
        velocity = self._trends * (1 - _WANDERS) * moved / path
        wanders = np.where(self._trends, _WANDERS, np.where(self._returns, _MEAN_WANDERS, 1.0))
        along = lasts**2 * (2 * gap / lasts - 3 + 4 * decays - decays**2)
        return np.stack(
            [
                of_level + 2 * moves * of_both + moves**2 * of_other + velocity * along + wanders * moved,
                decays * (of_both + moves * of_other) + velocity * lasts * (1 - decays) ** 2,
                decays**2 * of_other + (velocity + around) * (1 - decays**2),
            ]
        )

    def slopes(self) -> Floats:
        """The mean square of the velocities of each band, over a silence as long as those before."""
        pace = exp(self._pace)
        slope = (self.foreseen(pace) - self.foreseen(0)) / pace
        return self._mean_square(slope[None])[0]

    def error(self, silence: int) -> Floats:
        """The variance in each band, on average over a silence, of what `held` foresees for all of it.

        The coefficients move on meanwhile, and the models differ.
        """
        reach = self._reach(np.array([0.0, (silence - 1) / 2, float(silence - 1)]))
        begin, middle, end = (self._each(reach[:, place, None]) for place in range(3))
        weights = self._weights()
        mean = self._mix(middle)
        differ = (weights * self._mean_square(middle - mean)).sum(axis=0)
        swing = self._mean_square((self._mix(end) - self._mix(begin))[None])[0]
        error: Floats = differ + swing / 12
        return error

    def _decays(self, points: float) -> Floats:
        """What is left of `b` after so many points."""
        left: Floats = (self._returns | self._trends) * np.exp(-points / (self._lasts * exp(self._pace)))
        return left

    def _moves(self, points: float) -> Floats:
        """How far `b` moves `a` meanwhile."""
        lasts = self._lasts * exp(self._pace)
        moves: Floats = self._trends * lasts * (1 - np.exp(-points / lasts))
        return moves

    def _reach(self, points: Floats) -> Floats:
        """What `b` counts for in the coefficient, so many points ahead: models by points."""
        lasts = self._lasts * exp(self._pace)
        left = np.exp(-points / lasts)
        reach: Floats = self._returns * left + self._trends * lasts * (1 - left)
        return reach

    def _each(self, reach: Floats) -> Floats:
        each: Floats = self._levels + reach * self._others
        return each

    def _mixed(self, reach: Floats) -> Floats:
        return self._mix(self._each(reach.mean(axis=1, keepdims=True)))

    def _mix(self, each: Floats) -> Floats:
        mixed: Floats = (self._weights()[:, self._band_of] * each).sum(axis=0)
        return mixed

    def _weights(self) -> Floats:
        logs = self._before + self._evidence
        weights = np.exp(logs - logs.max(axis=0))
        normal: Floats = weights / weights.sum(axis=0)
        return normal

    def _mean_square(self, values: Floats) -> Floats:
        """Models by bands; bands without coarse coefficients have none."""
        sums = [np.bincount(self._band_of, row**2, self._bands.number) for row in values]
        mean: Floats = np.array(sums) / self._bands.sizes
        return mean

    def state(self) -> dict[str, Any]:
        return {
            "levels": self._levels.tolist(),
            "others": self._others.tolist(),
            "covariances": self._covariances.tolist(),
            "evidence": self._evidence.tolist(),
            "pace": self._pace,
            "is_first": self._is_first,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        self._levels, self._others, self._covariances, self._evidence = (
            np.array(state[name], np.float64) for name in ("levels", "others", "covariances", "evidence")
        )
        self._pace, self._is_first = state["pace"], state["is_first"]
