"""What every stream strategy is: one decision per time point, from state that serialises, at a stated price."""

from __future__ import annotations

import hashlib
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Required, Self, TypedDict, Unpack

import numpy as np

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError, StreamdpError
from streamdp.fields import Settings
from streamdp.histograms import Noisy, method_named
from streamdp.histograms.post import check_options, post_process
from streamdp.histograms.variance import Variance
from streamdp.privacy.exact import as_fraction, decimal_text, to_text
from streamdp.privacy.noise import NoiseSource
from streamdp.strategies.description import Conditions, Guarantee, NoParameters, Outline
from streamdp.strategies.tuning import Hindsight, Space

Rational = Fraction | Decimal | int | float | str
DecisionKind = Literal["release", "forecast", "repeat"]
Purpose = Literal["release", "decisions", "dissimilarity"]
Reason = Literal[
    "first",  # nothing had been released, so nothing was asked
    "scheduled",  # the public schedule says so
    "waiting",  # the public schedule does not
    "above",
    "below",
    "final",  # the last point spends what is left
    "burn_in",
    "cut_off",  # all releases of the horizon or window are used; nothing was asked
    "nullified",  # an earlier release absorbed this point's share; nothing was asked
    "skipped",  # nothing was asked
]


class Cost(NamedTuple):
    """What was spent at this time point, and on what."""

    epsilon: Fraction
    purpose: Purpose


@dataclass(frozen=True)
class Verdict:
    """What to do at a point, before it is done: release with `epsilon`, or repeat when that is zero."""

    reason: Reason
    epsilon: Fraction = Fraction(0)
    threshold: int | None = None
    costs: tuple[Cost, ...] = ()
    """What deciding was charged; a release adds its own."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What one time point publishes. Everything here is public."""

    time_point: int
    kind: DecisionKind
    """`release`: the data was released. `forecast`: new counts that follow from earlier releases, which costs nothing.
    `repeat`: the last counts stand. Other points than releases cost nothing but what deciding costs."""
    counts: Counts | None
    """What subscribers hold from now on; None when nothing was ever released."""
    epsilon: Fraction
    """This release's own charge; zero for a repeat."""
    threshold: int | None
    """The public threshold that was asked, where one was."""
    scale: Fraction | None
    """The scale of the noise that was drawn for a fresh release."""
    reason: Reason
    costs: tuple[Cost, ...]
    variance: Variance | None = None
    """What is known of the error of new counts; None for a repeat, or when nothing is."""
    combined: bool = False
    """Whether the counts are an estimate from several releases, so that `scale` is not that of the noise in them."""

    @property
    def fresh(self) -> bool:
        """Whether the data was released."""
        return self.kind == "release"


class Strategy(Protocol):
    """A stream strategy as the engine sees it."""

    @property
    def epsilon(self) -> Fraction: ...

    @property
    def guarantee(self) -> str: ...

    @property
    def time_point(self) -> int: ...

    @property
    def ended(self) -> bool: ...

    def step(self, counts: Counts) -> Decision: ...

    def skip(self, points: int = 1) -> Decision: ...

    def state(self) -> dict[str, Any]: ...

    def indicators(self) -> dict[str, float]: ...


class Common(TypedDict, total=False):
    """The keyword arguments all strategies share. Exactly one of `horizon` and `window` is given."""

    epsilon: Required[Rational]
    cells: Required[int]
    shape: tuple[int, ...] | None
    horizon: int | None
    window: int | None
    sensitivity: int
    method: str
    post: Iterable[str]
    source: NoiseSource | None


