"""Budget Distribution: exponentially decreasing budgets inside a window."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Unpack

from streamdp.arrays import Counts
from streamdp.privacy.exact import as_fraction, to_text
from streamdp.privacy.mechanisms import noisy_at_least
from streamdp.strategies.base import Common, Cost, StreamStrategy, Verdict
from streamdp.strategies.description import Conditions, NoParameters, Outline
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
    summary = "when the counts changed; each release gets half of what the window has left"
    guarantees = ("window",)

    def __init__(self, parameters: NoParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        self.dissimilarity = self.epsilon / (2 * self.span)
        self._distance = L1Distance(self.cells)
        self._spent: list[tuple[int, Fraction]] = []

    @classmethod
    def outline(cls, parameters: Any, conditions: Conditions) -> Outline:
        # Each takes half of what the window has left, until less than a millionth (2**-20) of epsilon is.
        epsilon, releases = conditions.epsilon, min(conditions.span, 19)
        return Outline(releases, epsilon / 4, epsilon / 2 ** (releases + 1), decisions=epsilon / 2)

    def _decide(self, counts: Counts) -> Verdict:
        budget = self._next_budget()
        if not budget:
            return Verdict("cut_off")
        if self.last is None:
            self._spent.append((self.time_point, budget))
            return Verdict("first", budget)
        threshold = self.cells * self.sensitivity // budget + 1
        costs = (Cost(self.dissimilarity, "dissimilarity"),)
        distance = self._distance.between(counts, self.last)
        if not noisy_at_least(distance, threshold, self.dissimilarity, self.sensitivity, self._source):
            return Verdict("below", threshold=threshold, costs=costs)
        self._spent.append((self.time_point, budget))
        return Verdict("above", budget, threshold, costs)

    def _next_budget(self) -> Fraction:
        self._spent = [(point, epsilon) for point, epsilon in self._spent if point > self.time_point - self.span]
        left = self.epsilon / 2 - sum((epsilon for _, epsilon in self._spent), Fraction(0))
        finest = self.epsilon / _FINEST
        return (left / 2) // finest * finest

    def _progress(self) -> dict[str, Any]:
        return {"spent": [[point, to_text(epsilon)] for point, epsilon in self._spent]}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._spent = [(point, as_fraction(epsilon)) for point, epsilon in state["spent"]]
