"""Distance-based sampling: the part DSFT, DSAT and DSAT-w have in common, and their budget over a finite horizon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.sparse_vector import SparseVector
from streamdp.strategies.base import Charge, Rational, Reason, StreamStrategy, Verdict
from streamdp.strategies.controller import Controller
from streamdp.strategies.statistic import L1Distance


class SamplingPlan(Protocol):
    """How the budget of decisions and releases is laid out over time, and what of it is used."""

    share: Fraction
    """What a release after an "above" costs."""

    def unconditional(self, time_point: int) -> tuple[Fraction, Reason] | None:
        """The charge and reason of a release that takes no question, if this point is one."""

    def cut_off(self, time_point: int) -> bool:
        """Whether no release is left for this point, so that nothing may be asked."""

    def ask(self, distance: int, threshold: int, source: NoiseSource | None) -> tuple[bool, tuple[Charge, ...]]:
        """Whether the private distance reaches the public threshold, and what that question was charged."""

    def released(self, time_point: int, epsilon: Fraction) -> None:
        """Note a release."""

    def rate(self, time_point: int) -> float:
        """Releases before this point over the points they are counted in: public."""

    def state(self) -> dict[str, Any]:
        """What is used, as JSON."""

    def resume(self, state: Mapping[str, Any], source: NoiseSource | None) -> None:
        """Go on where `state()` was taken."""


@dataclass(frozen=True)
class DistanceSampling:
    """One decision per point: release unasked, repeat unasked, or ask how far the histogram has moved.

    The threshold is fixed, or a controller moves it at every point that asks, before it asks.
    """

    plan: SamplingPlan
    distance: L1Distance
    threshold: int | Controller
    burn_in: int = 0

    def decide(self, time_point: int, counts: Counts, released: Counts | None, source: NoiseSource | None) -> Verdict:
        """The verdict for this point's counts, given the last released ones."""
        unconditional = self.plan.unconditional(time_point)
        if unconditional is not None:
            epsilon, reason = unconditional
            return self._release(time_point, epsilon, Verdict(reason, epsilon))
        if self.plan.cut_off(time_point):
            return Verdict("cut_off")
        if time_point <= self.burn_in:
            return Verdict("burn_in")
        assert released is not None  # the first release is unconditional
        threshold = self.threshold
        if isinstance(threshold, Controller):
            threshold = threshold.advance(time_point, self.plan.rate(time_point))
        above, charges = self.plan.ask(self.distance.between(counts, released), threshold, source)
        if not above:
            return Verdict("below", threshold=threshold, charges=charges)
        share = self.plan.share
        return self._release(time_point, share, Verdict("above", share, threshold, charges))

    def _release(self, time_point: int, epsilon: Fraction, verdict: Verdict) -> Verdict:
        self.plan.released(time_point, epsilon)
        if isinstance(self.threshold, Controller):
            self.threshold.released(time_point)
        return verdict

    def state(self) -> dict[str, Any]:
        controller = self.threshold.state() if isinstance(self.threshold, Controller) else None
        return {"plan": self.plan.state(), "controller": controller}

    def resume(self, state: Mapping[str, Any], source: NoiseSource | None) -> None:
        """Go on where `state()` was taken."""
        self.plan.resume(state["plan"], source)
        if isinstance(self.threshold, Controller):
            self.threshold.resume(state["controller"])


class SampledStrategy(StreamStrategy):
    """A strategy whose every decision is that of a `DistanceSampling`."""

    _sampling: DistanceSampling

    def _decide(self, counts: Counts) -> Verdict:
        return self._sampling.decide(self.time_point, counts, self.last, self._source)

    def _progress(self) -> dict[str, Any]:
        return self._sampling.state()

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._sampling.resume(state, self._source)


def split(epsilon: Fraction, decision_ratio: Rational) -> tuple[Fraction, Fraction]:
    """`e1 = epsilon * k / (1 + k)` for decisions and the rest, `e2`, for releases, exactly."""
    ratio = as_fraction(decision_ratio)
    if ratio <= 0:
        raise ConfigurationError("decision_ratio must be positive: decisions look at data and must be paid for")
    decisions = epsilon * ratio / (1 + ratio)
    return decisions, epsilon - decisions


class FiniteHorizonPlan:
    """At most `C` releases in `N` points, decided by one sparse vector.

    Guarantee: `C` releases share `e2`; one `SparseVector(e1, m, C - 1)` answers all questions and costs `e1`, charged
    when it is created, at the first question. The first point that is not skipped is released with `e2 / C`. Point
    `N` asks nothing: when releases are left it spends what `e2` has left. `C = 1` decides nothing and gives all of
    `epsilon` to that one release.
    """

    def __init__(
        self, *, epsilon: Fraction, decision_ratio: Rational, releases: int, horizon: int, sensitivity: int
    ) -> None:
        if not 1 <= releases <= horizon:
            raise ConfigurationError(f"releases must be between 1 and the horizon, {horizon}")
        decisions, for_releases = split(epsilon, decision_ratio)
        if releases == 1:
            decisions, for_releases = Fraction(0), epsilon
        self.decisions = decisions
        self.left = for_releases
        self.share = for_releases / releases
        self.releases = releases
        self.used = 0
        self.sparse_vector: SparseVector | None = None
        self._horizon = horizon
        self._sensitivity = sensitivity

    def unconditional(self, time_point: int) -> tuple[Fraction, Reason] | None:
        if self.used == self.releases:
            return None
        if time_point == self._horizon:
            return self.left, "final"
        if self.used == 0:
            return self.share, "first"
        return None

    def cut_off(self, time_point: int) -> bool:
        return self.used == self.releases

    def ask(self, distance: int, threshold: int, source: NoiseSource | None) -> tuple[bool, tuple[Charge, ...]]:
        charges: tuple[Charge, ...] = ()
        if self.sparse_vector is None:
            self.sparse_vector = SparseVector(self.decisions, self._sensitivity, self.releases - 1, source=source)
            charges = (Charge(self.decisions, "decisions"),)
        return self.sparse_vector.above(distance, threshold), charges

    def released(self, time_point: int, epsilon: Fraction) -> None:
        self.used += 1
        self.left -= epsilon

    def rate(self, time_point: int) -> float:
        return self.used / time_point

    def state(self) -> dict[str, Any]:
        return {
            "used": self.used,
            "sparse_vector": None if self.sparse_vector is None else self.sparse_vector.state(),
        }

    def resume(self, state: Mapping[str, Any], source: NoiseSource | None) -> None:
        """Go on where `state()` was taken. Only point `N` spends other than `share`, and nothing follows it."""
        self.used = state["used"]
        self.left -= self.used * self.share
        if state["sparse_vector"] is not None:
            self.sparse_vector = SparseVector.from_state(state["sparse_vector"], source)
