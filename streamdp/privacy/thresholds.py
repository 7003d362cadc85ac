"""Binary digits of the probabilities behind the noise, exact at any depth.

A Bernoulli(p) trial is decided by comparing random bits with the binary digits of p. Here those digits are computed
with a rigorous enclosure: a lower and an upper bound of p, tightened until both have the same digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, DivisionByZero, InvalidOperation
from fractions import Fraction


@dataclass(frozen=True)
class Probability:
    """`exp(-y)`, or with `odds` set, `odds / (1 + exp(y))` for odds 1 or 2; the exponent `y` is a positive rational.

    `exp` of a non-zero rational is irrational (Lindemann), so no digit expansion ends and every enclosure closes.
    """

    exponent: Fraction
    odds: int = 0

    def leading_digits(self, count: int) -> int:
        """The first `count` binary digits after the point, `floor(p * 2**count)`, for a count of at least 3."""
        if self.exponent > count:
            # p < 2 exp(-y) < 2**(1 - 1.44 y) has no digit that early, and `exp` of a huge exponent would underflow.
            return 0
        # p stays strictly below its limit at y = 0; without this, digits of p = 1 - tiny would need great precision.
        largest = (1 << count) - 1 if self.odds != 1 else (1 << (count - 1)) - 1
        precision = count // 3 + 12
        while True:
            low, high = _exponential_bounds(self.exponent, precision)
            digits = self._digits_of(low, count)
            if digits == min(self._digits_of(high, count), largest):
                return digits
            precision *= 2

    def digits(self, start: int, count: int) -> int:
        """The `count` digits that follow the first `start`."""
        return self.leading_digits(start + count) & ((1 << count) - 1)

    def _digits_of(self, exponential: Fraction, count: int) -> int:
        part, whole = exponential.numerator, exponential.denominator
        return (self.odds * part << count) // (whole + part) if self.odds else (part << count) // whole


def _exponential_bounds(exponent: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    """Rational bounds of `exp(-exponent)`.

    The quotient is rounded outwards; `decimal` rounds `exp` correctly, so one unit in the last place covers its error.
    """
    numerator, denominator = Decimal(exponent.numerator), Decimal(exponent.denominator)
    down, up = (
        Context(
            prec=precision, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, DivisionByZero]
        )
        for rounding in (ROUND_FLOOR, ROUND_CEILING)
    )
    low = down.next_minus(down.exp(up.divide(numerator, denominator).copy_negate()))
    high = up.next_plus(up.exp(down.divide(numerator, denominator).copy_negate()))
    return Fraction(low), Fraction(high)
