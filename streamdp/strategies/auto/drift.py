"""How fast the data moves, learnt from releases alone.

Everything here is a function of what was released: it costs nothing. Speed is the variance that a time point adds to a
coefficient of a band (`bands`), or to a random range count (`total`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from streamdp.arrays import Floats
from streamdp.histograms.bands import Bands

_SPACING = 1 / 3
"""Of the grid of speeds, in logarithms; all that follows is in logarithms too, where it can be."""
_SLOWEST = 0.1
"""The slowest drift that is told from none: over the span it adds this part of the noise of all of epsilon at once."""
_FASTEST = 0.03
"""The fastest: a time point adds this part of the squared size of what there is, a sixth of it moves."""
_SLOWER = 0.1
"""The power of a speed by which slower ones are likelier, before anything is known: most data hardly moves."""
_STEP = 0.5
"""By how much the speed changes between two releases: its standard deviation."""
_CHANGE = 0.5
"""The same until the end of what is planned."""
_RETURN = 0.4
"""The chance that it becomes again what it has been before."""
_MEMORY = 0.1
"""The weight of the newest belief in the memory of earlier ones."""
_TOGETHER = 4.0
"""Coefficients move as if so many of them moved on their own: one silence may show less, or more, than its speed."""
_OVER = 0.7
"""The chance that what made a watch cry is over, and the speed what it was."""
_ANYTHING = 0.02
"""The chance, at every release, that the speed has become anything at all."""
_APART = 1.5
"""How far a band's speed is from the common one: standard deviation. Tides move the coarse bands alone."""
_FURTHEST = 7.0
_BAND_STEP = 0.2
"""By how much a band's speed changes between two releases, relative to the common one."""
_LEAST_KNOWN = 0.01
MOST_COUNTED = 16.0
"""A band counts for no more coefficients than this: its coefficients are not alike, and fine bands are no majority."""
_TINY = 1e-300


