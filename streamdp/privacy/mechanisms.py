"""The Laplace mechanism on integers, and draws for private rows."""

from __future__ import annotations

from fractions import Fraction

from streamdp.arrays import Integers
from streamdp.privacy.noise import SYSTEM, NoiseSource, discrete_laplace, saturated, uniform_below
from streamdp.privacy.queries import Comparison, NoisySum, RowDraws


def noisy_sum(exact: Integers, scale: Fraction, source: NoiseSource | None = None) -> Integers:
    """Integers with discrete Laplace noise of `scale`.

    Guarantee: costs `s / scale` when one user moves `exact` by at most `s` in L1 (Ghosh, Roughgarden, Sundararajan
    2009).
    """

    def run() -> Integers:
        noisy = discrete_laplace(scale, exact.shape, source)
        noisy += exact
        return saturated(noisy)

    return (source or SYSTEM).answer(NoisySum(exact, scale), run)


def noisy_at_least(
    value: int, threshold: int, epsilon: Fraction, sensitivity: int, source: NoiseSource | None = None
) -> bool:
    """Whether the value with discrete Laplace noise reaches a public threshold. Costs `epsilon` every time."""
    scale = sensitivity / epsilon
    return (source or SYSTEM).answer(
        Comparison(value, threshold, scale),
        lambda: value + int(discrete_laplace(scale, 1, source)[0]) >= threshold,
    )


def row_draws(bound: int, rows: int, source: NoiseSource | None = None) -> Integers:
    """A uniform integer in `0 .. bound - 1` for each private row. Their number is private: they never leave."""
    return (source or SYSTEM).answer(RowDraws(bound, rows), lambda: uniform_below(bound, rows, source))
