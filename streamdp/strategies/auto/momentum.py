"""Where the data is heading, learnt from releases alone: what moved one way lately may go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamdp.histograms.bands import Bands, Floats

_COEFFICIENTS = 512
"""Only so many of the coarsest coefficients have a velocity: trends are in them, and a journal keeps them."""
_NEWEST = 0.6
"""The weight of the newest displacement in the velocity."""
_FORGET = 0.85
"""What earlier evidence counts for, at every release."""
_DOUBT = 4.0
"""How much evidence it takes to believe in half of a trend: the inverse variance of persistence before any."""


class Momentum:
    """A velocity for each coarse coefficient, and for each band how much of it persists.

    Persistence is the slope of the displacements of a band on those foreseen, a regression with forgetting, between 0
    and 1. Noise in the velocities lowers it, as it must: it is the slope for prediction. A trend is not followed for
    longer than it was seen.
    """

    def __init__(self, bands: Bands) -> None:
        self._bands = bands
        self.coarse = bands.coarsest(_COEFFICIENTS)
        self._band_of = bands.band_of(self.coarse)
        self._velocity: Floats = np.zeros(self.coarse.size)
        self._along: Floats = np.zeros(bands.number)
        self._squared: Floats = np.zeros(bands.number)
        self._seen_for = 0

    def ahead(self, points: float) -> Floats:
        """How far the coarse coefficients will have moved."""
        moved: Floats = self._persistence()[self._band_of] * self._velocity * min(points, self._seen_for)
        return moved

    def squares(self) -> Floats:
        """The mean square of the velocities of each band, as far as they persist."""
        return self._persistence() ** 2 * self._squares()

    def error(self, lead: float) -> Floats:
        """The variance that trends add in a silence, on average, to an estimate for the middle of it, at `lead`.

        Before and after, such an estimate is off; and a trend may end, or have ended.
        """
        persists = self._persistence()
        return self._squares() * lead**2 * (persists**2 + 4 * persists * (1 - persists)) / 3

    def _persistence(self) -> Floats:
        persistence: Floats = np.clip(self._along / (self._squared + _DOUBT), 0, 1)
        return persistence

    def _squares(self) -> Floats:
        squares: Floats = np.bincount(self._band_of, self._velocity**2, self._bands.number) / self._bands.sizes
        return squares

    def learn(self, displaced: Floats, estimated: Floats, expected: Floats, gap: int) -> None:
        """After a release `gap` points after the one before.

        The coarse coefficients are `displaced` by its noisy counts, and by what the estimate makes of them `estimated`;
        `expected` is the variance of what is new in each band.
        """
        foreseen = self._velocity * min(gap, self._seen_for)
        number = self._bands.number
        self._along = _FORGET * self._along + np.bincount(self._band_of, foreseen * displaced, number) / expected
        self._squared = _FORGET * self._squared + np.bincount(self._band_of, foreseen**2, number) / expected
        velocity = estimated / gap
        weight = _NEWEST if self._seen_for else 1.0
        self._velocity = self._velocity + weight * (velocity - self._velocity)
        self._seen_for = gap

    def state(self) -> dict[str, Any]:
        return {
            "velocity": self._velocity.tolist(),
            "along": self._along.tolist(),
            "squared": self._squared.tolist(),
            "seen_for": self._seen_for,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        self._velocity, self._along, self._squared = (
            np.array(state[name], np.float64) for name in ("velocity", "along", "squared")
        )
        self._seen_for = state["seen_for"]
