"""How the data moves, learnt from releases alone: it may wander, go on as it went lately, come back, or have a rhythm.

Everything here is a function of what was released: it costs nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamdp.arrays import Floats
from streamdp.histograms.bands import Bands
from streamdp.strategies.auto.drift import MOST_COUNTED

_COEFFICIENTS = 128
"""Only so many of the coarsest coefficients have models of their own: motion is in them, and a journal keeps them."""
_RETURNS = np.array([0.5, 2.0, 8.0])
_TRENDS = np.array([1.0, 4.0, 16.0])
"""How long a deviation or a trend lasts, in silences: releases can tell those apart."""
_PERIODS = np.array([4, 7, 12, 24, 28, 48, 52, 96, 144, 168, 288, 365], np.float64)
"""Of rhythms, in points: days, weeks and years, in points of the lengths that people choose."""
_WAVES = np.arange(1, 4)
"""A rhythm is the sum of waves that fit into its period so many times: a working week is no sine."""
_SAMPLED = 2.0
"""A period shorter than so many silences is not told from others."""
_FIRST_PACE = 3.0
"""How long a silence is taken to be before there was one."""
_PACE = 0.3
"""The weight of the newest silence in their mean length."""
_TREND_WANDERS, _MEAN_WANDERS = 0.2, 0.02
"""What else moves a coefficient that follows a trend, and the mean to which one returns, of its speed."""
_RHYTHM_WANDERS, _RHYTHM_CHANGES = 0.1, 0.05
"""What moves the mean of a rhythm, and each of its waves by their shares, of its speed."""
_FORGET, _FORGET_PERIOD = 0.8, 0.95
"""What earlier evidence counts for, at every release: for a way to move, and for the period of a rhythm."""
_MOST_SAID = 8.0
"""The most that a band says for or against a period at a release: one that jumped knows nothing of it."""
_BEFORE = (1.0, 0.3, 0.5, 0.5)
"""How likely wandering, each return, each trend and all rhythms are before any evidence, relatively."""
_KEPT, _LARGEST = np.dtype("<f4"), 1e36
"""How a journal keeps numbers, and the largest of them."""

# Models are rows: wandering, then returns, trends and rhythms.
_KINDS = np.repeat(np.arange(4), [1, len(_RETURNS), len(_TRENDS), len(_PERIODS)])
_MODELS = len(_KINDS)
_RETURN = slice(1, 1 + len(_RETURNS))
_TREND = slice(_RETURN.stop, _RETURN.stop + len(_TRENDS))
_RHYTHM = slice(_TREND.stop, _MODELS)
_NUMBERS = 1 + 2 * _WAVES.size
_FIRST_OF_WAVES = range(1, _NUMBERS, 2)
# Of each model the numbers that it uses, and of these the pairs that have a covariance, each pair once.
_USED = np.arange(_NUMBERS) < np.repeat([1, 2, 2, _NUMBERS], np.bincount(_KINDS))[:, None]
_USED_PAIRS = _USED[:, :, None] & _USED[:, None] & np.tri(_NUMBERS, dtype=bool)
# Of each period, how its rhythm is shared by its waves: long ones are larger, and points must be able to tell them.
_SHARES = np.where(_PERIODS[:, None] / 2 >= _WAVES, 1 / _WAVES**2, 0)
_SHARES /= _SHARES.sum(axis=1, keepdims=True)


class Motion:
    """A bank of Kalman filters over the coarse coefficients: one for each way to move, averaged band by band.

    Each has some numbers for a coefficient, and their covariances for a band: a level `a`, a deviation or velocity `b`,
    and those of waves. A coefficient that wanders is `a` alone. One that returns is `a + b`, and `b` decays. One with a
    trend is `a`, which moves by `b`, which decays. One with a rhythm is `a` and the first number of each of its waves,
    which turns into the second and back as time passes. A band believes each of them by how well it foresaw the last
    releases; of what period a rhythm is, all bands say together.
    """

    def __init__(self, bands: Bands) -> None:
        self.coarse = bands.coarsest(_COEFFICIENTS)
        self._all_bands = bands.number
        # The bands with coarse coefficients, all others being left out here; and of each coefficient which it is in.
        self._used, self._band_of = np.unique(bands.band_of(self.coarse), return_inverse=True)
        self._sizes: Floats = bands.sizes[self._used]
        self._numbers: Floats = np.zeros((_MODELS, _NUMBERS, self.coarse.size))
        self._covariances: Floats = np.zeros((_MODELS, self._used.size, _NUMBERS, _NUMBERS))
        self._evidence: Floats = np.zeros((_MODELS, self._used.size))
        self._of_periods: Floats = np.zeros(_PERIODS.size)
        self._silences = 0
        self._pace = _FIRST_PACE

    def begin(self, coefficients: Floats, variances: Floats, speeds: Floats) -> None:
        """After the first release: the estimate of the coarse coefficients; of every band its variance and speed.

        Speed is the variance that a time point adds.
        """
        speeds = speeds[self._used]
        self._numbers[:, 0] = coefficients
        covariances = self._covariances
        covariances[:, :, 0, 0] = variances[self._used]
        # A deviation is as large as it must be to move as far as the speed says, a rhythm in a quarter of its period.
        returns = (_RETURNS * self._pace / 2)[:, None] * speeds
        _deviate(covariances[_RETURN], 1, returns)
        for first, share in zip(_FIRST_OF_WAVES, _SHARES.T, strict=True):
            wave = (share * _PERIODS / 8)[:, None] * speeds
            _deviate(covariances[_RHYTHM], first, wave)
            covariances[_RHYTHM, :, first + 1, first + 1] = wave
        covariances[_TREND, :, 1, 1] += speeds / (_TRENDS * self._pace)[:, None]
        self._round()

    def correct(self, noisy: Floats, noise: Floats, speeds: Floats, gap: int, jump: Floats | None = None) -> None:
        """After a release `gap` points after the one before: the noisy coarse coefficients, and of every band the
        variance of that noise and the speed.

        A `jump` (its mean square in every band) moves levels alone, and says nothing of how the data moves otherwise.
        """
        self._pace = self._pace * (gap / self._pace) ** _PACE if self._silences else float(gap)
        self._silences += 1
        turned = self._turned(gap)
        added = self._added(gap)[:, None] * (gap * speeds[self._used])[:, None, None]
        numbers = turned @ self._numbers
        if jump is not None:
            added[:, :, 0, 0] += jump[self._used]
        covariances = turned[:, None] @ self._covariances @ turned[:, None].swapaxes(2, 3) + added
        seen = self._reach(np.zeros(1))
        news = noisy - _seen(seen, numbers)
        told = (covariances @ seen[:, None, :, None])[..., 0]
        # What was added, and the noise, are in it whatever rounding did to the rest.
        least = np.einsum("mi,mbij,mj->mb", seen, added, seen)
        expected = np.maximum(np.einsum("mbi,mi->mb", told, seen), least) + noise[self._used]
        if jump is None:
            self._compare(news, expected[0])
        gain = told / expected[:, :, None]
        self._numbers = numbers + gain[:, self._band_of].swapaxes(1, 2) * news[:, None]
        self._covariances = covariances - gain[..., None] * told[:, :, None]
        self._round()

    def _compare(self, news: Floats, expected: Floats) -> None:
        """All relative to what wandering lets expect: the better forecast is believed, not the bolder one."""
        surprise = np.minimum(self._sizes, MOST_COUNTED) * self._mean_square(news) / expected
        self._evidence = _FORGET * self._evidence - surprise
        said = np.clip(surprise[0] - surprise[_RHYTHM], -_MOST_SAID, _MOST_SAID).sum(axis=1)
        self._of_periods = _FORGET_PERIOD * self._of_periods + said

    def foreseen(self, points: float) -> Floats:
        """The coarse coefficients so many points after the last release."""
        return self._mixed(np.array([points]))

    def slopes(self) -> Floats:
        """The mean square of the velocities in each band, over a silence as long as those before."""
        slopes: Floats = self.moved(0, self._pace) / self._pace**2
        return slopes

    def moved(self, begin: float, end: float) -> Floats:
        """The mean square in each band of what is foreseen to change between two ages."""
        moved = self.foreseen(end) - self.foreseen(begin)
        return self._of_all_bands(self._mean_square(moved[None])[0])

    def doubt(self, begin: int, end: int) -> Floats:
        """The variance in each band of what is foreseen, on average over such ages: the models differ about it."""
        ages = np.arange(begin, end, dtype=np.float64)
        differ = self._mean_square(_seen(self._reach(ages), self._numbers) - self._mixed(ages))
        return self._of_all_bands((self._weights() * differ).sum(axis=0))

    def _turned(self, gap: float) -> Floats:
        """Of each model, how `gap` points turn its numbers into others."""
        turned = np.zeros((_MODELS, _NUMBERS, _NUMBERS))
        turned[:, 0, 0] = 1
        turned[_RETURN, 1, 1] = np.exp(-gap / (_RETURNS * self._pace))
        lasts = _TRENDS * self._pace
        left = np.exp(-gap / lasts)
        turned[_TREND, 0, 1], turned[_TREND, 1, 1] = lasts * (1 - left), left
        for wave, first in zip(_WAVES, _FIRST_OF_WAVES, strict=True):
            angle, second = 2 * np.pi * wave * gap / _PERIODS, first + 1
            turned[_RHYTHM, first, first] = turned[_RHYTHM, second, second] = np.cos(angle)
            turned[_RHYTHM, first, second], turned[_RHYTHM, second, first] = np.sin(angle), -np.sin(angle)
        return turned

    def _added(self, gap: float) -> Floats:
        """Of each model, the covariances that `gap` points add, for what they move: all that the speed says."""
        added = np.zeros((_MODELS, _NUMBERS, _NUMBERS))
        added[0, 0, 0] = 1
        added[_RETURN, 0, 0] = _MEAN_WANDERS
        added[_RETURN, 1, 1] = (1 + np.exp(-gap / (_RETURNS * self._pace))) / 2
        lasts = _TRENDS * self._pace
        left, age = np.exp(-gap / lasts), gap / lasts
        velocity = (1 - _TREND_WANDERS) / (2 * lasts**2 * (age - 1 + left))
        added[_TREND, 0, 0] = _TREND_WANDERS + velocity * lasts**2 * (2 * age - 3 + 4 * left - left**2)
        added[_TREND, 0, 1] = added[_TREND, 1, 0] = velocity * lasts * (1 - left) ** 2
        added[_TREND, 1, 1] = velocity * (1 - left**2)
        added[_RHYTHM, 0, 0] = _RHYTHM_WANDERS
        for first, share in zip(_FIRST_OF_WAVES, _SHARES.T, strict=True):
            added[_RHYTHM, first, first] = added[_RHYTHM, first + 1, first + 1] = _RHYTHM_CHANGES * share
        return added

    def _reach(self, points: Floats) -> Floats:
        """Of each model, what its numbers count for in the coefficient, on average over points after the release."""
        reach = np.zeros((_MODELS, _NUMBERS))
        reach[:, 0] = 1
        reach[_RETURN, 1] = np.exp(-points / (_RETURNS * self._pace)[:, None]).mean(axis=1)
        lasts = _TRENDS * self._pace
        reach[_TREND, 1] = lasts * (1 - np.exp(-points / lasts[:, None]).mean(axis=1))
        for wave, first in zip(_WAVES, _FIRST_OF_WAVES, strict=True):
            angle = 2 * np.pi * wave * points / _PERIODS[:, None]
            reach[_RHYTHM, first], reach[_RHYTHM, first + 1] = np.cos(angle).mean(axis=1), np.sin(angle).mean(axis=1)
        return reach

    def _mixed(self, points: Floats) -> Floats:
        each = _seen(self._reach(points), self._numbers)
        mixed: Floats = (self._weights()[:, self._band_of] * each).sum(axis=0)
        return mixed

    def _weights(self) -> Floats:
        logs = np.log(_BEFORE)[_KINDS][:, None] + self._evidence
        of_periods = np.where(_SAMPLED * self._pace <= _PERIODS, self._of_periods, -np.inf)
        if np.isfinite(of_periods).any():
            of_periods -= np.logaddexp.reduce(of_periods)
        logs[_RHYTHM] += of_periods[:, None]
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

    def _round(self) -> None:
        """To what a journal keeps: a restart must change nothing."""
        self._covariances = (self._covariances + self._covariances.swapaxes(2, 3)) / 2
        self._numbers, self._covariances, self._evidence = (
            values.clip(-_LARGEST, _LARGEST).astype(_KEPT).astype(np.float64)
            for values in (self._numbers, self._covariances, self._evidence)
        )

    def state(self) -> dict[str, Any]:
        return {
            "numbers": _packed(self._numbers[_USED]),
            "covariances": _packed(self._covariances.swapaxes(1, 3)[_USED_PAIRS]),
            "evidence": _packed(self._evidence),
            "of_periods": self._of_periods.tolist(),
            "silences": self._silences,
            "pace": self._pace,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        self._numbers[_USED] = _unpacked(state["numbers"], self.coarse.size)
        pairs = np.zeros((_MODELS, _NUMBERS, _NUMBERS, self._used.size))
        pairs[_USED_PAIRS] = _unpacked(state["covariances"], self._used.size)
        diagonal = np.eye(_NUMBERS, dtype=bool)[None, :, :, None]
        self._covariances = np.where(diagonal, pairs, pairs + pairs.swapaxes(1, 2)).transpose(0, 3, 1, 2)
        self._evidence = _unpacked(state["evidence"], self._used.size)
        self._of_periods = np.array(state["of_periods"])
        self._silences, self._pace = state["silences"], state["pace"]


def _packed(values: Floats) -> str:
    return base64.b64encode(values.astype(_KEPT).tobytes()).decode("ascii")


def _unpacked(packed: str, columns: int) -> Floats:
    return np.frombuffer(base64.b64decode(packed), _KEPT).astype(np.float64).reshape(-1, columns)


def _deviate(covariances: Floats, number: int, variances: Floats) -> None:
    """Lets a number deviate by so much from the level, at first: what was seen is the sum of both."""
    covariances[:, :, 0, 0] += variances
    covariances[:, :, 0, number] -= variances
    covariances[:, :, number, 0] -= variances
    covariances[:, :, number, number] += variances


def _seen(reach: Floats, numbers: Floats) -> Floats:
    seen: Floats = (reach[:, None] @ numbers)[:, 0]
    return seen
