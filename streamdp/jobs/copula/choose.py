"""Which method, by public facts: the domain, epsilon and the paid number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from streamdp.jobs.copula.fitting import MAX_PARTS, SMALL_DOMAIN

METHODS = ("auto", "hybrid", "kendall", "mle")
# Rows times epsilon that each part of a hybrid needs before splitting gains more than the noise of its parts costs.
WORTH_A_PART = 2500


def small_attributes(sizes: Sequence[int]) -> list[int]:
    """Attributes that may split the data, those of fewest values first."""
    small = [place for place, size in enumerate(sizes) if 1 < size < SMALL_DOMAIN]
    return sorted(small, key=lambda place: sizes[place])


def chosen(method: str, sizes: Sequence[int], rows: int, epsilon: Fraction) -> tuple[str, list[int], str]:
    """The method used, the attributes it splits by, and why."""
    if method in ("kendall", "mle"):
        return method, [], "as asked"
    splitting = small_attributes(sizes)
    if method == "hybrid":
        while prod(sizes[place] for place in splitting) > MAX_PARTS:
            splitting.pop()
        return method, splitting, "as asked"
    while splitting and prod(sizes[place] for place in splitting) * WORTH_A_PART > rows * epsilon:
        splitting.pop()
    if not splitting:
        return "kendall", [], "no attribute of few values that rows and epsilon suffice to split by"
    return "hybrid", splitting, "rows and epsilon suffice to split by the attributes of fewest values"
