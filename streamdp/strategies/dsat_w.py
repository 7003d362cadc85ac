"""DSAT without an end: distance-based sampling with an adaptive threshold under w-event privacy."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.sparse_vector import SparseVector
from streamdp.strategies.base import Cost, Reason
from streamdp.strategies.description import Conditions
from streamdp.strategies.dsat import AdaptiveParameters, AdaptiveStrategy
from streamdp.strategies.sampling import DistanceParameters, split


class WindowPlan:
    """At most `C` releases in any `w` points, and a fresh sparse vector for every stretch between two of them.

    Guarantee: a window holds at most `C` releases of `e2 / C`, because a point whose last `w - 1` points hold `C`
    asks nothing. A stretch of questions costs `e1 / C` however long it is: one `SparseVector(e1 / C, m, 1)`. A window
    with `C` releases asks nothing after the last of them, so it meets at most `C` stretches; one with fewer meets at
    most one stretch more than it has releases: at most `C` again. Together `epsilon`. The threshold noise is fresh in
    every stretch: kept for ever, as printed, it would be revealed by releases outside the window.

    A stretch is charged at its first question, so the entries within any window stay within `epsilon` too.
    """

    def __init__(self, parameters: DistanceParameters, conditions: Conditions) -> None:
        self.releases = conditions.at_most_span("releases", parameters.releases)
        decisions, for_releases = split(conditions.epsilon, parameters.decision_ratio)
        self.stretch = decisions / self.releases
        self.share = for_releases / self.releases
        self.sparse_vector: SparseVector | None = None
        self._window = conditions.span
        self._sensitivity = conditions.sensitivity
        self._recent: list[int] = []
        self._any = False

    def unconditional(self, time_point: int) -> tuple[Fraction, Reason] | None:
        return None if self._any else (self.share, "first")

    def cut_off(self, time_point: int) -> bool:
        return self._in_window(time_point) >= self.releases

    def ask(self, distance: int, threshold: int, source: NoiseSource | None) -> tuple[bool, tuple[Cost, ...]]:
        costs: tuple[Cost, ...] = ()
        if self.sparse_vector is None:
            self.sparse_vector = SparseVector(self.stretch, self._sensitivity, 1, source=source)
            costs = (Cost(self.stretch, "decisions"),)
        return self.sparse_vector.above(distance, threshold), costs

    def released(self, time_point: int, epsilon: Fraction) -> None:
        self._any = True
        self._recent = [*(point for point in self._recent if point > time_point - self._window), time_point]
        self.sparse_vector = None

    def rate(self, time_point: int) -> float:
        return self._in_window(time_point) / min(time_point, self._window)

    def state(self) -> dict[str, Any]:
        return {
            "any": self._any,
            "recent": self._recent,
            "sparse_vector": None if self.sparse_vector is None else self.sparse_vector.state(),
        }

    def resume(self, state: Mapping[str, Any], source: NoiseSource | None) -> None:
        self._any = state["any"]
        self._recent = list(state["recent"])
        if state["sparse_vector"] is not None:
            self.sparse_vector = SparseVector.from_state(state["sparse_vector"], source)

    def _in_window(self, time_point: int) -> int:
        """Releases among the `w - 1` points before this one."""
        return sum(point > time_point - self._window for point in self._recent)


class DsatW(AdaptiveStrategy):
    """DSAT for ever: at most `releases` releases in any window, decided by distance against an adaptive threshold.

    Guarantee: w-event, `epsilon` in every window (`WindowPlan` has the argument). Sensitivity `m`. Li et al. (2015),
    Algorithm 3, corrected: fresh threshold noise per stretch, the rate counted over `min(i, w)` points, and a repeat
    repeats what was released.
    """

    kind = "dsat_w"
    summary = "the same, for ever"
    guarantees = ("window",)

    def _plan(self, parameters: AdaptiveParameters) -> WindowPlan:
        return WindowPlan(parameters, self.conditions)
