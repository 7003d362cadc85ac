"""What was spent at which time points, and how much of it a window holds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor, lcm


@dataclass(slots=True)
class Spending:
    """What was spent at each time point, and how much of it any window of `window` consecutive points holds.

    One of these is one balance: the ledger keeps one for all counted charges and one per reservation, each held against
    one limit. Amounts are whole numbers of `1/unit`, the common denominator so far: exact as fractions are, and window
    sums cost integer additions only.
    """

    window: int
    unit: int = 1
    points: list[int] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)
    units: int = 0

    @property
    def total(self) -> Fraction:
        return Fraction(self.units, self.unit)

    def add(self, time_point: int, epsilon: Fraction) -> None:
        unit = lcm(self.unit, epsilon.denominator)
        if unit != self.unit:
            factor = unit // self.unit
            self.at = {point: amount * factor for point, amount in self.at.items()}
            self.units *= factor
            self.unit = unit
        if time_point not in self.at:
            insort(self.points, time_point)
        amount = int(epsilon * unit)
        self.at[time_point] = self.at.get(time_point, 0) + amount
        self.units += amount

    def remove(self, time_point: int, epsilon: Fraction) -> None:
        amount = int(epsilon * self.unit)
        self.units -= amount
        self.at[time_point] -= amount
        if not self.at[time_point]:
            del self.at[time_point]
            del self.points[bisect_left(self.points, time_point)]

    def in_window(self, last: int) -> Fraction:
        """The sum over the window that ends at `last`."""
        return Fraction(self._sum(last), self.unit)

    def heaviest(self, time_point: int) -> Fraction:
        """The largest sum of any window that holds `time_point`."""
        newest = self.points[-1] if self.points else 0
        largest = 0
        for end, level in self._windows(time_point):
            if end >= time_point + self.window:
                break
            largest = max(largest, level)
            if end >= newest:
                break  # from here on points only leave
        return Fraction(largest, self.unit)

    def heaviest_of_all(self) -> Fraction:
        if not self.points:
            return Fraction(0)
        return Fraction(max(level for _, level in self._windows(self.points[0])), self.unit)

    def first_fit(self, time_point: int, most: Fraction) -> int:
        """The first point from `time_point` on all of whose windows hold at most `most` (not negative)."""
        bound = floor(most * self.unit)
        candidate, blocked = time_point, False
        for end, level in self._windows(time_point):
            if blocked:
                candidate = end
            if end >= candidate + self.window:
                break
            blocked = level > bound
        return candidate

    def _sum(self, last: int) -> int:
        held = self.points[bisect_right(self.points, last - self.window) : bisect_right(self.points, last)]
        return sum(self.at[point] for point in held)

    def _windows(self, last: int) -> Iterator[tuple[int, int]]:
        """Sums over the windows that end at `last` and later, as (first end, sum) wherever the sum changes.

        Costs one step for each point that enters or leaves, so that a check is linear in the charged points in reach.
        """
        leaving = bisect_right(self.points, last - self.window)
        entering = bisect_right(self.points, last)
        level = self._sum(last)
        yield last, level
        while leaving < len(self.points):
            end = self.points[leaving] + self.window
            if entering < len(self.points) and self.points[entering] <= end:
                end = self.points[entering]
                level += self.at[end]
                entering += 1
            if self.points[leaving] + self.window == end:
                level -= self.at[self.points[leaving]]
                leaving += 1
            yield end, level
