"""The sparse vector technique: many questions, few of them answered "above", one price.

This is the standard algorithm (Lyu, Su, Li 2017: Understanding the Sparse Vector Technique for Differential
Privacy, PVLDB 10(6), 2017) in integers: one draw of threshold noise for the life of the object, fresh query noise for
every question, and a stop for good after `positives` answers "above".
"""

from __future__ import annotations

import math
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any, SupportsIndex

import numpy as np

from streamdp.errors import StreamdpError
from streamdp.privacy.exact import as_fraction, to_text
from streamdp.privacy.noise import SYSTEM, NoiseSource, discrete_laplace
from streamdp.privacy.queries import Comparison, ThresholdNoise

STATE_VERSION = 1

# The split of epsilon needs no more digits than this, and small denominators keep the sampler on its fast path.
_SPLIT_DENOMINATOR = 1000


class SparseVectorExhaustedError(StreamdpError):
    """A question was asked after the last "above" that was paid for."""


def noise_scales(epsilon: Fraction, sensitivity: int, positives: int, monotone: bool) -> tuple[Fraction, Fraction]:
    """Scales of the threshold noise and the query noise for `positives >= 1`.

    `epsilon` is split exactly into `ea + eb` near `1 : (2c)^(2/3)`, which minimises the variance of their difference;
    the scales are `D / ea` and `2cD / eb`. Monotone queries (all answers move the same way) have `c` in place of `2c`.
    """
    turns = positives if monotone else 2 * positives
    weight = Fraction(_cube_root(turns**2 * _SPLIT_DENOMINATOR**3), _SPLIT_DENOMINATOR)
    threshold_epsilon = epsilon / (1 + weight)
    query_epsilon = epsilon - threshold_epsilon
    return sensitivity / threshold_epsilon, turns * sensitivity / query_epsilon


