"""What a target works with: a mechanism, a meter, the rows' levels, and estimates of sums over all users."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdp.jobs.personalized.mechanisms import Settings, releases_of
from streamdp.jobs.personalized.preferences import Levels, Preferences
from streamdp.jobs.personalized.releases import LevelMeter, Release, Tally
from streamdp.privacy.noise import NoiseSource

Floats = npt.NDArray[np.float64]


class Estimate(NamedTuple):
    """A sum over all users, estimated, and the epsilon at which plain noise would be as large."""

    value: Floats
    epsilon: float


class Session:
    """One fit. `levels` holds the level of every row; all else is public."""

    def __init__(
        self, preferences: Preferences, settings: Settings, levels: Levels, source: NoiseSource | None
    ) -> None:
        self.preferences = preferences
        self.settings = settings
        self.levels = levels
        self.meter = LevelMeter(preferences, source)
        self.made: list[Release] = []

    def releases(self, spread: float, share: Fraction = Fraction(1)) -> list[Release]:
        """What the mechanism releases for a share of everybody's epsilon."""
        limit = self.settings.threshold
        settings = self.settings if limit is None else replace(self.settings, threshold=limit * share)
        return releases_of(self.preferences.scaled(share), spread, settings)

    def estimate(self, tally: Tally, sensitivity: int, spread: float, share: Fraction = Fraction(1)) -> Estimate:
        """A sum of integer vectors over all users, from what the mechanism releases of it.

        Every release is divided by the mean weight of the table's users, which makes it an estimate of the whole sum
        when preferences have nothing to do with what is summed. Several are averaged by inverse variance, in which the
        noise counts and, as the releases see different users, the sample.
        """
        releases = self.releases(spread, share)
        values, worths, noises = [], [], []
        for release in releases:
            noisy = self.meter.noisy(tally, self.levels, release, sensitivity, self.meter.draw(self.levels, release))
            self.made.append(release)
            total, squares = self._expected(release)
            values.append(noisy / (total / self._users / float(release.unit)))
            noise = 2 * (self._users / total) ** 2
            worths.append(1 / (noise + spread * squares * (self._users / total) ** 2))
            noises.append(noise)
        if not values:
            return Estimate(np.zeros_like(tally(np.zeros(len(self.levels), dtype=np.int64)), dtype=np.float64), 0.0)
        if len(values) == 1:
            return Estimate(values[0], float((2 / noises[0]) ** 0.5))
        weights = np.array(worths) / sum(worths)
        value = np.asarray(sum(weight * each for weight, each in zip(weights, values, strict=True)))
        noise = float((np.square(weights) * noises).sum())
        return Estimate(value, float((2 / noise) ** 0.5) if noise else inf)

    def count(self, rows: npt.NDArray[np.bool_], spread: float, share: Fraction = Fraction(1)) -> float:
        """How many rows are chosen, estimated. One row adds 1: the sensitivity is 1."""
        return float(self.estimate(lambda weights: np.array([weights[rows].sum()]), 1, spread, share).value[0])

    @property
    def _users(self) -> float:
        return float(self.preferences.total) or float(len(self.preferences.epsilons))

    def _expected(self, release: Release) -> tuple[float, float]:
        """Over the table; a table without users is taken to have one of each level."""
        sizes = self.preferences.sizes if self.preferences.total else np.ones_like(self.preferences.sizes)
        total, squares = release.expected(sizes)
        # A level that is in no entry of the table: all that is known of its users is that they weigh what they weigh.
        return (total, squares) if total else release.expected(np.ones_like(sizes))
