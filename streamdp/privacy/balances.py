"""What was charged to the users of each level, and what each level has left: one balance a level.

Why a balance a level is enough for every person: a user of a level pays what the level pays. One whose preference is
lowered pays, from then on, what the lower level pays, which is never more (amounts do not fall from a level to the
next), so their whole sum stays within the balance of their first level, and what they pay after the change within that
of the new one. The same holds for a user who had no entry, and so the strictest level, until one was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from streamdp.privacy.entries import Charge
from streamdp.privacy.levels import Level
from streamdp.privacy.spending import Spending
from streamdp.privacy.terms import Terms


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is asked, and what is left of a limit that cannot bear it: that of the strictest level that cannot, or, when
    `level` is None, of everybody or of a reservation."""

    level: Level | None
    asked: Fraction
    left: Fraction
    limit: Fraction


class Balances:
    """Without levels everybody shares one balance, whose limit is the total."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._levels = terms.levels or (Level("everybody", terms.epsilon_total),)
        self._spendings = [Spending(terms.points) for _ in self._levels]

    def add(self, entry: Charge) -> None:
        for spending, amount in zip(self._spendings, self.amounts(entry), strict=True):
            if amount:
                spending.add(entry.time_point, amount)

    def remove(self, entry: Charge) -> None:
        for spending, amount in zip(self._spendings, self.amounts(entry), strict=True):
            if amount:
                spending.remove(entry.time_point, amount)

    def amounts(self, entry: Charge) -> tuple[Fraction, ...]:
        """What each level pays: all of them the same, unless the charge says otherwise."""
        return (entry.epsilon,) * len(self._levels) if entry.amounts is None else entry.amounts

    def check_amounts(self, amounts: Sequence[Fraction], epsilon: Fraction) -> None:
        """ValueError for amounts that no charge may have."""
        if not self._terms.levels:
            raise ValueError("a charge by level needs a ledger with levels")
        if len(amounts) != len(self._levels):
            raise ValueError(f"a charge by level has {len(self._levels)} amounts, one for each level")
        if amounts[0] < 0 or max(amounts) != epsilon or list(amounts) != sorted(amounts):
            raise ValueError("amounts do not fall from a level to the next, and the last is the charge's epsilon")

    def limits(self, reserved: Fraction) -> list[Fraction]:
        """What reservations, which everybody pays, leave each level."""
        return [level.epsilon - reserved for level in self._levels]

    def seen(self, time_point: int) -> list[Fraction]:
        """What each level was charged over the horizon, or in the window that ends at `time_point`."""
        finite = self._terms.is_finite
        return [each.total if finite else each.in_window(time_point) for each in self._spendings]

    def left(self, time_point: int, reserved: Fraction) -> list[Fraction]:
        """The most that a user of each level can be charged at `time_point`."""
        held = [self._heaviest(spending, time_point) for spending in self._spendings]
        return [limit - heaviest for limit, heaviest in zip(self.limits(reserved), held, strict=True)]

    def free(self, reserved: Fraction) -> Fraction:
        """What every level has left in every window: the most that can still be reserved."""
        held = (spending.heaviest_of_all() for spending in self._spendings)
        return min(limit - heaviest for limit, heaviest in zip(self.limits(reserved), held, strict=True))

    def shortage(
        self, amounts: Sequence[Fraction], time_point: int, reserved: Fraction, *, is_open: bool
    ) -> Shortage | None:
        """The strictest level that `amounts` do not fit at `time_point`, where nothing is left unless it is open."""
        left = self.left(time_point, reserved) if is_open else [Fraction(0)] * len(self._levels)
        for level, asked, free, limit in zip(self._levels, amounts, left, self.limits(reserved), strict=True):
            if asked > free:
                return Shortage(level if self._terms.levels else None, asked, free, limit)
        return None

    def first_fit(self, amounts: Sequence[Fraction], time_point: int, reserved: Fraction) -> int | None:
        """The first time point from `time_point` on that every level's amount fits; None when there is none."""
        spare = [limit - asked for limit, asked in zip(self.limits(reserved), amounts, strict=True)]
        if min(spare) < 0:
            return None
        pairs = list(zip(self._spendings, spare, strict=True))
        if self._terms.is_finite:
            fits = time_point <= self._terms.points and all(each.total <= most for each, most in pairs)
            return time_point if fits else None
        while True:
            found = max(spending.first_fit(time_point, most) for spending, most in pairs)
            if found == time_point:
                return found
            time_point = found

    def _heaviest(self, spending: Spending, time_point: int) -> Fraction:
        return spending.total if self._terms.is_finite else spending.heaviest(time_point)
