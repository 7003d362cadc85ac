"""Distance-based sampling with a threshold that a feedback controller moves."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Literal, Unpack

from pydantic import Field, model_validator

from streamdp.strategies.base import Common
from streamdp.strategies.controller import Controller
from streamdp.strategies.sampling import (
    DistanceParameters,
    DistanceSampling,
    FiniteHorizonPlan,
    SampledStrategy,
    SamplingPlan,
)
from streamdp.strategies.statistic import L1Distance

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class AdaptiveParameters(DistanceParameters):
    """Parameters of `dsat` and `dsat_w`: those of `dsft` and the controller that moves the public threshold."""

    controller: Literal["signed", "published"] = "signed"
    """`signed`: rests when the rate of releases is on target. `published`: as printed in the paper, which does not."""
    kp: NonNegative = 1.0
    """Proportional gain."""
    ki: NonNegative = 0.0
    """Integral gain."""
    kd: NonNegative = 0.0
    """Derivative gain."""
    integral_window: int = Field(default=10, ge=1)
    """How many recent errors the integral sums."""
    set_point: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """delta: the deviation of the rate of releases that counts as an error of 1; the target rate when left out (0.05
    for `published`)."""
    scale: NonNegative | None = None
    """theta: by how many counts an error of 1 moves the threshold in a point; the threshold times the target rate when
    left out (a quarter of the threshold's range for `published`)."""
    burn_in: int = Field(default=0, ge=0)
    """M: up to this point nothing is asked and the first release is repeated."""
    threshold_low: NonNegative = 0.0
    """The threshold never falls below this."""
    threshold_high: NonNegative | None = None
    """The threshold never rises above this; when left out, twice `expected_users`, or ten times where it begins."""
    dead_band: NonNegative = 0.1
    """An error no larger than this moves nothing (`signed` only)."""

    @model_validator(mode="after")
    def _range(self) -> AdaptiveParameters:
        if self.threshold_high is not None and self.threshold_low > self.threshold_high:
            raise ValueError("threshold_low is above threshold_high; give a lower one")
        return self


class AdaptiveStrategy(SampledStrategy):
    """What DSAT and DSAT-w have in common: all but the plan, which alone knows of horizons and windows."""

    parameters_type = AdaptiveParameters
    adaptive = True

    def __init__(self, parameters: AdaptiveParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        self.plan = self._plan(parameters)
        self.controller = controller_of(parameters, Fraction(parameters.releases, self.span))
        distance = L1Distance(self.cells, parameters.groups)
        self._sampling = DistanceSampling(self.plan, distance, self.controller, parameters.burn_in)

    def _plan(self, parameters: AdaptiveParameters) -> SamplingPlan:
        raise NotImplementedError

    def indicators(self) -> dict[str, float]:
        state = self.controller.state()
        if state["error"] is None:
            return {}
        return {"controller_error": state["error"], "controller_error_integral": math.fsum(state["errors"])}


def controller_of(parameters: AdaptiveParameters, target: Fraction) -> Controller:
    """The controller towards `target` releases a point. Histograms of `expected_users` are at most twice that apart."""
    users, high = parameters.expected_users, parameters.threshold_high
    return Controller(
        parameters.controller,
        threshold=parameters.start,
        target=target,
        low=parameters.threshold_low,
        high=2 * users if high is None and users is not None else high,
        kp=parameters.kp,
        ki=parameters.ki,
        kd=parameters.kd,
        integral_window=parameters.integral_window,
        set_point=parameters.set_point,
        scale=parameters.scale,
        dead_band=parameters.dead_band,
    )


class Dsat(AdaptiveStrategy):
    """DSFT with a moving threshold: `releases` releases spread over the horizon without knowing the data beforehand.

    Guarantee: as DSFT, `epsilon` over the horizon: the controller sees only time and which points were releases,
    which is public, and the sparse vector's noise enters after it and after its clamping. Sensitivity `m`. Li et al.
    (2015), Algorithm 2, corrected: the public threshold is clamped, never the noisy one, and the cut-off stops.
    """

    kind = "dsat"
    summary = "the same, with a threshold that adapts so that the releases last"
    guarantees = ("horizon",)

    def _plan(self, parameters: AdaptiveParameters) -> FiniteHorizonPlan:
        return FiniteHorizonPlan(parameters, self.conditions)