class Drift:
    """A belief about speed: weights on a grid for the common one, a mean and a variance for how far each band is off.

    Each release brings an observation in each band: the mean square of what is new, which is the variance of the
    estimate and of the noise and, for each point since the release before, the band's speed.
    """

    def __init__(self, bands: Bands, noise: float, span: int, power: float) -> None:
        """`noise` is the variance of a release with all of epsilon, `power` the squared size of a random range."""
        slowest = max(_SLOWEST * noise / span, 1e-9)
        size = _steps(slowest, max(_fastest(bands, power), 100 * slowest)) + 1
        weights = np.exp(-_SLOWER * np.arange(size) * _SPACING)
        weights /= weights.sum()
        self._begin(bands, slowest, weights, weights)

    def _begin(self, bands: Bands, slowest: float, weights: Floats, history: Floats) -> None:
        self._bands, self._slowest = bands, slowest
        steps = ceil(_FURTHEST / _SPACING)
        self._apart = np.arange(-steps, steps + 1) * _SPACING
        # A coefficient sums the Laplace noise of several cells: the fewer, the more it says by chance.
        alike = bands.sizes / (1 + 1.5 * bands.sizes / bands.sizes.sum())
        self._counted = np.minimum(alike, MOST_COUNTED)[:, None]
        self._believe(weights, history)
        self._means: Floats = np.zeros(bands.number)
        self._variances: Floats = np.full(bands.number, _APART**2)
        self._summarise()

    def _believe(self, weights: Floats, history: Floats) -> None:
        """Lays the grid for so many weights."""
        steps = self._apart.size // 2
        self._grid = self._slowest * np.exp(np.arange(weights.size) * _SPACING)
        self._of_bands = self._slowest * np.exp(np.arange(-steps, weights.size + steps) * _SPACING)
        apart = np.arange(-weights.size, weights.size + 1) * _SPACING
        # The logarithm of a mean of so many squares of normal deviations.
        chances = np.exp(_TOGETHER / 2 * (apart - np.exp(np.minimum(apart, _FURTHEST))))
        self._chances: Floats = chances / chances.sum()
        self._weights, self._history = weights, history
        self._before = weights, history

    def _widen(self, power: float) -> None:
        """There is more data than there was, and it may move by more."""
        more = _steps(float(self._grid[-1]), _fastest(self._bands, power))
        if more > 0:
            self._believe(np.pad(self._weights, (0, more)), np.pad(self._history, (0, more)))

    def observe(self, square: Floats, known: Floats, gap: int, power: float) -> None:
        """A release `gap` points after the one before, in which a random range has the squared size `power`.

        `square` is the mean square of what is new in each band, and `known` what it would be without drift.
        """
        self._widen(power)
        expected = known[:, None] + gap * self._of_bands
        logs = -0.5 * self._counted * (np.log(expected) + square[:, None] / expected)
        likely = sliding_window_view(np.exp(logs - logs.max(axis=1, keepdims=True)), self._apart.size, axis=1)
        apart = np.exp(-0.5 * (self._apart - self._means[:, None]) ** 2 / self._variances[:, None])
        apart /= apart.sum(axis=1, keepdims=True)
        # Of each band, alone: how likely it is at each common speed (rows: bands, columns: speeds).
        alone = np.einsum("bsd,bd->bs", likely, apart) + _TINY
        weights = self._diffused(_STEP)
        self._before = weights, self._history
        logs = np.log(alone).sum(axis=0)
        shown = np.exp(logs - logs.max())
        # How fast it moved in this one silence, and how fast it moves: in one it may move by less or by more.
        moved = self._by_chance(weights) * shown + _TINY
        moved /= moved.sum()
        weights = weights * self._to_be_shown(shown) + _TINY
        self._weights = weights / weights.sum()
        self._history = self._history + _MEMORY * (self._weights - self._history)
        apart = apart * np.einsum("bsd,bs->bd", likely, moved / alone) + _TINY
        apart /= apart.sum(axis=1, keepdims=True)
        means = apart @ self._apart
        variances = np.maximum(apart @ self._apart**2 - means**2, _LEAST_KNOWN)
        kept = 1 - (_BAND_STEP / _APART) ** 2
        self._means, self._variances = sqrt(kept) * means, kept * variances + _BAND_STEP**2
        self._summarise(moved)

    def _by_chance(self, weights: Floats) -> Floats:
        """How likely each speed is to be shown by one silence."""
        size = weights.size
        return np.convolve(weights, self._chances)[size : 2 * size]

    def _to_be_shown(self, shown: Floats) -> Floats:
        """How likely each speed is, when one silence shows those; the slowest and the fastest stand for all beyond."""
        size = shown.size
        return np.convolve(np.pad(shown, size, "edge"), self._chances[::-1])[2 * size : 3 * size]

    def jumped(self) -> None:
        """What was observed last came at once: it may be over."""
        weights, history = self._before
        self._weights = _OVER * weights + (1 - _OVER) * self._weights
        self._history = _OVER * history + (1 - _OVER) * self._history
        self._summarise()

    def _diffused(self, step: float) -> Floats:
        size = self._weights.size
        kernel = np.exp(-0.5 * (np.arange(-size, size + 1) * _SPACING / step) ** 2)
        moved = np.convolve(self._weights, kernel)[size : 2 * size]
        weights: Floats = (1 - _ANYTHING) * moved / moved.sum() + _ANYTHING / size
        return weights

    def _summarise(self, moved: Floats | None = None) -> None:
        """Takes weights on the speeds of the silence that was observed last, if there is one to tell of."""
        energy = self._bands.energy
        # Between the median and the mean of a lognormal.
        bands = np.exp(self._means + self._variances / 4)
        unit = float(energy @ bands)
        self.profile: Floats = bands / unit
        """How a unit of speed is shared by the bands."""
        self._totals = self._grid * unit
        self.total = float(np.exp(self._weights @ np.log(self._totals)))
        """The speed in the middle of the belief."""
        self.upper = sqrt(self.total * float(self._weights @ self._totals))
        """Between that and the mean, which the fast end pulls up: for intervals, where too little is worse."""
        self.bands: Floats = self.profile * self.total
        shown = self._weights if moved is None else moved
        self.moved: Floats = self.profile * float(np.exp(shown @ np.log(self._totals)))
        """The same of what was observed last: how fast the data moved in that silence."""

    def scenarios(self, number: int) -> Floats:
        """Speeds that stand for the belief, equally likely."""
        weights = (1 - _RETURN) * self._diffused(_CHANGE) + _RETURN * self._history
        speeds: Floats = np.interp((np.arange(number) + 0.5) / number, np.cumsum(weights), self._totals)
        return speeds

    def state(self) -> dict[str, Any]:
        return {
            "slowest": self._slowest,
            "weights": self._weights.tolist(),
            "history": self._history.tolist(),
            "bands": [self._means.tolist(), self._variances.tolist()],
        }

    @classmethod
    def from_state(cls, bands: Bands, state: Mapping[str, Any]) -> Drift:
        self = cls.__new__(cls)
        self._begin(bands, state["slowest"], np.array(state["weights"]), np.array(state["history"]))
        self._means, self._variances = (np.array(values) for values in state["bands"])
        self._summarise()
        return self


def _fastest(bands: Bands, power: float) -> float:
    return _FASTEST * power / float(bands.energy.sum())


def _steps(slow: float, fast: float) -> int:
    """From one speed to another, on the grid; none, if that is slower."""
    return ceil(log(max(fast / slow, 1.0)) / _SPACING)
