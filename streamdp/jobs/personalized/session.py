"""What a target works with: a mechanism, a meter, the rows' levels, and estimates of sums over all users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.jobs.base import SMALLEST_EPSILON
from streamdp.jobs.personalized.mechanisms import Settings, releases_of
from streamdp.jobs.personalized.preferences import Levels, Preferences
from streamdp.jobs.personalized.releases import LevelMeter, Release, Tally
from streamdp.privacy.noise import NoiseSource


class Estimate(NamedTuple):
    """A sum over all users, estimated, and the epsilon at which plain noise would be as large."""

    value: Floats
    epsilon: float


class Part(NamedTuple):
    """What one release says of a whole sum. `noise` is the variance of its noise, for a sensitivity of 1, and `worth`
    one over its whole variance, in which the noise counts and, as releases see different users, the sample."""

    value: Floats
    worth: float
    noise: float


def pooled(parts: Sequence[Part], size: int) -> Part:
    """The average by worth; zero, and no noise, when nothing was released."""
    if not parts:
        return Part(np.zeros(size), 0.0, 0.0)
    if len(parts) == 1:
        return parts[0]
    worth = sum(part.worth for part in parts)
    weights = [part.worth / worth for part in parts]
    value = np.asarray(sum(weight * part.value for weight, part in zip(weights, parts, strict=True)))
    return Part(value, worth, sum(weight**2 * part.noise for weight, part in zip(weights, parts, strict=True)))


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

    def releases(self, spread: float, share: Fraction = Fraction(1), sensitivity: int = 1) -> list[Release]:
        """What the mechanism releases for a share of everybody's epsilon.

        A release that costs nobody as much as the least epsilon of any job says nothing, and is neither made nor paid.
        Such are the rounds on what 0.3 leaves of 0.1 + 0.2, and what includes a user who allows 1e-17.
        """
        limit = self.settings.threshold
        limit = None if limit is None else limit * share
        settings = replace(self.settings, threshold=limit, sensitivity=sensitivity)
        releases = releases_of(self.preferences.scaled(share), spread, settings)
        return [release for release in releases if max(release.costs) >= SMALLEST_EPSILON * share]

    def parts(self, tally: Tally, sensitivity: int, spread: float, share: Fraction = Fraction(1)) -> list[Part]:
        """What each release of the mechanism says of a sum of integer vectors over all users.

        Every release is divided by the mean weight of the table's users, which makes it an estimate of the whole sum
        when preferences have nothing to do with what is summed.
        """
        found = []
        for release in self.releases(spread, share, sensitivity):
            noisy = self.meter.noisy(tally, self.levels, release, sensitivity, self.meter.draw(self.levels, release))
            self.made.append(release)
            total, squares = self._expected(release)
            noise = 2 * (self.users / total) ** 2
            worth = 1 / (noise + spread * squares * (self.users / total) ** 2)
            found.append(Part(noisy / (total / self.users / float(release.unit)), worth, noise))
        return found

    def estimate(self, tally: Tally, sensitivity: int, spread: float, share: Fraction = Fraction(1)) -> Estimate:
        """A sum of integer vectors over all users, from all that the mechanism releases of it."""
        found = pooled(self.parts(tally, sensitivity, spread, share), tally(np.zeros(len(self.levels), np.int64)).size)
        return Estimate(found.value, float((2 / found.noise) ** 0.5) if found.noise else 0.0)

    def count(self, rows: npt.NDArray[np.bool_], spread: float, share: Fraction = Fraction(1)) -> float:
        """How many rows are chosen, estimated. One row adds 1: the sensitivity is 1."""
        return float(self.estimate(lambda weights: np.array([weights[rows].sum()]), 1, spread, share).value[0])

    @property
    def users(self) -> float:
        """How many users the table has."""
        return float(self.preferences.total)

    def _expected(self, release: Release) -> tuple[float, float]:
        total, squares = release.expected(self.preferences.sizes)
        # Levels that no entry of the table has: all that is known of their users is what they weigh.
        return (total, squares) if total else release.expected(np.ones_like(self.preferences.sizes))