class StreamStrategy(ABC):
    """The skeleton of a strategy: time, the last release, and the one place where counts become public.

    `epsilon` is a constant reservation: over the whole horizon, or in every window. Neither creating nor restoring a
    strategy draws randomness or spends anything.

    A strategy is one file, which also says what the rest of streamdp must know of it: the class attributes below,
    `outline`, `suggested` and `tuning_space`.
    """

    kind: ClassVar[str]
    """Its name in a configuration."""
    summary: ClassVar[str]
    """When it releases, in a few words."""
    parameters_type: ClassVar[type[Settings]] = NoParameters
    guarantees: ClassVar[tuple[Guarantee, ...]] = ("horizon", "window")
    """What it can promise."""
    methods: ClassVar[tuple[str, ...] | None] = None
    """The histogram methods it goes with; None for all."""
    combines: ClassVar[bool] = False
    """Whether it publishes an estimate from several releases rather than the last one."""
    state_version: ClassVar[int] = 1
    """The format of `state()`: raised when what is in it changes, so that an old one is refused with its reason."""

    def __init__(self, parameters: Settings, **common: Unpack[Common]) -> None:
        settings = _Settings(**common)
        self.conditions = settings.conditions
        self.epsilon = settings.conditions.epsilon
        self.cells = settings.conditions.cells
        self.shape = settings.conditions.shape
        self.horizon = settings.conditions.horizon
        self.window = settings.conditions.window
        self.sensitivity = settings.conditions.sensitivity
        self.span = settings.conditions.span
        self.post = settings.post
        self.time_point = 0
        self.released: Counts | None = None
        """What was published with the last release."""
        self.last: Counts | None = None
        """What subscribers hold: the same, or the forecast made since."""
        self.forecast_at: int | None = None
        """The point that the forecast is for."""
        self._method = settings.method
        self._source = settings.source
        self._configuration = _fingerprint(
            {"kind": self.kind, **settings.describe(), "parameters": parameters.model_dump()}
        )
        given = next((name for name in ("horizon", "window") if getattr(self, name) is not None), "")
        if given not in self.guarantees:
            raise ConfigurationError(f"{self.kind} is for a {' or a '.join(self.guarantees)}, and this is a {given}")
        if self.methods is not None and self._method.name not in self.methods:
            raise ConfigurationError(
                f"strategy {self.kind} goes with method {' or '.join(self.methods)}; for {self._method.name} choose"
                " another strategy"
            )

    @classmethod
    @abstractmethod
    def outline(cls, parameters: Any, conditions: Conditions) -> Outline:
        """What it can afford with these parameters."""

    @classmethod
    def suggested(cls, conditions: Conditions, releases: int) -> dict[str, Any]:
        """Parameters for a comparison, from public quantities: those of about so many releases."""
        return {}

    @classmethod
    def tuning_space(cls, conditions: Conditions, hindsight: Hindsight) -> Space:
        """Where `streamdp compare --tune` looks for its best parameters."""
        return Space()

    def indicators(self) -> dict[str, float]:
        """Public numbers that the metrics show, by name."""
        return {}

    @property
    def guarantee(self) -> str:
        """What a user is promised, in words; "none" for the printed forms."""
        epsilon = decimal_text(self.epsilon)
        if self.window is None:
            return f"epsilon = {epsilon} for a user's presence in all {self.horizon} time points together"
        return f"epsilon = {epsilon} for a user's presence in any {self.window} consecutive time points (w-event)"

    @property
    def ended(self) -> bool:
        """Whether the finite horizon is over, so that there are no more points."""
        return self.horizon is not None and self.time_point >= self.horizon

    def step(self, counts: Counts) -> Decision:
        """Close the next time point with the true `counts` (flat, integers) and decide what it publishes."""
        if counts.shape != (self.cells,) or not np.issubdtype(counts.dtype, np.integer):
            raise ValueError("counts must be a flat array of integers, one for each cell of the histogram")
        self._advance()
        integers = counts.astype(np.int64, copy=False)
        return self._carry_out(self._decide(integers), integers)

    def skip(self, points: int = 1) -> Decision:
        """Pass so many time points without looking at data or drawing anything; it spends nothing.

        The same as skipping them one by one, in the time that one takes. For points that nobody asked. One whose
        outcome is lost may have spent: its strategy ends with it, and a new one starts when no window holds both.
        """
        self._advance(at_least(1, "points", points))
        return self._carry_out(Verdict("skipped"))

    def state(self) -> dict[str, Any]:
        """All but the counts last `released`, as JSON. It may hold threshold noise: as private as the input data."""
        return {
            "version": self.state_version,
            "kind": self.kind,
            "configuration": self._configuration,
            "time_point": self.time_point,
            "released": self.released is not None,
            **self._progress(),
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], last: Counts | None, parameters: Any, **common: Unpack[Common]
    ) -> Self:
        """Go on where `state()` was taken, given the counts last released and the arguments of creation."""
        self = cls(parameters, **common)
        if state["version"] != self.state_version or state["kind"] != self.kind:
            raise StreamdpError(
                f"this is no state of a strategy {self.kind} in format {self.state_version}; it is one of"
                f" {state['kind']} in format {state['version']}, for the streamdp that wrote it"
            )
        if state["configuration"] != self._configuration:
            raise StreamdpError(
                f"the {self.kind} strategy was configured otherwise when its state was saved; "
                "a changed configuration is a new strategy and a new charge"
            )
        if state["released"] != (last is not None) or (last is not None and last.shape != (self.cells,)):
            raise StreamdpError("the last released counts do not belong to the saved state of the strategy")
        self.time_point = operator.index(state["time_point"])
        if last is not None:
            self.last = self.released = _frozen(last.astype(np.int64))
        self._resume(state)
        return self

    @abstractmethod
    def _decide(self, counts: Counts) -> Verdict:
        """What to do at this point; its counts are checked and the time has moved on."""

    def _absorb(self, noisy: Noisy, epsilon: Fraction) -> Noisy:
        """What is published of a fresh release: the release itself, unless the strategy combines it with others."""
        return noisy

    def _publish_forecast(self, counts: Counts, time_point: int) -> None:
        """Lets subscribers hold these from that point on: a function of what was released before, and so free."""
        self.last, self.forecast_at = _frozen(post_process(counts, self.post)), time_point

    def _variance(self, scale: Fraction | None) -> Variance | None:
        """What is known of the error of the counts just published, whose noise has this scale; None: none was drawn."""
        return None if scale is None or self.post else Variance.of_laplace(self.shape, scale)

    def _progress(self) -> dict[str, Any]:
        """What the subclass must keep."""
        return {}

    def _resume(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - some strategies keep nothing of their own
        """The inverse of `_progress`."""

    def _advance(self, points: int = 1) -> None:
        if self.horizon is not None and self.time_point + points > self.horizon:
            raise StreamdpError(f"the horizon of {self.horizon} time points is over; nothing more may be asked")
        self.time_point += points

    def _carry_out(self, verdict: Verdict, counts: Counts | None = None) -> Decision:
        costs = verdict.costs
        scale = variance = None
        if verdict.epsilon and counts is not None:
            noisy = self._method.release(counts, self.shape, verdict.epsilon, self.sensitivity, self._source)
            noisy = self._absorb(noisy, verdict.epsilon)
            self.last = self.released = _frozen(post_process(noisy.counts, self.post))
            self.forecast_at = None
            scale = noisy.scale
            variance = self._variance(scale)
            costs = (*costs, Cost(verdict.epsilon, "release"))
        kind: DecisionKind = "release" if verdict.epsilon else "repeat"
        if self.forecast_at == self.time_point:
            kind = "forecast"
            variance = self._variance(None)
        return Decision(
            time_point=self.time_point,
            kind=kind,
            counts=self.last,
            epsilon=verdict.epsilon,
            threshold=verdict.threshold,
            scale=scale,
            reason=verdict.reason,
            costs=costs,
            variance=variance,
            combined=self.combines,
        )


class _Settings:
    """The shared keyword arguments, read and checked."""

    def __init__(
        self,
        *,
        epsilon: Rational,
        cells: int,
        shape: tuple[int, ...] | None = None,
        horizon: int | None = None,
        window: int | None = None,
        sensitivity: int = 1,
        method: str = "laplace",
        post: Iterable[str] = (),
        source: NoiseSource | None = None,
    ) -> None:
        amount = as_fraction(epsilon)
        if amount <= 0:
            raise ConfigurationError("epsilon must be positive")
        cells = at_least(1, "cells", cells)
        shape = (cells,) if shape is None else tuple(operator.index(size) for size in shape)
        if prod(shape) != cells:
            raise ConfigurationError(f"a histogram of shape {shape} does not have {cells} cells")
        if (horizon is None) == (window is None):
            raise ConfigurationError("give either a horizon (finite) or a window (w-event), and not both")
        self.conditions = Conditions(
            amount,
            shape,
            None if horizon is None else at_least(1, "horizon", horizon),
            None if window is None else at_least(1, "window", window),
            at_least(1, "sensitivity", sensitivity),
        )
        self.method = method_named(method)
        self.post = check_options(post)
        self.source = source

    def describe(self) -> dict[str, Any]:
        return {**asdict(self.conditions), "method": self.method.name, "post": self.post}


def at_least(least: int, name: str, value: int) -> int:
    """`value` as an int, refused when it is no integer or too small."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigurationError(f"{name} must be a whole number") from None
    if number < least:
        raise ConfigurationError(f"{name} must be at least {least}")
    return number


def _frozen(counts: Counts) -> Counts:
    """Read-only, because the distance of every later point depends on it."""
    counts.flags.writeable = False
    return counts


def _fingerprint(description: Mapping[str, Any]) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, Fraction):
            return to_text(value)
        if isinstance(value, np.ndarray):
            return hashlib.sha256(value.astype("<i8").tobytes()).hexdigest()
        raise TypeError(f"{type(value).__name__} has no place in a description")

    return hashlib.sha256(json.dumps(description, sort_keys=True, default=plain).encode()).hexdigest()
