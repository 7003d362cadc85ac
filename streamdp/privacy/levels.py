"""Levels of privacy: the finitely many epsilons that users' preferences are kept at.

A stream with preferences promises each user the epsilon of their own level, and the ledger keeps a balance for each. A
level is a class with a name, or a step of a public grid that numbers are rounded down to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from streamdp.privacy.exact import as_fraction, decimal_text, to_text

# The ledger walks through all of them at every charge, and a report has a line for each.
MAX_LEVELS = 64


@dataclass(frozen=True, slots=True)
class Level:
    """What the users of one level are promised: `epsilon` over the horizon, or in every window."""

    name: str
    epsilon: Fraction

    def __str__(self) -> str:
        return f"{self.name} ({decimal_text(self.epsilon)})"


def checked_levels(levels: Iterable[Level], total: Fraction) -> tuple[Level, ...]:
    """The levels, strictest first; ValueError when they cannot be told apart or promise more than the total."""
    ordered = tuple(levels)
    if len(ordered) > MAX_LEVELS:
        raise ValueError(f"there are at most {MAX_LEVELS} levels")
    if len({level.name for level in ordered}) < len(ordered):
        raise ValueError("each level has a name of its own")
    if any(high.epsilon <= low.epsilon for low, high in pairwise(ordered)):
        raise ValueError("levels are listed from the strictest on, each with more epsilon than the one before")
    if ordered and (ordered[0].epsilon <= 0 or ordered[-1].epsilon > total):
        raise ValueError("a level has an epsilon above zero and at most the total")
    return ordered


def levels_state(levels: Iterable[Level]) -> list[list[str]]:
    return [[level.name, to_text(level.epsilon)] for level in levels]


def levels_from_state(state: Iterable[Any]) -> tuple[Level, ...]:
    return tuple(Level(name, as_fraction(epsilon)) for name, epsilon in state)
