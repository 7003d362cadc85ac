"""`[[histogram]]`: what is counted, who decides when to release it, and the parameters of each strategy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from streamdp.config.attributes import NamedAttribute
from streamdp.config.section import Section
from streamdp.config.values import Exact, Name, PositiveExact, Share
from streamdp.histograms import method_names

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NoParameters(Section):
    """This strategy has no parameters."""


class FixedParameters(Section):
    """Parameters of `fixed`."""

    interval: int = Field(ge=1)
    """Release every so many points."""


class DistanceParameters(Section):
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


class _Histogram(Section):
    name: Name
    """The histogram's name: lower-case letters, digits, dot, dash and underscore."""
    attributes: Annotated[list[NamedAttribute], Field(min_length=1)]
    """The attributes counted together: `"sex"`, or coarser than the domain, `{ name = "age", bins = 10 }`."""
    share: Share | None = None
    """This histogram's share of epsilon; those that say nothing share equally what the others leave."""
    method: str = "laplace"
    """How a release is made private: the name of a histogram method."""
    post: list[Literal["nonnegative", "integer", "consistent_total"]] = Field(default=[])
    """What is done to noisy counts before they leave, which costs nothing. `nonnegative`: no count below zero.
    `integer`: whole numbers (they always are). `consistent_total`: non-negative, and the sum stays the noisy total."""

    @field_validator("method")
    @classmethod
    def _registered(cls, method: str) -> str:
        if method not in method_names():
            raise ValueError(f"give one of {', '.join(method_names())}")
        return method


class Auto(_Histogram):
    """Release when a fresh release is worth more than waiting."""

    strategy: Literal["auto"] = "auto"
    """`auto`: nothing to tune; learns from its own releases how often to release and what each may spend, and publishes
    the best estimate of all of them. The default. For a horizon or a window."""
    parameters: NoParameters = NoParameters()
    """There are none."""

    @model_validator(mode="after")
    def _laplace(self) -> Auto:
        if self.method != "laplace":
            raise ValueError(f"strategy auto goes with method laplace; for {self.method} choose another strategy")
        return self


class Baseline(_Histogram):
    """Release at every point."""

    strategy: Literal["baseline"]
    """`baseline`: release at every point. For a horizon or a window."""
    parameters: NoParameters = NoParameters()
    """There are none."""


class Fixed(_Histogram):
    """Release at fixed intervals."""

    strategy: Literal["fixed"]
    """`fixed`: release every so many points. For a horizon or a window."""
    parameters: FixedParameters
    """The strategy's parameters."""


class Dsft(_Histogram):
    """Release when the counts have moved far enough."""

    strategy: Literal["dsft"]
    """`dsft`: release when the counts have moved past a fixed threshold. For a horizon."""
    parameters: DistanceParameters
    """The strategy's parameters."""


class Dsat(_Histogram):
    """Release when the counts have moved far enough, by a threshold that adapts."""

    strategy: Literal["dsat"]
    """`dsat`: as `dsft`, with a threshold that adapts so that the releases last. For a horizon."""
    parameters: AdaptiveParameters
    """The strategy's parameters."""


class DsatW(_Histogram):
    """Release when the counts have moved far enough, by a threshold that adapts, under w-event privacy."""

    strategy: Literal["dsat_w"]
    """`dsat_w`: as `dsat`, for ever. For a window."""
    parameters: AdaptiveParameters
    """The strategy's parameters."""


class BudgetDistribution(_Histogram):
    """Each release takes half of what its window has left."""

    strategy: Literal["bd"]
    """`bd`: budget distribution; good when changes are rare and sudden. For a window."""
    parameters: NoParameters = NoParameters()
    """There are none."""


class BudgetAbsorption(_Histogram):
    """Each release absorbs what earlier points left unused."""

    strategy: Literal["ba"]
    """`ba`: budget absorption; good when changes are regular. For a window."""
    parameters: NoParameters = NoParameters()
    """There are none."""


DEFAULT = "auto"


def _with_strategy(section: Any) -> Any:
    """A histogram that does not say who decides gets the default."""
    if isinstance(section, dict) and "strategy" not in section:
        return {**section, "strategy": DEFAULT}
    return section


HistogramSection = Annotated[
    Auto | Baseline | Fixed | Dsft | Dsat | DsatW | BudgetDistribution | BudgetAbsorption,
    Field(discriminator="strategy"),
    BeforeValidator(_with_strategy),
]

HORIZON_ONLY = frozenset({"dsft", "dsat"})
WINDOW_ONLY = frozenset({"dsat_w", "bd", "ba"})


def parameters_given(histogram: HistogramSection) -> dict[str, Any]:
    """The strategy's parameters by name, without those it is to choose itself."""
    parameters = histogram.parameters
    values = {name: getattr(parameters, name) for name in type(parameters).model_fields}
    return {name: value for name, value in values.items() if value is not None}
