"""Partitions of the levels: which users are counted together, at the smallest epsilon among them.

Exact dynamic programmes over sorted levels (Li et al. 2017, Algorithms 1 and 2, with their base cases set right: no
parts cover no users). They read the public table only, so they cost nothing. For L levels they take O(L^2) steps, each
over a whole column, and memory linear in L: a million users are first put into at most 256 levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats

Part = tuple[int, int]
"""Levels from the first number up to, and without, the second."""

MAX_PARTS = 32


def precision(users: Floats, epsilon: Floats, spread: float) -> Floats:
    """What an estimate of a frequency from that many users at that epsilon adds: one over its variance.

    That of the noise, and that of a sample of so many users of something whose variance from user to user is `spread`.
    Averaged by these, disjoint parts have the variance 1 / (sum of these) - spread / (users in all), so the sum is what
    to maximise. (The seed maximises a variance, and leaves the sample out.)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = 2 / np.square(users * epsilon) + spread / users
        return np.where(np.isfinite(variance), 1 / variance, 0.0)


def utility_partition(
    epsilons: Sequence[Fraction], sizes: npt.NDArray[np.int64], spread: float, smallest: int
) -> list[Part]:
    """The partition of greatest total precision; the number of parts is whatever gives it.

    Parts have at least `smallest` users of the table each, unless all levels together have fewer.
    """
    epsilon, before = _columns(epsilons, sizes)
    levels, total = len(epsilon), float(before[-1])
    best = np.full(levels + 1, -np.inf)
    best[0] = 0.0
    origin = np.zeros(levels + 1, dtype=np.int64)
    for end in range(1, levels + 1):
        users = before[end] - before[:end]
        worth = best[:end] + precision(users, epsilon[:end], spread)
        worth[users < _floor(smallest, total)] = -np.inf
        origin[end] = worth.argmax()
        best[end] = worth[origin[end]]
    return _trace(origin, levels)


def privacy_aware_partition(
    epsilons: Sequence[Fraction], sizes: npt.NDArray[np.int64], spread: float, smallest: int
) -> list[Part]:
    """For each number of parts the one of least waste, the sum of squares of what users keep unspent; of those the one
    of greatest precision. (The seed's own criterion for the number, Eq. 1, always wants the most.)"""
    epsilon, before = _columns(epsilons, sizes)
    chosen, most = [(0, len(epsilons))], -np.inf
    for parts in _least_waste(tuple(epsilons), tuple(sizes.tolist()), smallest):
        starts, ends = np.array(parts).T
        worth = float(precision(before[ends] - before[starts], epsilon[starts], spread).sum())
        if worth > most:
            chosen, most = list(parts), worth
    return chosen


@lru_cache(maxsize=64)
def _least_waste(
    epsilons: tuple[Fraction, ...], counts: tuple[int, ...], smallest: int
) -> tuple[tuple[Part, ...], ...]:
    """The partition of least waste for every number of parts that there can be."""
    sizes = np.array(counts)
    epsilon, before = _columns(epsilons, sizes)
    levels, total = len(epsilon), float(before[-1])
    sums = np.concatenate([[0], np.cumsum(epsilon * sizes)])
    squares = np.concatenate([[0], np.cumsum(np.square(epsilon) * sizes)])
    floor = _floor(smallest, total)
    least = np.full(levels + 1, np.inf)
    least[0] = 0.0
    origins: list[npt.NDArray[np.int64]] = []
    found: list[tuple[Part, ...]] = []
    for parts in range(1, min(MAX_PARTS, levels) + 1):
        waste, origin = np.full(levels + 1, np.inf), np.zeros(levels + 1, dtype=np.int64)
        for end in range(parts, levels + 1):
            users = before[end] - before[:end]
            inner = squares[end] - squares[:end] - 2 * epsilon[:end] * (sums[end] - sums[:end])
            wasted = least[:end] + inner + np.square(epsilon[:end]) * users
            wasted[users < floor] = np.inf
            origin[end] = wasted.argmin()
            waste[end] = wasted[origin[end]]
        origins.append(origin)
        least = waste
        if np.isfinite(waste[levels]):
            found.append(tuple(_trace_counted(origins, levels)))
    return tuple(found)


def without_dominated(parts: Sequence[Part], epsilons: Sequence[Fraction], sizes: npt.NDArray[np.int64]) -> list[Part]:
    """Of parts with equally many users only the one with the most epsilon (Li et al. 2017, section 4.4)."""
    best: dict[int, Part] = {}
    for start, end in parts:
        users = int(sizes[start:end].sum())
        if users not in best or epsilons[best[users][0]] < epsilons[start]:
            best[users] = (start, end)
    return sorted(best.values())


def _columns(epsilons: Sequence[Fraction], sizes: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    epsilon = np.array([float(each) for each in epsilons])
    return epsilon, np.concatenate([[0.0], np.cumsum(sizes, dtype=np.float64)])


def _floor(smallest: int, total: float) -> float:
    return min(float(smallest), total)


def _trace(origin: npt.NDArray[np.int64], end: int) -> list[Part]:
    parts: list[Part] = []
    while end > 0:
        parts.append((int(origin[end]), end))
        end = int(origin[end])
    return parts[::-1]


def _trace_counted(origins: Sequence[npt.NDArray[np.int64]], end: int) -> list[Part]:
    parts: list[Part] = []
    for origin in reversed(origins):
        parts.append((int(origin[end]), end))
        end = int(origin[end])
    return parts[::-1]
