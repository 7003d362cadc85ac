"""What an audit found about one mechanism, and whether that is what was expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

# Rounding of the sums and integrals; the figures themselves are compared to 1 %.
_ROUNDING = 1e-9
_TOLERANCE = 0.01
_GROWTH_PER_DOUBLING = 1.5


class Verdict(StrEnum):
    """What the figures say about the claim."""

    WITHIN = "within its claim"
    EXCEEDS = "exceeds its claim"
    UNBOUNDED = "grows without bound"
    INFINITE = "infinite"
    NOTHING_FOUND = "no violation found"
    NOT_AS_DESCRIBED = "does not follow its law"


class Method(StrEnum):
    """How a loss was obtained."""

    EXACT = "exact"
    LOWER_BOUND = "at least"


@dataclass(frozen=True)
class Measurement:
    """The loss of a mechanism; `growth` holds (length, loss) pairs, each length twice the one before.

    `problem` says in what the running object differs from the description that was audited.
    """

    loss: float
    method: Method = Method.EXACT
    growth: tuple[tuple[int, float], ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Subject:
    """A mechanism to audit: what it claims, how to measure it, and what the measurement must show.

    `ratio` is the loss in units of the claim, where theory gives it; the measurement must come within 1 %.
    """

    group: str
    name: str
    claim: float
    measure: Callable[[], Measurement]
    expected: Verdict
    ratio: float | None = None


@dataclass(frozen=True)
class Finding:
    """The outcome of one audit."""

    subject: Subject
    measurement: Measurement

    @property
    def ratio(self) -> float:
        return self.measurement.loss / self.subject.claim

    @property
    def verdict(self) -> Verdict:
        measured = self.measurement
        if measured.problem is not None:
            return Verdict.NOT_AS_DESCRIBED
        if math.isinf(measured.loss):
            return Verdict.INFINITE
        exceeds = self.ratio > 1 + _ROUNDING
        if exceeds and measured.growth:
            grows = all(
                later >= _GROWTH_PER_DOUBLING * earlier for (_, earlier), (_, later) in pairwise(measured.growth)
            )
            return Verdict.UNBOUNDED if grows else Verdict.EXCEEDS
        if exceeds:
            return Verdict.EXCEEDS
        return Verdict.WITHIN if measured.method is Method.EXACT else Verdict.NOTHING_FOUND

    @property
    def as_expected(self) -> bool:
        if self.verdict is not self.subject.expected:
            return False
        return self.subject.ratio is None or abs(self.ratio / self.subject.ratio - 1) <= _TOLERANCE

    def as_dict(self) -> dict[str, Any]:
        """For machines. Infinity has no JSON number and is null; the verdict tells."""
        return {
            "group": self.subject.group,
            "mechanism": self.subject.name,
            "claimed_epsilon": self.subject.claim,
            "loss": _finite(self.measurement.loss),
            "method": self.measurement.method.value,
            "ratio": _finite(self.ratio),
            "growth": [{"length": length, "loss": _finite(value)} for length, value in self.measurement.growth],
            "problem": self.measurement.problem,
            "expected_verdict": self.subject.expected.value,
            "expected_ratio": self.subject.ratio,
            "verdict": self.verdict.value,
            "as_expected": self.as_expected,
        }


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def run_audit(subjects: Iterable[Subject]) -> Iterator[Finding]:
    """Measure one subject after the other."""
    for subject in subjects:
        yield Finding(subject, subject.measure())
