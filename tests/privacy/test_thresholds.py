"""The digits that decide every sample, against integer arithmetic that shares nothing with the module."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from streamdp.privacy.thresholds import Probability


def exponential_bounds(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Bounds of exp(-exponent) from the partial sums of exp's series, all in integers scaled by 2**digits."""
    total = term = 1 << digits
    steps = 0
    while term:
        steps += 1
        term = term * exponent.numerator // (exponent.denominator * steps)
        total += term
    # Rounding a term down costs less than 1, which later terms multiply by at most exp(exponent), here below 2**100.
    slack = steps << 110
    return Fraction(1 << digits, total + slack), Fraction(1 << digits, total)


def digits_by_series(probability: Probability, count: int) -> int:
    bounds = exponential_bounds(probability.exponent, count + 400)
    low, high = (p * probability.odds / (1 + p) if probability.odds else p for p in bounds)
    assert low < high
    low_digits, high_digits = ((p.numerator << count) // p.denominator for p in (low, high))
    assert low_digits == high_digits
    return low_digits


def random_exponents() -> list[Fraction]:
    generator = random.Random(1)
    ratios = [Fraction(generator.randint(1, 4000), generator.randint(100, 10**6)) for _ in range(20)]
    floats = [Fraction(generator.expovariate(0.2)) for _ in range(20)]
    return [*ratios, *floats, Fraction(50), Fraction(1), Fraction(1, 2**53), Fraction(7, 12345)]


@pytest.mark.parametrize("odds", [0, 1, 2])
def test_digits_of_random_exponents(odds: int) -> None:
    for exponent in random_exponents():
        probability = Probability(exponent, odds)
        for count in (8, 72, 300):
            assert probability.leading_digits(count) == digits_by_series(probability, count)


def test_later_digits_continue_the_earlier_ones() -> None:
    probability = Probability(Fraction(22, 7), odds=1)
    whole = probability.leading_digits(200)
    assert probability.leading_digits(8) << 192 | probability.digits(8, 192) == whole
    assert probability.digits(72, 64) == (whole >> 64) & (2**64 - 1)


def test_a_huge_exponent_has_zeros_where_it_should_and_digits_after() -> None:
    probability = Probability(Fraction(1000))
    assert probability.leading_digits(1442) == 0  # exp(-1000) = 2**-1442.695...
    assert probability.leading_digits(1443) == 1
    assert Probability(Fraction(10) ** 300, odds=2).leading_digits(72) == 0


def test_a_tiny_exponent_stays_below_its_limit() -> None:
    tiny = Fraction(1, 10**5000)
    assert Probability(tiny).leading_digits(72) == 2**72 - 1
    assert Probability(tiny, odds=1).leading_digits(72) == 2**71 - 1
    assert Probability(tiny, odds=2).leading_digits(72) == 2**72 - 1
