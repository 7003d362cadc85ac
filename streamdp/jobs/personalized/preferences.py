"""A public table of preferences as levels: a few exact epsilons, and how many users of the table have each.

The table is public and does not depend on who is present. Everything that a mechanism decides before it looks at data
(partitions, thresholds, caps, the weights of its estimates) follows from this object alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.jobs.base import SMALLEST_EPSILON, ParameterError
from streamdp.jobs.values import column_of, floats_of
from streamdp.privacy.exact import as_fraction

Levels = npt.NDArray[np.int64]

MAX_LEVELS = 256
"""Beyond, preferences are rounded down to this many of those that were given: a dynamic programme takes its square."""


@dataclass(frozen=True, eq=False)
class Preferences:
    """Levels, strictest first, each with the number of users that the public table has of it."""

    epsilons: tuple[Fraction, ...]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of_table(cls, table: Any, max_levels: int = MAX_LEVELS) -> Preferences:
        """From the preferences of all users of the table, numbers above zero."""
        values = _numbers(table)
        if not len(values):
            raise ParameterError(
                "preferences: the table is empty; give the preference of every user who may be present"
            )
        if np.isnan(values).any():
            values = np.where(np.isnan(values), np.nanmin(values) if not np.isnan(values).all() else np.nan, values)
        if not (values > 0).all() or not np.isfinite(values).all():
            raise ParameterError("preferences: every one is a finite number above zero; who wants less stays out")
        distinct, counts = np.unique(values, return_counts=True)
        if len(distinct) > max_levels:
            starts = _representatives(distinct, max_levels)
            distinct, counts = distinct[starts], np.add.reduceat(counts, starts)
        return cls.of_levels([as_fraction(value) for value in distinct.tolist()], counts)

    @classmethod
    def of_levels(cls, epsilons: Sequence[Fraction], sizes: Any) -> Preferences:
        """From exact epsilons in ascending order, and the number of users of the table at each.

        A table without users is taken to have one at each level.
        """
        counts = np.asarray(sizes, dtype=np.int64)
        if len(epsilons) != len(counts) or not len(counts) or (counts < 0).any():
            raise ParameterError("preferences: each level has a size, a number of users")
        if any(high <= low for low, high in pairwise(epsilons)) or epsilons[0] < 0:
            raise ParameterError("preferences: levels rise from the strictest on")
        if epsilons[-1] < SMALLEST_EPSILON:
            raise ParameterError(f"preferences: somebody must allow at least {float(SMALLEST_EPSILON):g}")
        return cls(tuple(epsilons), counts if counts.any() else np.ones_like(counts))

    @property
    def total(self) -> int:
        """How many users the table has."""
        return int(self.sizes.sum())

    @property
    def strictest(self) -> Fraction:
        return self.epsilons[0]

    def floats(self) -> npt.NDArray[np.float64]:
        """For choices that cost nothing and promise nothing; what is paid is decided in exact numbers."""
        return np.array([float(epsilon) for epsilon in self.epsilons])

    def levels_of(self, preferences: Any) -> Levels:
        """The level of each row, rounded down; a missing preference, or what is no number, is the strictest.

        One below the strictest is `OUTSIDE`, a level of no weight: an error would tell that such a user is present.
        """
        values = floats_of(column_of(preferences))
        levels = np.searchsorted(self._least_floats(), values, side="right") - 1
        levels[np.isnan(values)] = 0
        return levels.astype(np.int64)

    def _least_floats(self) -> npt.NDArray[np.float64]:
        """For each level the smallest float that stands for no less: nothing is rounded up."""
        floats = self.floats()
        short = [as_fraction(value) < epsilon for value, epsilon in zip(floats.tolist(), self.epsilons, strict=True)]
        return np.where(short, np.nextafter(floats, np.inf), floats)

    def scaled(self, share: Fraction) -> Preferences:
        """A share of everybody's epsilon."""
        return Preferences(tuple(epsilon * share for epsilon in self.epsilons), self.sizes)


def _numbers(values: Any) -> npt.NDArray[np.float64]:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("preferences: give one number for each user") from None
    if numbers.ndim != 1:
        raise ParameterError("preferences: give one number for each user, in one dimension")
    return numbers


def _representatives(distinct: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.intp]:
    """Where to keep a value of the sorted ones so that those above it, up to the next, lose little by rounding down."""
    steps = np.linspace(distinct[0], distinct[-1], most, endpoint=False)
    return np.unique(np.searchsorted(distinct, steps))
