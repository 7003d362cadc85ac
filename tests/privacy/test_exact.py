from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdp.privacy.exact import as_fraction, decimal_text, to_text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(2, 6), Fraction(1, 3)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Decimal("1E-12"), Fraction(1, 10**12)),
        (7, Fraction(7)),
        (np.int32(7), Fraction(7)),
        (0.1, Fraction(1, 10)),
        (np.float64(0.1), Fraction(1, 10)),
        (1e-300, Fraction(1, 10**300)),
        ("0.1", Fraction(1, 10)),
        (" .5 ", Fraction(1, 2)),
        ("1e-3", Fraction(1, 1000)),
        ("-2E+2", Fraction(-200)),
        ("3/9", Fraction(1, 3)),
    ],
)
def test_reads_what_the_writer_meant(value: Any, expected: Fraction) -> None:
    assert as_fraction(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), -float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity")),
        *("", "x", "1/0", "1/2/3", "1_000", "0x10", "٣", "1e", "1e1001", "1e-999999999", "1" * 5000, "1.5/2", "nan"),
    ],
)
def test_refuses_what_is_no_finite_number(value: Any) -> None:
    with pytest.raises(ValueError):
        as_fraction(value)


@pytest.mark.parametrize("value", [True, False, np.bool_(True), None, b"1", [1], 1j, np.float32(0.1)])
def test_refuses_other_types_and_says_what_is_right(value: Any) -> None:
    with pytest.raises(TypeError, match="Fraction"):
        as_fraction(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_its_shortest_decimal(value: float) -> None:
    assert as_fraction(value) == as_fraction(json.dumps(value))
    assert float(as_fraction(value)) == value


@given(st.fractions())
def test_text_reads_back(value: Fraction) -> None:
    assert as_fraction(to_text(value)) == value


@given(st.fractions())
def test_decimal_text_is_exact_or_says_that_it_is_not(value: Fraction) -> None:
    text = decimal_text(value)
    if text.startswith("≈"):
        shown = as_fraction(text[1:])
        assert shown < value
        assert value - shown < abs(value) / 1000
    else:
        assert as_fraction(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(1), "1"),
        (Fraction(100), "100"),
        (Fraction(1, 8), "0.125"),
        (Fraction(1, 3), "≈0.3333"),
        (Fraction(2, 3), "≈0.6666"),
        (Fraction(1, 10**12), "0.000000000001"),
        (Fraction(10**30), "1e+30"),
    ],
)
def test_decimal_text_for_people(value: Fraction, text: str) -> None:
    assert decimal_text(value) == text
