"""Budget Distribution: exponentially decreasing budgets inside a window."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Unpack

from streamdp.arrays import Counts
from streamdp.privacy.exact import as_fraction, to_text
from streamdp.privacy.mechanisms import noisy_at_least
from streamdp.strategies.base import Charge, Common, StreamStrategy, Verdict, window_of
from streamdp.strategies.statistic import L1Distance

# Budgets are rounded down to this fraction of epsilon. Halving for ever would otherwise grow rationals without end,
# and a release with less than this would be all noise.
_FINEST = 2**20


class BudgetDistribution(StreamStrategy):
    """BD of Kellaris, Papadopoulos, Xiao, Papadias (PVLDB 7(12), 2014), in exact integers.

    Guarantee: w-event. Every point that asks spends `epsilon / (2w)` on the noisy distance to the last release (L1 on
    counts, sensitivity `m`), and a release half of what the window's other `w - 1` points left of `epsilon / 2`: so any
    window holds at most `epsilon / 2` of either. It releases iff the noisy distance exceeds the error a release would
    carry, `cells * m / budget`, which is public. The paper's average over cells is this divided by `cells`.
    """

    kind = "bd"

    def __init__(self, **common: Unpack[Common]) -> None:
        window_of(self.kind, common)
        super().__init__({}, **common)
        self.dissimilarity = self.epsilon / (2 * self.span)
        self._distance = L1Distance(self.cells)
        self._spent: list[tuple[int, Fraction]] = []

    def _decide(self, counts: Counts) -> Verdict:
        budget = self._next_budget()
        if not budget:
            return Verdict("cut_off")
        if self.last is None:
            self._spent.append((self.time_point, budget))
            return Verdict("first", budget)
        threshold = self.cells * self.sensitivity // budget + 1
        charges = (Charge(self.dissimilarity, "dissimilarity"),)
        distance = self._distance.between(counts, self.last)
        if not noisy_at_least(distance, threshold, self.dissimilarity, self.sensitivity, self._source):
            return Verdict("below", threshold=threshold, charges=charges)
        self._spent.append((self.time_point, budget))
        return Verdict("above", budget, threshold, charges)

    def _next_budget(self) -> Fraction:
        self._spent = [(point, epsilon) for point, epsilon in self._spent if point > self.time_point - self.span]
        left = self.epsilon / 2 - sum((epsilon for _, epsilon in self._spent), Fraction(0))
        finest = self.epsilon / _FINEST
        return (left / 2) // finest * finest

    def _progress(self) -> dict[str, Any]:
        return {"spent": [[point, to_text(epsilon)] for point, epsilon in self._spent]}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._spent = [(point, as_fraction(epsilon)) for point, epsilon in state["spent"]]