class SparseVector:
    """Answers whether each of a stream of private integers reaches its public threshold.

    Guarantee: all bits together are `epsilon`-differentially private, for any number of questions, when one user moves
    every answer by at most `sensitivity` (with `monotone=True`: and all of them in the same direction; distances are
    not monotone). A threshold may depend on anything already published, bits of this object included. The whole of
    `epsilon` is spent at creation. Nothing but the bits may leave: neither the noisy answers nor the threshold noise.

    Answers and sensitivity are integers in the same unit: counts, or multiples of a public lattice. With `positives=0`
    everything is below, nothing is drawn and nothing is spent.

    >>> from streamdp.privacy.noise import InsecureSeededSource
    >>> sparse_vector = SparseVector("1/2", sensitivity=1, positives=1, source=InsecureSeededSource(7))
    >>> sparse_vector.above(0, threshold=1000), sparse_vector.above(2000, threshold=1000)
    (False, True)
    >>> sparse_vector.exhausted, sparse_vector.epsilon_spent
    (True, Fraction(1, 2))
    """

    def __init__(
        self,
        epsilon: Fraction | Decimal | int | float | str,
        sensitivity: int,
        positives: int,
        monotone: bool = False,
        source: NoiseSource | None = None,
    ) -> None:
        self._describe(as_fraction(epsilon), sensitivity, positives, monotone, source)
        self._remaining = self.positives
        self._rho = 0
        if self.positives:
            self._rho = self._source.answer(self._beginning, lambda: self._draw(self.threshold_scale))

    def _describe(
        self, epsilon: Fraction, sensitivity: int, positives: int, monotone: bool, source: NoiseSource | None
    ) -> None:
        self.epsilon = epsilon
        self.sensitivity = operator.index(sensitivity)
        self.positives = operator.index(positives)
        self.monotone = bool(monotone)
        self._source = source or SYSTEM
        if self.sensitivity < 1:
            raise ValueError("the sensitivity must be a positive integer, in the unit of the answers")
        if self.positives < 0:
            raise ValueError("the number of positives must not be negative")
        if self.epsilon < 0 or (self.positives and self.epsilon == 0):
            raise ValueError("epsilon must be positive")
        self.threshold_scale = Fraction(0)
        self.query_scale = Fraction(0)
        if self.positives:
            self.threshold_scale, self.query_scale = noise_scales(
                self.epsilon, self.sensitivity, self.positives, self.monotone
            )

    @property
    def epsilon_spent(self) -> Fraction:
        """What this object costs: all of `epsilon` from its creation on, or nothing when it can never say "above"."""
        return self.epsilon if self.positives else Fraction(0)

    @property
    def remaining(self) -> int:
        """How many more answers may be "above"."""
        return self._remaining

    @property
    def exhausted(self) -> bool:
        """Whether the last paid "above" has been given, so that nothing more may be asked."""
        return self.positives > 0 and self._remaining == 0

    def above(self, answer: SupportsIndex | float, threshold: SupportsIndex | Fraction | float) -> bool:
        """Whether the private `answer`, with noise, reaches the public `threshold`, with noise."""
        integer_answer = _integer(answer)
        integer_threshold = _ceiling(threshold)
        if self.positives == 0:
            return False
        if self.exhausted:
            raise SparseVectorExhaustedError(
                "this sparse vector has given all the positive answers that were paid for; create and charge a new one"
            )
        is_above = self._source.answer(
            Comparison(integer_answer, integer_threshold, self.query_scale, self._beginning, self._rho),
            lambda: integer_answer + self._draw(self.query_scale) - self._rho >= integer_threshold,
        )
        if is_above:
            self._remaining -= 1
        return is_above

    def state(self) -> dict[str, Any]:
        """Everything needed to go on after a restart. It holds the threshold noise: as private as the input data."""
        return {
            "version": STATE_VERSION,
            "epsilon": to_text(self.epsilon),
            "sensitivity": self.sensitivity,
            "positives": self.positives,
            "monotone": self.monotone,
            "remaining": self._remaining,
            "rho": self._rho,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], source: NoiseSource | None = None) -> SparseVector:
        """Go on where `state()` was taken, with the same threshold noise: redrawing it would be a second charge."""
        if state["version"] != STATE_VERSION:
            raise ValueError(f"cannot read a sparse vector state of version {state['version']}")
        self = cls.__new__(cls)
        self._describe(
            as_fraction(state["epsilon"]), state["sensitivity"], state["positives"], state["monotone"], source
        )
        self._remaining = operator.index(state["remaining"])
        self._rho = operator.index(state["rho"])
        if not 0 <= self._remaining <= self.positives:
            raise ValueError("the state is damaged: more positives remain than were paid for")
        return self

    def __repr__(self) -> str:
        return (
            f"SparseVector(epsilon={self.epsilon}, sensitivity={self.sensitivity}, positives={self.positives}, "
            f"monotone={self.monotone}, remaining={self._remaining})"
        )

    @property
    def _beginning(self) -> ThresholdNoise:
        return ThresholdNoise(self.threshold_scale, self.query_scale, self.positives, self.monotone)

    def _draw(self, scale: Fraction) -> int:
        return int(discrete_laplace(scale, 1, self._source)[0])


def _integer(answer: SupportsIndex | float) -> int:
    if isinstance(answer, float | np.floating):
        if not answer.is_integer():
            raise ValueError("an answer must be an integer, in the unit of the sensitivity")
        return int(answer)
    return operator.index(answer)


def _ceiling(threshold: SupportsIndex | Fraction | float) -> int:
    if isinstance(threshold, SupportsIndex):
        return operator.index(threshold)
    try:
        return math.ceil(threshold)
    except (ValueError, OverflowError):
        raise ValueError("a threshold must be a finite number") from None


def _cube_root(value: int) -> int:
    """The largest integer whose cube is at most `value`, without floating point."""
    root = 1 << -(-value.bit_length() // 3)
    while True:
        smaller = (2 * root + value // root**2) // 3
        if smaller >= root:
            return root
        root = smaller
