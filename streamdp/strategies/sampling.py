"""Distance-based sampling: the part DSFT, DSAT and DSAT-w have in common, and their budget over a finite horizon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, sqrt
from typing import Any, ClassVar, Protocol

from pydantic import Field, model_validator

from streamdp.arrays import Counts
from streamdp.fields import Exact, PositiveExact, Settings
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.sparse_vector import SparseVector
from streamdp.strategies.base import Cost, Reason, StreamStrategy, Verdict
from streamdp.strategies.controller import Controller
from streamdp.strategies.description import Conditions, Outline
from streamdp.strategies.statistic import L1Distance
from streamdp.strategies.tuning import Axis, Hindsight, Space, geometric

_SUGGESTED_GROUPS = 16
_DECISION_RATIO = Fraction(1, 10)

# The grid of a search.
_RELEASES_RATIO = 2**0.5
_GROUPS = (1, 4, 16, 64, 256)
_DECISION_RATIOS = (Fraction(1, 30), Fraction(1, 10), Fraction(1, 3), Fraction(1))
_THRESHOLD_STEPS = 9
_FLOORS = (0.0, 0.5, 1.0, 2.0)
_KP = (0.0, 0.3, 1.0)
_KI = (0.0, 0.1)


class DistanceParameters(Settings):
    """Parameters of `dsft`, `dsat` and `dsat_w`."""

    releases: int = Field(ge=1)
    """C: the most releases, in the horizon or in any window. Fewer releases carry less noise each."""
    threshold: Exact | None = None
    """Release when the counts have moved this far (L1 distance, in counts) from the last release; where `dsat` and
    `dsat_w` begin. Either this or `threshold_fraction`."""
    threshold_fraction: PositiveExact | None = None
    """The threshold as a fraction of `expected_users`."""
    expected_users: int | None = Field(default=None, ge=1)
    """A public guess at the number of users, never compared with the data; it scales the threshold and its range."""
    decision_ratio: PositiveExact = Field(default="0.1", validate_default=True)
    """k: decisions get `k / (1 + k)` of the histogram's epsilon, releases the rest."""
    groups: int | None = Field(default=None, ge=1)
    """Measure the distance over this many groups of neighbouring cells, which lowers its noise floor; over single cells
    when left out."""

    @model_validator(mode="after")
    def _one_threshold(self) -> DistanceParameters:
        if (self.threshold is None) == (self.threshold_fraction is None):
            raise ValueError("give either threshold (in counts) or threshold_fraction with expected_users")
        if self.threshold_fraction is not None and self.expected_users is None:
            raise ValueError("threshold_fraction is of expected_users, a public number: give that too")
        if self.threshold is not None and self.threshold < 0:
            raise ValueError("threshold is negative; give 0 or more")
        return self

    @property
    def start(self) -> Fraction:
        """The threshold in counts, where it begins."""
        if self.threshold is not None:
            return self.threshold
        assert self.threshold_fraction is not None  # or both had been refused
        assert self.expected_users is not None
        return self.threshold_fraction * self.expected_users


