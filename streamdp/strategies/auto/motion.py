"""How the data moves, learnt from releases alone: it may wander, go on as it went lately, or come back.

Everything here is a function of what was released: it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamdp.histograms.bands import Bands, Floats

_COEFFICIENTS = 256
"""Only so many of the coarsest coefficients have models of their own: motion is in them, and a journal keeps them."""
_DECIMALS = 6
"""Of what a journal keeps for each of them."""
_RETURNS = (0.5, 2.0, 8.0)
_TRENDS = (1.0, 4.0, 16.0)
"""How long a deviation or a trend lasts, in silences: releases can tell those apart."""
_FIRST_PACE = 3.0
"""How long a silence is taken to be before there was one."""
_PACE = 0.3
"""The weight of the newest silence in their mean length."""
_TREND_WANDERS, _MEAN_WANDERS = 0.2, 0.02
"""What else moves a coefficient that follows a trend, and the mean to which one returns, of its speed."""
_FORGET = 0.8
"""What earlier evidence counts for, at every release."""
_MOST_COUNTED = 16.0
"""A band counts for no more coefficients than this: they are not independent."""
_BEFORE = (1.0, 0.3, 0.5)
"""How likely wandering, each return and each trend are before any evidence, relatively."""


class Motion:
    """A bank of Kalman filters over the coarse coefficients: one for each way to move, averaged band by band.

    Each has two numbers for a coefficient, a level `a` and a deviation or velocity `b`, and their covariances for a
    band. A coefficient that wanders is `a` alone. One that returns is `a + b`, and `b` decays. One with a trend is `a`,
    which moves by `b`, which decays. A band believes each of them by how well it foresaw the last releases.
    """

    def __init__(self, bands: Bands) -> None:
        self.coarse = bands.coarsest(_COEFFICIENTS)
        self._all_bands = bands.number
        # The bands with coarse coefficients, all others being left out here; and of each coefficient which it is in.
        self._used, self._band_of = np.unique(bands.band_of(self.coarse), return_inverse=True)
        self._sizes: Floats = bands.sizes[self._used]
        kinds = np.repeat([0, 1, 2], [1, len(_RETURNS), len(_TRENDS)])[:, None]
        # Models are rows.
        self._returns, self._trends = kinds == 1, kinds == 2
        self._relative: Floats = np.array([[1.0, *_RETURNS, *_TRENDS]]).T
        self._before: Floats = np.log(_BEFORE)[kinds]
        self._levels: Floats = np.zeros((kinds.size, self.coarse.size))
        self._others: Floats = np.zeros((kinds.size, self.coarse.size))
        self._covariances: Floats = np.zeros((3, kinds.size, self._used.size))
        """Of `a`, of `a` with `b`, of `b`."""
        self._evidence: Floats = np.zeros((kinds.size, self._used.size))
        self._silences = 0
        self._pace = _FIRST_PACE

    def begin(self, coefficients: Floats, variances: Floats, speeds: Floats) -> None:
        """After the first release: the estimate of the coarse coefficients; of every band its variance and speed.

        Speed is the variance that a time point adds.
        """
        speeds = speeds[self._used]
        self._levels[:] = coefficients.round(_DECIMALS)
        around = self._returns * speeds * self._lasts / 2
        velocity = self._trends * speeds / self._lasts
        self._covariances = np.stack([variances[self._used] + around, -around, around + velocity])

    def correct(self, noisy: Floats, noise: Floats, speeds: Floats, gap: int) -> None:
        """After a release `gap` points after the one before: the noisy coarse coefficients, and of every band the
        variance of that noise and the speed."""
        self._pace = self._pace * (gap / self._pace) ** _PACE if self._silences else float(gap)
        self._silences += 1
        of_level, of_both, of_other = self._foreseen_covariances(speeds[self._used], gap)
        levels, others = self._foreseen_means(float(gap))
        news = noisy - levels - self._returns * others
        with_level, with_other = of_level + self._returns * of_both, of_both + self._returns * of_other
        expected = with_level + self._returns * with_other + noise[self._used]
        # All relative to what wandering lets expect: the better forecast is believed, not the bolder one.
        surprise = np.minimum(self._sizes, _MOST_COUNTED) * self._mean_square(news) / expected[0]
        self._evidence = _FORGET * self._evidence - surprise
        self._levels = (levels + (with_level / expected)[:, self._band_of] * news).round(_DECIMALS)
        self._others = (others + (with_other / expected)[:, self._band_of] * news).round(_DECIMALS)
        told = np.stack([with_level**2, with_level * with_other, with_other**2]) / expected
        self._covariances = np.stack([of_level, of_both, of_other]) - told

    def _foreseen_means(self, gap: float) -> tuple[Floats, Floats]:
        left = np.exp(-gap / self._lasts)
        decays = (self._returns | self._trends) * left
        return self._levels + self._trends * self._lasts * (1 - left) * self._others, decays * self._others

    def _foreseen_covariances(self, speeds: Floats, gap: int) -> tuple[Floats, Floats, Floats]:
        """Whatever the model, `gap` points move a coefficient as much as its speed says."""
        of_level, of_both, of_other = self._covariances
        lasts, moved = self._lasts, gap * speeds
        left, age = np.exp(-gap / lasts), gap / lasts
        moves = self._trends * lasts * (1 - left)
        around = self._returns * moved / (2 * (1 - left))
        velocity = self._trends * (1 - _TREND_WANDERS) * moved / (2 * lasts**2 * (age - 1 + left))
        wanders = np.where(self._trends, _TREND_WANDERS, np.where(self._returns, _MEAN_WANDERS, 1.0)) * moved
        along = lasts**2 * (2 * age - 3 + 4 * left - left**2)
        return (
            of_level + 2 * moves * of_both + moves**2 * of_other + velocity * along + wanders,
            left * (of_both + moves * of_other) + velocity * lasts * (1 - left) ** 2,
            left**2 * of_other + (velocity + around) * (1 - left**2),
        )

    def foreseen(self, points: float) -> Floats:
        """The coarse coefficients so many points after the last release."""
        return self._mixed(self._each(np.array([points])))

    def held(self, silence: int) -> Floats:
        """The same, on average over the points of a silence."""
        return self._mixed(self._each(np.arange(silence, dtype=np.float64)))

    def slopes(self) -> Floats:
        """The mean square of the velocities in each band, over a silence as long as those before."""
        moved = self.foreseen(self._pace) - self.foreseen(0)
        return self._of_all_bands(self._mean_square(moved[None])[0] / self._pace**2)

    def error(self, silence: int) -> Floats:
        """The variance in each band, on average over a silence, of what is `held`.

        The coefficients move on meanwhile, and the models differ about it.
        """
        each = self._each(np.arange(silence, dtype=np.float64))
        differ = (self._weights() * self._mean_square(each - self._mixed(each))).sum(axis=0)
        moved = self.foreseen(silence - 1) - self.foreseen(0)
        return self._of_all_bands(differ + self._mean_square(moved[None])[0] / 12)

    @property
    def _lasts(self) -> Floats:
        return self._relative * self._pace

    def _each(self, points: Floats) -> Floats:
        """What each model foresees, on average over these points."""
        left = np.exp(-points / self._lasts)
        reach = self._returns * left + self._trends * self._lasts * (1 - left)
        each: Floats = self._levels + reach.mean(axis=1, keepdims=True) * self._others
        return each

    def _mixed(self, each: Floats) -> Floats:
        mixed: Floats = (self._weights()[:, self._band_of] * each).sum(axis=0)
        return mixed

    def _weights(self) -> Floats:
        logs = self._before + self._evidence
        weights = np.exp(logs - logs.max(axis=0))
        normal: Floats = weights / weights.sum(axis=0)
        return normal

    def _mean_square(self, rows: Floats) -> Floats:
        sums = [np.bincount(self._band_of, row**2, self._used.size) for row in rows]
        return np.array(sums) / self._sizes

    def _of_all_bands(self, values: Floats) -> Floats:
        spread = np.zeros(self._all_bands)
        spread[self._used] = values
        return spread

    def state(self) -> dict[str, Any]:
        return {
            "levels": self._levels.tolist(),
            "others": self._others.tolist(),
            "covariances": self._covariances.tolist(),
            "evidence": self._evidence.tolist(),
            "silences": self._silences,
            "pace": self._pace,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        self._levels, self._others, self._covariances, self._evidence = (
            np.array(state[name], np.float64) for name in ("levels", "others", "covariances", "evidence")
        )
        self._silences, self._pace = state["silences"], state["pace"]
