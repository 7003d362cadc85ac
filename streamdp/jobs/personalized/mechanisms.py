"""Which releases a mechanism makes, from the public table and from public facts about the target alone.

`spread` is how much what is summed varies from user to user, as far as is known in public: f (1 - f) for a count that a
fraction f of the users is expected in. It matters because an estimate from users of different weight is one from a
sample: what is seen of the others decides how far off it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from streamdp.arrays import Floats
from streamdp.jobs.base import ParameterError
from streamdp.jobs.personalized.partition import (
    precision,
    privacy_aware_partition,
    utility_partition,
    without_dominated,
)
from streamdp.jobs.personalized.preferences import Preferences
from streamdp.jobs.personalized.releases import Release, finest_lattice, sampled, uniform, weighted


@dataclass(frozen=True)
class Settings:
    """How a mechanism is to be run. `threshold` None chooses one by the public table. `sensitivity` is the largest L1
    norm of what one row adds to a sum."""

    mechanism: str
    rounds: int = 1
    threshold: Fraction | None = None
    smallest: int = 1
    sensitivity: int = 1


def minimum(preferences: Preferences, spread: float, settings: Settings) -> list[Release]:
    """Everybody at the smallest preference of all."""
    return [uniform([True] * len(preferences.epsilons), preferences.strictest)]


def threshold(preferences: Preferences, spread: float, settings: Settings) -> list[Release]:
    """Those who allow the threshold, at the smallest preference among them; the others not at all."""
    chosen = _threshold(preferences, settings, _threshold_worth(preferences, spread))
    return [uniform([epsilon >= chosen for epsilon in preferences.epsilons], chosen)]


def sampling(preferences: Preferences, spread: float, settings: Settings) -> list[Release]:
    """Everybody at the threshold, those who allow less with a probability that makes up for it (Jorgensen et al.)."""
    chosen = _threshold(preferences, settings, _sampling_worth(preferences, spread))
    return [sampled(preferences.epsilons, chosen)]


def privacy_aware(preferences: Preferences, spread: float, settings: Settings) -> list[Release]:
    """Parts of least waste, in rounds over what is left."""
    return _rounds(preferences, spread, settings, privacy_aware_partition)


def utility(preferences: Preferences, spread: float, settings: Settings) -> list[Release]:
    """Parts of greatest precision, in rounds over what is left."""
    return _rounds(preferences, spread, settings, utility_partition)


def weighted_sum(preferences: Preferences, spread: float, settings: Settings) -> list[Release]:
    """One sum in which each row weighs its preference, up to a cap.

    The variance of the estimate, (2 + spread * sum of w^2) / (sum of w)^2 for weights w at most the preferences, is
    least for w = min(preference, cap): the cap trades noise for an even sample. It is chosen among the preferences.
    """
    epsilon, size = preferences.floats(), preferences.sizes.astype(np.float64)
    above = size.sum() - np.cumsum(size)
    sums = np.cumsum(epsilon * size) + above * epsilon
    squares = np.cumsum(np.square(epsilon) * size) + above * np.square(epsilon)
    variance = np.full(len(epsilon), np.inf)
    np.divide(2 + spread * squares, np.square(sums), out=variance, where=np.square(sums) > 0)
    # When nobody of the table pays anything, the last: then nobody is capped.
    best = len(epsilon) - 1 - int(variance[::-1].argmin())
    cap = preferences.epsilons[best]
    return [weighted(preferences.epsilons, cap, finest_lattice(cap, settings.sensitivity))]


MECHANISMS: dict[str, Callable[[Preferences, float, Settings], list[Release]]] = {
    "minimum": minimum,
    "threshold": threshold,
    "sampling": sampling,
    "privacy_aware": privacy_aware,
    "utility": utility,
    "weighted": weighted_sum,
}


def releases_of(preferences: Preferences, spread: float, settings: Settings) -> list[Release]:
    """What the mechanism releases. Nobody pays more than their preference; who allows nothing is left out."""
    return [
        release
        for release in MECHANISMS[settings.mechanism](preferences, spread, settings)
        if release.unit and any(release.weights)
    ]


def _rounds(
    preferences: Preferences, spread: float, settings: Settings, partition: Callable[..., list[tuple[int, int]]]
) -> list[Release]:
    """Each round partitions what the earlier ones left: all levels of a part pay the least that one of them has."""
    left = list(preferences.epsilons)
    releases: list[Release] = []
    for _ in range(settings.rounds):
        order = sorted((place for place, each in enumerate(left) if each), key=lambda place: left[place])
        if not order:
            break
        epsilons, sizes = [left[place] for place in order], preferences.sizes[order]
        if not sizes.any():
            sizes = np.ones_like(sizes)
        parts = without_dominated(partition(epsilons, sizes, spread, settings.smallest), epsilons, sizes)
        for start, end in parts:
            members = set(order[start:end])
            release = uniform([place in members for place in range(len(left))], epsilons[start])
            releases.append(release)
            left = [each - cost for each, cost in zip(left, release.costs, strict=True)]
    return releases


def _threshold(preferences: Preferences, settings: Settings, worth: Floats) -> Fraction:
    """The smallest level that allows what was asked, or that of greatest worth."""
    if settings.threshold is None:
        return preferences.epsilons[int(worth.argmax())]
    if settings.threshold > preferences.epsilons[-1]:
        raise ParameterError("threshold: above every preference, so that nobody would be counted")
    if settings.mechanism == "sampling":
        return settings.threshold
    return next(epsilon for epsilon in preferences.epsilons if epsilon >= settings.threshold)


def _threshold_worth(preferences: Preferences, spread: float) -> Floats:
    users = preferences.sizes[::-1].cumsum()[::-1].astype(np.float64)
    return precision(users, preferences.floats(), spread)


def _sampling_worth(preferences: Preferences, spread: float) -> Floats:
    epsilon, size = preferences.floats(), preferences.sizes.astype(np.float64)
    below = np.cumsum(np.expm1(epsilon) * size) - np.expm1(epsilon) * size
    above = size[::-1].cumsum()[::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        users = below / np.expm1(epsilon) + above
        worth = precision(np.nan_to_num(users), epsilon, spread)
    return np.where(epsilon > 0, worth, -1.0)