class SamplingPlan(Protocol):
    """How the budget of decisions and releases is laid out over time, and what of it is used."""

    share: Fraction
    """What a release after an "above" costs."""

    def unconditional(self, time_point: int) -> tuple[Fraction, Reason] | None:
        """The charge and reason of a release that takes no question, if this point is one."""

    def cut_off(self, time_point: int) -> bool:
        """Whether no release is left for this point, so that nothing may be asked."""

    def ask(self, distance: int, threshold: int, source: NoiseSource | None) -> tuple[bool, tuple[Cost, ...]]:
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
        above, costs = self.plan.ask(self.distance.between(counts, released), threshold, source)
        if not above:
            return Verdict("below", threshold=threshold, costs=costs)
        share = self.plan.share
        return self._release(time_point, share, Verdict("above", share, threshold, costs))

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

    adaptive: ClassVar[bool]
    """Whether a controller moves its threshold."""
    _sampling: DistanceSampling

    @classmethod
    def outline(cls, parameters: DistanceParameters, conditions: Conditions) -> Outline:
        # A finite horizon with one release decides nothing; a window always may have to.
        decides = parameters.releases > 1 or conditions.window is not None
        decisions = split(conditions.epsilon, parameters.decision_ratio)[0] if decides else Fraction(0)
        each = (conditions.epsilon - decisions) / parameters.releases
        return Outline(parameters.releases, each, each, decisions=decisions)

    @classmethod
    def suggested(cls, conditions: Conditions, releases: int) -> dict[str, Any]:
        """The threshold is twice what the noise of a release alone makes of the distance, over at most 16 groups of
        cells; an adaptive one stays above that floor."""
        groups = min(_SUGGESTED_GROUPS, conditions.cells)
        floor = _noise_floor(conditions, releases, groups, _DECISION_RATIO)
        parameters: dict[str, Any] = {"releases": releases, "groups": groups, "threshold": ceil(2 * floor)}
        return parameters | ({"threshold_low": float(ceil(floor))} if cls.adaptive else {})

    @classmethod
    def tuning_space(cls, conditions: Conditions, hindsight: Hindsight) -> Space:
        span, cells = min(conditions.span, hindsight.points), hindsight.cells
        # With a horizon, one release or more than every second point leave nothing to decide.
        least, most = (1, span) if conditions.horizon is None else (min(2, span), max(1, span // 2))
        releases = tuple(number for number in geometric(most, _RELEASES_RATIO) if number >= least) or (most,)
        groups = tuple(sorted({min(number, cells) for number in _GROUPS} | {cells}))
        axes = [
            Axis("releases", releases, stride=2),
            Axis("threshold", tuple(range(_THRESHOLD_STEPS)), stride=2),
            Axis("groups", groups, start=groups.index(min(_SUGGESTED_GROUPS, cells))),
            Axis("decision_ratio", _DECISION_RATIOS, start=1),
        ]
        if cls.adaptive:
            axes += [Axis("floor", _FLOORS, start=2), Axis("kp", _KP, stride=2), Axis("ki", _KI)]
        drift = cache(hindsight.drift)

        def build(values: dict[str, Any]) -> dict[str, Any]:
            wanted, number, ratio = values["releases"], values["groups"], values["decision_ratio"]
            floor = _noise_floor(conditions, wanted, number, ratio)
            # From what noise alone makes of the distance to noise and the most that the data moves between releases.
            low, high = floor / 2, 2 * floor + drift(ceil(span / wanted), number)
            threshold = low * (high / low) ** (values["threshold"] / (_THRESHOLD_STEPS - 1))
            parameters = {
                "releases": wanted,
                "threshold": ceil(threshold),
                "groups": number,
                "decision_ratio": ratio,
            }
            if cls.adaptive:
                lowest = min(float(ceil(values["floor"] * floor)), float(ceil(threshold)))
                parameters |= {"threshold_low": lowest, "kp": values["kp"], "ki": values["ki"]}
            return parameters

        return Space(tuple(axes), build)

    def _decide(self, counts: Counts) -> Verdict:
        return self._sampling.decide(self.time_point, counts, self.last, self._source)

    def _progress(self) -> dict[str, Any]:
        return self._sampling.state()

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._sampling.resume(state, self._source)


def _noise_floor(conditions: Conditions, releases: int, groups: int, decision_ratio: Fraction) -> float:
    """About what the noise of a release makes of the distance over groups, when releases share what decisions leave."""
    scale = releases * conditions.sensitivity / float(conditions.epsilon / (1 + decision_ratio))
    return 1.13 * scale * sqrt(conditions.cells * groups)


def split(epsilon: Fraction, decision_ratio: Fraction) -> tuple[Fraction, Fraction]:
    """`e1 = epsilon * k / (1 + k)` for decisions and the rest, `e2`, for releases, exactly."""
    decisions = epsilon * decision_ratio / (1 + decision_ratio)
    return decisions, epsilon - decisions


class FiniteHorizonPlan:
    """At most `C` releases in `N` points, decided by one sparse vector.

    Guarantee: `C` releases share `e2`; one `SparseVector(e1, m, C - 1)` answers all questions and costs `e1`, charged
    when it is created, at the first question. The first point that is not skipped is released with `e2 / C`. Point
    `N` asks nothing: when releases are left it spends what `e2` has left. `C = 1` decides nothing and gives all of
    `epsilon` to that one release.
    """

    def __init__(self, parameters: DistanceParameters, conditions: Conditions) -> None:
        self.releases = conditions.at_most_span("releases", parameters.releases)
        decisions, for_releases = split(conditions.epsilon, parameters.decision_ratio)
        if self.releases == 1:
            decisions, for_releases = Fraction(0), conditions.epsilon
        self.decisions = decisions
        self.left = for_releases
        self.share = for_releases / self.releases
        self.used = 0
        self.sparse_vector: SparseVector | None = None
        self._horizon = conditions.span
        self._sensitivity = conditions.sensitivity

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

    def ask(self, distance: int, threshold: int, source: NoiseSource | None) -> tuple[bool, tuple[Cost, ...]]:
        costs: tuple[Cost, ...] = ()
        if self.sparse_vector is None:
            self.sparse_vector = SparseVector(self.decisions, self._sensitivity, self.releases - 1, source=source)
            costs = (Cost(self.decisions, "decisions"),)
        return self.sparse_vector.above(distance, threshold), costs

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
