"""Budget Absorption: equal shares inside a window, which a release may collect from points that did not release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from streamdp.arrays import Counts
from streamdp.privacy.mechanisms import noisy_at_least
from streamdp.strategies.base import Common, Cost, StreamStrategy, Verdict
from streamdp.strategies.description import Conditions, NoParameters, Outline
from streamdp.strategies.statistic import L1Distance


class BudgetAbsorption(StreamStrategy):
    """BA of Kellaris, Papadopoulos, Xiao, Papadias (PVLDB 7(12), 2014), in exact integers.

    Guarantee: w-event. Every point that asks spends `epsilon / (2w)` on the noisy distance to the last release (L1 on
    counts, sensitivity `m`). Every point also owns a share `epsilon / (2w)` for releases: a release spends its own
    and at most `w - 1` unused ones since the last nullified point, and nullifies as many points after it as it
    absorbed. So a window that holds a release but not all the points it absorbed from holds as many nullified ones,
    or ends with it: its releases spend at most `w` shares, `epsilon / 2`. It releases iff the noisy distance exceeds
    the error a release would carry, `cells * m / budget`, which is public. A nullified or skipped point asks nothing;
    a skipped one leaves its share to be absorbed.
    """

    kind = "ba"
    summary = "when the counts changed; each release absorbs what earlier points left unused"
    guarantees = ("window",)

    def __init__(self, parameters: NoParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        self.share = self.epsilon / (2 * self.span)
        self._distance = L1Distance(self.cells)
        self._taken_up_to = 0  # the last point whose share is spent or nullified

    @classmethod
    def outline(cls, parameters: Any, conditions: Conditions) -> Outline:
        half = conditions.epsilon / 2
        return Outline(conditions.span, half, half / conditions.span, decisions=half)

    def _decide(self, counts: Counts) -> Verdict:
        if self.time_point <= self._taken_up_to:
            return Verdict("nullified")
        shares = min(self.time_point - self._taken_up_to, self.span)
        budget = shares * self.share
        if self.last is None:
            self._taken_up_to = self.time_point + shares - 1
            return Verdict("first", budget)
        threshold = self.cells * self.sensitivity // budget + 1
        costs = (Cost(self.share, "dissimilarity"),)
        distance = self._distance.between(counts, self.last)
        if not noisy_at_least(distance, threshold, self.share, self.sensitivity, self._source):
            return Verdict("below", threshold=threshold, costs=costs)
        self._taken_up_to = self.time_point + shares - 1
        return Verdict("above", budget, threshold, costs)

    def _progress(self) -> dict[str, Any]:
        return {"taken_up_to": self._taken_up_to}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._taken_up_to = state["taken_up_to"]
