"""Distance-based sampling with a threshold that a feedback controller moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

from streamdp.privacy.exact import as_fraction
from streamdp.strategies.base import Common, Rational, at_least, horizon_of
from streamdp.strategies.controller import Controller, Variant, starting_threshold
from streamdp.strategies.sampling import DistanceSampling, FiniteHorizonPlan, SampledStrategy, SamplingPlan
from streamdp.strategies.statistic import Groups, L1Distance


class Adaptive(Common, total=False):
    """The keyword arguments DSAT and DSAT-w share; `Controller` describes those of the threshold and their defaults."""

    threshold: Rational | None
    threshold_fraction: Rational | None
    expected_users: int | None
    controller: Variant
    kp: float
    ki: float
    kd: float
    integral_window: int
    set_point: float | None
    scale: float | None
    threshold_low: float
    threshold_high: float | None
    dead_band: float


ADAPTIVE_NAMES = frozenset(Adaptive.__annotations__) - frozenset(Common.__annotations__)


def controller_for(target: Fraction, adaptive: Mapping[str, Any]) -> Controller:
    """The controller towards `target` releases a point. Histograms of `expected_users` are at most twice that apart."""
    settings = {name: value for name, value in adaptive.items() if name in ADAPTIVE_NAMES}
    users = settings.pop("expected_users", None)
    start = starting_threshold(settings.pop("threshold", None), settings.pop("threshold_fraction", None), users)
    high = settings.pop("threshold_high", None)
    return Controller(
        settings.pop("controller", "signed"),
        threshold=start,
        target=target,
        low=settings.pop("threshold_low", 0.0),
        high=2 * users if high is None and users is not None else high,
        **settings,
    )


@dataclass(frozen=True)
class AdaptiveParts:
    """What DSAT and DSAT-w are made of but for the plan, which alone knows of horizons and windows."""

    releases: int
    decision_ratio: Fraction
    distance: L1Distance
    burn_in: int
    controller: Controller

    @classmethod
    def of(
        cls,
        span: int,
        releases: int,
        decision_ratio: Rational,
        groups: Groups,
        burn_in: int,
        settings: Adaptive,
    ) -> AdaptiveParts:
        """The parts for `releases` in `span` points, checked."""
        return cls(
            releases=at_least(1, "releases", releases),
            decision_ratio=as_fraction(decision_ratio),
            distance=L1Distance(settings["cells"], groups),
            burn_in=at_least(0, "burn_in", burn_in),
            controller=controller_for(Fraction(releases, span), settings),
        )

    def describe(self) -> dict[str, Any]:
        """For a configuration's fingerprint."""
        return {
            "releases": self.releases,
            "decision_ratio": self.decision_ratio,
            "groups": self.distance.groups,
            "burn_in": self.burn_in,
            "controller": self.controller.describe(),
        }

    def sampling(self, plan: SamplingPlan) -> DistanceSampling:
        return DistanceSampling(plan, self.distance, self.controller, self.burn_in)


def common_part(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of the keyword arguments is not about the threshold."""
    return {name: value for name, value in settings.items() if name not in ADAPTIVE_NAMES}


class Dsat(SampledStrategy):
    """DSFT with a moving threshold: `releases` releases spread over the horizon without knowing the data beforehand.

    Guarantee: as DSFT, `epsilon` over the horizon: the controller sees only time and which points were releases,
    which is public, and the sparse vector's noise enters after it and after its clamping. Sensitivity `m`. Seed 001,
    Algorithm 2, corrected: the public threshold is clamped, never the noisy one, and the cut-off stops.

    Points up to `burn_in` repeat the first release. The other parameters are those of `Dsft` and `Controller`.
    """

    kind = "dsat"

    def __init__(
        self,
        *,
        releases: int,
        decision_ratio: Rational = "1/10",
        groups: Groups = None,
        burn_in: int = 0,
        **settings: Unpack[Adaptive],
    ) -> None:
        horizon = horizon_of(self.kind, settings)
        parts = AdaptiveParts.of(horizon, releases, decision_ratio, groups, burn_in, settings)
        super().__init__(parts.describe(), **common_part(settings))
        self.plan = FiniteHorizonPlan(
            epsilon=self.epsilon,
            decision_ratio=parts.decision_ratio,
            releases=parts.releases,
            horizon=horizon,
            sensitivity=self.sensitivity,
        )
        self.controller = parts.controller
        self._sampling = parts.sampling(self.plan)
