"""How fast the data moves, learnt from releases alone.

Everything here is a function of what was released: it costs nothing. The unit is the variance that a time point adds to
a random range count (`total`), and to a coefficient of each band (`bands`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log, sqrt
from typing import Any

import numpy as np

from streamdp.histograms.bands import Bands, Floats

_GRID = 64
_SLOWEST = 0.1
"""The slowest drift that is told from none: over the span it adds this part of the noise of all of epsilon at once."""
_STEP = 0.5
"""By how much, in logarithms, the speed changes between two releases: its standard deviation."""
_CHANGE = 0.5
"""The same until the end of what is planned."""
_RETURN = 0.25
"""The chance that it becomes again what it has been before."""
_MEMORY = 0.2
"""The weight of the newest belief in the memory of earlier ones."""
_ANYTHING = 0.02
"""The chance, at every release, that the speed has become anything at all."""
_BAND_CHANGE = 0.3
"""The same for a single band, relative to its speed."""
_BAND_SPREAD = 3.0
"""How far a band's speed is from the mean of all of them: standard deviation, relative to that mean."""
_TAIL = 3.0
"""Beyond so many deviations an observation is an outlier, and its tail exponential."""


class Drift:
    """A belief about the speed: weights on a grid of logarithms, and a mean and a variance for each band.

    Each release brings one observation: how much further than its noise explains the data is from the estimate.
    """

    def __init__(self, bands: Bands, noise: float, span: int, power: float) -> None:
        """`noise` is the variance of a release with all of epsilon, `power` the squared size of a random range."""
        self._bands = bands
        slowest = max(_SLOWEST * float(bands.energy.sum()) * noise / span, 1e-6)
        self._begin(slowest, max(power, 100 * slowest), np.full(_GRID, 1 / _GRID))

    def _begin(self, slowest: float, fastest: float, weights: Floats) -> None:
        self._ends = slowest, fastest
        self._speeds = np.geomspace(slowest, fastest, _GRID)
        self._weights = self._history = weights
        self.seen = False
        self._means: Floats = np.zeros(self._bands.number)
        self._variances: Floats = np.zeros(self._bands.number)
        self._summarise()

    def observe(self, excess: Floats, deviation: Floats, gap: int) -> None:
        """A release `gap` points after the one before.

        `excess` is the mean square of what is new in each band less the variances of the estimate and of the noise, and
        `deviation` the sum of those two.
        """
        energy, sizes = self._bands.energy, self._bands.sizes
        self._weights = self._diffused(_STEP)
        seen = float(energy @ excess) / gap
        expected = deviation + gap * self.profile * self._speeds[:, None]
        spread = np.sqrt((2 * energy**2 / sizes * expected**2).sum(axis=1)) / gap
        away = np.abs(seen - self._speeds) / spread
        logs = -np.where(away < _TAIL, away**2 / 2, _TAIL * away - _TAIL**2 / 2) - np.log(spread)
        weights = self._weights * np.exp(logs - logs.max())
        self._weights = weights / weights.sum()
        self._history = self._history + _MEMORY * (self._weights - self._history)
        self._observe_bands(excess / gap, 2 * (deviation + gap * self.bands) ** 2 / sizes / gap**2)
        self._summarise()

    def _observe_bands(self, seen: Floats, variance: Floats) -> None:
        if not self.seen:
            self.seen, self._means, self._variances = True, seen, variance
            return
        before = self._variances + (_BAND_CHANGE * self.bands) ** 2
        gain = before / (before + variance)
        self._means = self._means + gain * (seen - self._means)
        self._variances = (1 - gain) * before

    def _diffused(self, step: float) -> Floats:
        spacing = log(self._speeds[1] / self._speeds[0])
        kernel = np.exp(-0.5 * (np.arange(-_GRID, _GRID + 1) * spacing / step) ** 2)
        moved = np.convolve(self._weights, kernel)[_GRID : 2 * _GRID]
        weights: Floats = (1 - _ANYTHING) * moved / moved.sum() + _ANYTHING / _GRID
        return weights

    def _summarise(self) -> None:
        energy = self._bands.energy
        self.total = float(np.exp(self._weights @ np.log(self._speeds)))
        """The speed in the middle of the belief, in logarithms."""
        self.upper = sqrt(self.total * float(self._weights @ self._speeds))
        """Between that and the mean, which the fast end pulls up: for intervals, where too little is worse."""
        mean = self.total / float(energy.sum())
        bands = np.full(self._bands.number, mean)
        if self.seen:
            prior = (_BAND_SPREAD * mean) ** 2
            bands = (self._means * prior + mean * self._variances) / (prior + self._variances)
            bands = np.maximum(bands, mean / 20)
        self.profile: Floats = bands / float(energy @ bands)
        """How a unit of speed is shared by the bands."""
        self.bands: Floats = self.profile * self.total

    def scenarios(self, number: int) -> Floats:
        """Speeds that stand for the belief, equally likely."""
        weights = (1 - _RETURN) * self._diffused(_CHANGE) + _RETURN * self._history
        return np.interp((np.arange(number) + 0.5) / number, np.cumsum(weights), self._speeds)

    def state(self) -> dict[str, Any]:
        return {
            "ends": list(self._ends),
            "weights": self._weights.tolist(),
            "history": self._history.tolist(),
            "bands": [self._means.tolist(), self._variances.tolist()] if self.seen else None,
        }

    @classmethod
    def from_state(cls, bands: Bands, state: Mapping[str, Any]) -> Drift:
        self = cls.__new__(cls)
        self._bands = bands
        slowest, fastest = state["ends"]
        self._begin(slowest, fastest, np.array(state["weights"]))
        self._history = np.array(state["history"])
        if state["bands"] is not None:
            self.seen = True
            self._means, self._variances = (np.array(values) for values in state["bands"])
            self._summarise()
        return self
