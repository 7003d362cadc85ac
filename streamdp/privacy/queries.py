"""What a mechanism is asked: the private value, and the public facts that decide its noise.

Every mechanism describes its query and lets its noise source answer (`NoiseSource.answer`). Nothing computed from data
becomes public anywhere else, so an audit can record every query of a run, or dictate every answer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class NoisySum:
    """Integers, to be released with discrete Laplace noise of `scale`. The answer is an array of the same shape."""

    exact: npt.NDArray[np.int64]
    scale: Fraction

    @property
    def public(self) -> Hashable:
        return "noisy sum", self.scale, self.exact.shape


@dataclass(frozen=True)
class ThresholdNoise:
    """A sparse vector begins and draws its threshold noise, which stays secret. The answer is that integer.

    A user who moves every answer by at most 1 costs its bits at most `1 / scale + turns / query_scale`, as long as no
    more than `positives` are "above".
    """

    scale: Fraction
    query_scale: Fraction
    positives: int
    monotone: bool

    @property
    def turns(self) -> int:
        """Twice the positives, or as many where all answers move the same way."""
        return self.positives if self.monotone else 2 * self.positives

    @property
    def public(self) -> Hashable:
        return "threshold noise", self.scale, self.query_scale, self.positives, self.monotone


@dataclass(frozen=True)
class Comparison:
    """Whether `value`, with discrete Laplace noise of `scale`, reaches a public threshold. The answer is that bit.

    One that a sparse vector makes names how that began, and its threshold noise.
    """

    value: int
    threshold: int
    scale: Fraction
    vector: ThresholdNoise | None = None
    threshold_noise: int = 0

    @property
    def public(self) -> Hashable:
        return "comparison", self.scale, self.threshold, None if self.vector is None else self.vector.public


@dataclass(frozen=True, eq=False)
class Selection:
    """A choice among candidates that lie `gaps` below the best, where a gap of 1 costs `rate` in the exponent.

    The answer is the index of a candidate.
    """

    gaps: npt.NDArray[np.uint64]
    rate: Fraction
    mechanism: str

    @property
    def public(self) -> Hashable:
        return self.mechanism, self.rate, self.gaps.size


@dataclass(frozen=True)
class RowDraws:
    """A uniform integer below `bound` for each of some private rows: part of a mechanism, and never public itself."""

    bound: int
    rows: int

    @property
    def public(self) -> Hashable:
        return "row draws", self.bound


Query: TypeAlias = NoisySum | ThresholdNoise | Comparison | Selection | RowDraws
