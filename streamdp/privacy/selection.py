"""Private choice of the best of many candidates, exact.

A candidate is accepted by an exact Bernoulli(exp(.)) trial. Gumbel noise in floating point would give far candidates
probability exactly zero, which no finite epsilon allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral

import numpy as np
import numpy.typing as npt

from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import SYSTEM, NoiseSource, bernoulli_exp_multiples, uniform_below
from streamdp.privacy.queries import Selection

Scores = Sequence[int] | Sequence[float] | Sequence[Fraction] | npt.NDArray[np.integer] | npt.NDArray[np.floating]
Epsilon = Fraction | Decimal | int | float | str

_LARGEST_BLOCK = 4096
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def exponential_mechanism(
    scores: Scores,
    epsilon: Epsilon,
    sensitivity: Epsilon,
    monotone: bool = False,
    source: NoiseSource | None = None,
    *,
    lattice: int | None = None,
) -> int:
    """The index of a candidate, drawn with probability proportional to `exp(epsilon * score / (2 * sensitivity))`.

    Guarantee: `epsilon` differential privacy (McSherry, Talwar 2007). `sensitivity` is the most one user moves any
    score. With `monotone` (one user more moves no score down, or none up) the factor 2 is not needed.

    Scores are integers. With `lattice=K` they may be floats or Fractions too: each is rounded to a multiple of `1/K`,
    and the sensitivity used is `sensitivity + 1/K`, because a score and its neighbour may round apart. Scores beyond
    64 bits are clamped, which moves none away from its neighbour.

    A uniform candidate is accepted with probability `exp(-(best - score) * epsilon / (2 * sensitivity))`, until one is:
    on average after no more proposals than there are candidates.
    """
    gaps, rate = _gaps_and_rate(scores, epsilon, sensitivity, monotone, lattice)

    def run() -> int:
        block = min(2 * gaps.size, _LARGEST_BLOCK)
        while True:
            candidates = uniform_below(gaps.size, block, source)
            accepted = np.flatnonzero(bernoulli_exp_multiples(gaps[candidates], rate, source))
            if accepted.size:
                return int(candidates[accepted[0]])

    return (source or SYSTEM).answer(Selection(gaps, rate, "exponential mechanism"), run)


def permute_and_flip(
    scores: Scores,
    epsilon: Epsilon,
    sensitivity: Epsilon,
    monotone: bool = False,
    source: NoiseSource | None = None,
    *,
    lattice: int | None = None,
) -> int:
    """The index of the first candidate accepted, in a uniformly random order.

    Guarantee: `epsilon` differential privacy, with an expected score never below the exponential mechanism's (McKenna,
    Sheldon 2020). Each candidate is tried once, with the probability of acceptance of `exponential_mechanism`, so a
    best one is sure to be accepted. Sensitivity, monotone, lattice and clamping are as there.
    """
    gaps, rate = _gaps_and_rate(scores, epsilon, sensitivity, monotone, lattice)

    def run() -> int:
        # Trials do not depend on the order, so the first accepted in a random order is a uniform one of all accepted.
        accepted = np.flatnonzero(bernoulli_exp_multiples(gaps, rate, source))
        return int(accepted[uniform_below(accepted.size, 1, source)[0]])

    return (source or SYSTEM).answer(Selection(gaps, rate, "permute and flip"), run)


def _gaps_and_rate(
    scores: Scores, epsilon: Epsilon, sensitivity: Epsilon, monotone: bool, lattice: int | None
) -> tuple[npt.NDArray[np.uint64], Fraction]:
    """How far each score is below the best, in whole units, and what one unit costs in the exponent."""
    exact_epsilon, exact_sensitivity = as_fraction(epsilon), as_fraction(sensitivity)
    if exact_epsilon <= 0:
        raise ValueError("epsilon must be positive")
    if exact_sensitivity <= 0:
        raise ValueError("sensitivity must be positive")
    if lattice is not None:
        if lattice < 1:
            raise ValueError("lattice must be at least 1: scores are rounded to multiples of 1/lattice")
        exact_sensitivity = exact_sensitivity * lattice + 1
    if not len(scores):
        raise ValueError("there must be at least one candidate")
    if isinstance(scores, np.ndarray) and scores.ndim != 1:
        raise ValueError("scores must be one-dimensional")
    units = _whole_scores(scores) if lattice is None else _rounded_scores(scores, lattice)
    # Modulo 2**64 the difference of any two int64 is exact as an unsigned number.
    gaps = units.max().astype(np.uint64) - units.astype(np.uint64)
    return gaps, exact_epsilon / (exact_sensitivity if monotone else 2 * exact_sensitivity)


def _whole_scores(scores: Scores) -> npt.NDArray[np.int64]:
    if isinstance(scores, np.ndarray):
        if not np.issubdtype(scores.dtype, np.integer):
            raise TypeError("scores must be integers; pass lattice=K to round others to multiples of 1/K")
        return (np.minimum(scores, np.uint64(_LARGEST)) if scores.dtype == np.uint64 else scores).astype(np.int64)
    if not all(isinstance(score, Integral) for score in scores):
        raise TypeError("scores must be integers; pass lattice=K to round others to multiples of 1/K")
    return _clamped([int(score) for score in scores])


def _rounded_scores(scores: Scores, lattice: int) -> npt.NDArray[np.int64]:
    """Rounding is in exact arithmetic: a rounded float product could move a score by one unit too many."""
    rounded = []
    for value in scores.tolist() if isinstance(scores, np.ndarray) else scores:
        if not isinstance(value, float | Integral | Fraction):
            raise TypeError("scores must be integers, floats or Fractions")
        try:
            numerator, denominator = (int(value), 1) if isinstance(value, Integral) else value.as_integer_ratio()
        except (ValueError, OverflowError):
            raise ValueError("scores must be finite numbers") from None
        rounded.append((2 * lattice * numerator + denominator) // (2 * denominator))
    return _clamped(rounded)


def _clamped(values: list[int]) -> npt.NDArray[np.int64]:
    return np.array([min(max(value, _SMALLEST), _LARGEST) for value in values], dtype=np.int64)
