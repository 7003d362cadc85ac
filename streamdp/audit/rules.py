"""Descriptions that the auditor interprets: a sparse-vector-shaped rule, and neighbouring inputs with one output.

A rule compares a stream of noisy answers with a noisy threshold: `answer + nu >= threshold + rho` is "above". What the
published variants change is the noise, how many "above" may leave, when `rho` is redrawn, whether the noisy threshold
is clamped, and whether a bit or the noisy answer itself leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Noise:
    """Laplace noise of a scale, on the integers or on the reals. Scale 0 is no noise."""

    scale: Fraction
    discrete: bool = False

    def __post_init__(self) -> None:
        if self.scale < 0:
            raise ValueError("a noise scale must not be negative")


@dataclass(frozen=True)
class Rule:
    """A sparse-vector-shaped decision rule.

    `positives` is how many answers may be "above" before it stops for good, `None` for no limit. With `window` that
    limit holds in any `window` consecutive queries instead, for ever, and neighbours differ in one such window only
    (w-event). `clamp` bounds the *noisy* threshold, carried from query to query: its low end when the public threshold
    falls or stays, its high end when it rises. `fresh_threshold` redraws `rho` after every "above". `values` lets the
    noisy answer leave instead of the bit "above".
    """

    threshold_noise: Noise
    query_noise: Noise
    positives: int | None
    window: int | None = None
    clamp: tuple[float, float] | None = None
    fresh_threshold: bool = False
    values: bool = False

    def __post_init__(self) -> None:
        if self.threshold_noise.scale == 0:
            raise ValueError("a rule without threshold noise has no threshold noise to integrate over")
        if self.query_noise.scale and self.query_noise.discrete != self.threshold_noise.discrete:
            raise ValueError("threshold noise and query noise must both be discrete or both be continuous")
        if self.clamp is not None and self.fresh_threshold:
            raise ValueError("clamping carries the noisy threshold over; it cannot be fresh too")
        if self.values and (self.threshold_noise.discrete or self.query_noise.scale == 0):
            raise ValueError("values are audited for continuous query noise only")

    @property
    def discrete(self) -> bool:
        return self.threshold_noise.discrete


@dataclass(frozen=True)
class Step:
    """`times` equal queries in a row: their answer on both inputs, the public threshold, and what came out.

    `value` is the noisy answer that left, for rules that let it leave.
    """

    answer: float
    neighbour: float
    above: bool
    threshold: float = 0
    times: int = 1
    value: float | None = None

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError("a step asks at least one query")
        if self.value is not None and not self.above:
            raise ValueError("only an answer above the threshold leaves as a value")


Case = tuple[Step, ...]


def check_output(rule: Rule, case: Iterable[Step]) -> None:
    """Refuse a case whose output the rule cannot produce, so that nobody audits an event that never happens."""
    steps = tuple(case)
    for step in steps:
        if step.above and (step.value is not None) != rule.values:
            raise ValueError("the rule lets values leave" if rule.values else "the rule lets no values leave")
    if rule.window is not None:
        _check_window(rule, rule.window, steps)
    elif rule.positives is not None:
        left = rule.positives
        for step in steps:
            if left == 0:
                raise ValueError("the rule stops for good after its last positive")
            left -= step.times if step.above else 0
            if left < 0:
                raise ValueError("the rule never gives that many positives")


def _check_window(rule: Rule, window: int, steps: tuple[Step, ...]) -> None:
    changed = [step for step in steps if step.answer != step.neighbour]
    if sum(step.times for step in changed) > window:
        raise ValueError("neighbours differ in one window only")
    if rule.positives is None:
        return
    if sum(step.times for step in changed if step.above) > rule.positives:
        raise ValueError("the rule never gives that many positives in a window")
    # Equal answers before the window may be spread over time in any order; only their density is limited.
    equal = [step for step in steps if step.answer == step.neighbour]
    positives = sum(step.times for step in equal if step.above)
    if positives * window > rule.positives * sum(step.times for step in equal):
        raise ValueError("the rule never gives positives that often")
