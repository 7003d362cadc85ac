"""Exact rationals for everything that is paid for.

Budgets are added, compared and halved thousands of times, and the answer decides whether somebody's privacy is spent.
In binary floating point ten times 0.1 is not 1, so a float is read once, by the shortest decimal text that stands for
it (its repr): whoever writes 0.1 means one tenth.
"""

from __future__ import annotations

import re
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any

# Longer texts and larger exponents would cost unbounded memory to expand; every finite float lies well inside.
_LONGEST_TEXT = 4096
_LARGEST_EXPONENT = 1000

_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE](?P<exponent>[+-]?\d{1,9}))?", re.ASCII)
_RATIO = re.compile(r"[+-]?\d+/\d+", re.ASCII)

_EXPECTED = 'give a Fraction, a Decimal, an int, a float, or text such as "0.1", "1e-3" or "1/3"'


def as_fraction(value: Any) -> Fraction:
    """The exact rational that `value` stands for.

    Reads Fraction, Decimal, integers, floats (by their repr), decimal text ("0.1", "1e-3") and ratios ("1/3").

    Raises TypeError for any other type, bool included, and ValueError for what is no finite number.

    >>> as_fraction(0.1) * 10 == as_fraction("1") == as_fraction(Decimal(1))
    True
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool):
        raise TypeError(f"a truth value is not a number here; {_EXPECTED}")
    if isinstance(value, Integral):
        return Fraction(int(value))
    if isinstance(value, Decimal):
        return _from_text(str(value))
    if isinstance(value, float):
        return _from_text(float.__repr__(value))  # a numpy float's own repr is not a number's text
    if isinstance(value, str):
        return _from_text(value.strip())
    raise TypeError(f"{type(value).__name__} is not read as an exact number; {_EXPECTED}")


def _from_text(text: str) -> Fraction:
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"the text of a number may not be longer than {_LONGEST_TEXT} characters")
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        if abs(int(decimal["exponent"] or 0)) > _LARGEST_EXPONENT:
            raise ValueError(f"the exponent of {text[:40]!r} is beyond ±{_LARGEST_EXPONENT}")
        return Fraction(text)
    if _RATIO.fullmatch(text) is not None:
        numerator, denominator = text.split("/")
        if int(denominator) == 0:
            raise ValueError(f"{text[:40]!r} divides by zero")
        return Fraction(int(numerator), int(denominator))
    raise ValueError(f"{text[:40]!r} is not a finite number; {_EXPECTED}")


def to_text(value: Fraction) -> str:
    """`value` as "p/q" in lowest terms, the form kept in states and in the journal; `as_fraction` reads it back."""
    return f"{value.numerator}/{value.denominator}"


def decimal_text(value: Fraction, digits: int = 4) -> str:
    """`value` for people: the exact decimal when it is short, else rounded down to `digits` significant ones after "≈".

    Rounded down, so that a person who asks for what a report says is left is never refused.

    >>> decimal_text(Fraction(1, 8)), decimal_text(Fraction(1, 3))
    ('0.125', '≈0.3333')
    """
    exact = Context(prec=16)
    quotient = exact.divide(Decimal(value.numerator), Decimal(value.denominator))
    if Fraction(quotient) == value:
        return _plain(quotient)
    rounded = Context(prec=digits, rounding=ROUND_FLOOR)
    return "≈" + _plain(rounded.divide(Decimal(value.numerator), Decimal(value.denominator)))


def _plain(value: Decimal) -> str:
    """Without exponent while that is readable, and without trailing zeros."""
    if value == 0:
        return "0"
    if -12 <= value.adjusted() <= 20:
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return format(value.normalize(), "g")
