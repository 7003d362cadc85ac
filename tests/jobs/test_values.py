"""The rules by which values are read, one at a time, and that typed arrays give what the rules give."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import inf, isnan
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdp.domain import OUTSIDE
from streamdp.jobs.base import ParameterError
from streamdp.jobs.values import category, codes_of, column_of, float_table, floats_of, number, rows_in, table_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        (np.int8(3), 3.0),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (True, 1.0),
        (np.False_, 0.0),
        ("3", 3.0),
        (" 1e3 ", 1000.0),
        ("True", 1.0),
        ("false", 0.0),
        (b"3.5", 3.5),
        (3 + 0j, 3.0),
        (np.complex64(3), 3.0),
        (Decimal("2.5"), 2.5),
        (Fraction(1, 4), 0.25),
        (Decimal("1e999"), inf),
        ("inf", inf),
    ],
)
def test_what_is_a_number(value: Any, expected: float) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        10**400,
        -(10**400),
        Fraction(10**400, 3),
        pd.NA,
        pd.NaT,
        float("nan"),
        Decimal("sNaN"),
        1j,
        complex(3, float("nan")),
        "?",
        "",
        "\ud800",
        b"\xff",
        [3],
        {},
        np.array([3.0]),
        np.timedelta64(3, "D"),
        np.datetime64("2020-01-01"),
        date(2020, 1, 1),
        object(),
    ],
)
def test_what_is_none(value: Any) -> None:
    assert isnan(number(value))
    assert category(value) == (value if isinstance(value, str) else "nan")


def test_a_number_is_one_category_however_a_container_wrote_it() -> None:
    for three in (3, 3.0, np.int64(3), np.float32(3), 3 + 0j, "3", "3.0", b"3", b"3.0", Decimal("3.00"), np.str_("3")):
        assert category(three) == "3"
    for truth in (True, np.True_, "True", "true", 1, 1.0, "1", b"True"):
        assert category(truth) == "1"
    assert category(-0.0) == category("-0.0") == category(0) == "0"
    assert category(0.1) == category("0.1") == "0.1"
    assert category(2**53 + 1) == category(float(2**53 + 1)) == category(str(2**53 + 1))
    assert category(1e22) == category(str(1e22)) == str(10**22)


def test_text_that_no_container_makes_of_a_number_is_itself() -> None:
    for text in ("03", "1.10", "+1", "1e5", " 3", "1_0", "a", "", "NaN", "TRUE"):
        assert category(text) == text


def test_two_categories_that_are_one_number_are_refused() -> None:
    with pytest.raises(ParameterError, match="one number"):
        codes_of(column_of([1]), ["3", "3.0"])
    assert codes_of(column_of([1, "01"]), ["01", "1"]).tolist() == [1, 0]


@given(st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1), st.booleans()), min_size=1))
def test_integers_are_read_alike_by_themselves_and_in_typed_arrays(values: list[Any]) -> None:
    agree(np.array(values), values)


@given(st.lists(st.one_of(st.floats(), st.sampled_from([-1.0, 0.0, 1.0, 2.0, 0.5]))))
def test_floats_are_read_alike_by_themselves_and_in_typed_arrays(values: list[float]) -> None:
    for kind in (np.float64, np.longdouble, np.complex128, "U32", "S32"):
        agree(np.array(values, dtype=kind), values)


def agree(typed: np.ndarray, values: list[Any]) -> None:
    """Also that a list is not an array on its way."""
    assert np.array_equal(floats_of(typed), floats_of(column_of(values)), equal_nan=True)
    known = ["-1", "0", "1", "2", "0.5", str(2**63)]
    assert codes_of(typed, known).tolist() == codes_of(column_of(values), known).tolist()


def test_columns_of_every_container_keep_what_each_value_is() -> None:
    expected = ["a", None, "b"]
    for column in (
        pl.Series(expected),
        pl.Series(expected, dtype=pl.Categorical),
        pl.Series(expected, dtype=pl.Enum(["a", "b"])),
        pl.Series(expected, dtype=pl.Object),
        pa.array(expected),
        pa.array(expected).dictionary_encode(),
        pa.chunked_array([["a"], [None, "b"]]),
        pa.array([b"a", None, b"b"]),
        pd.Series(expected),
        pd.Series(expected, dtype="category"),
        np.array(expected, dtype=object),
    ):
        assert codes_of(column_of(column), ["a", "b"]).tolist() == [0, OUTSIDE, 1]
    for column in (
        pl.Series([1, None, 3]),
        pl.Series([1, None, 3], dtype=pl.Int128),
        pl.Series(["1", None, "3"], dtype=pl.Categorical),
        pa.array([1, None, 3]),
        pa.array([Decimal(1), None, Decimal(3)]),
        pd.Series([1, None, 3]),
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series([1, None, 3], dtype="category"),
    ):
        assert codes_of(column_of(column), ["1", "3"]).tolist() == [0, OUTSIDE, 1]
        assert np.array_equal(floats_of(column_of(column)), [1, np.nan, 3], equal_nan=True)


def test_columns_of_types_that_are_no_values_are_missing() -> None:
    for column in (
        pl.Series([date(9999, 1, 1)]),
        pl.Series([[1]]),
        pl.Series([{"a": 1}]),
        pl.Series([None]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.nulls(1),
        pd.Series(pd.to_datetime(["2020-01-01"])),
        np.array(["2020-01-01"], dtype="M8[s]"),
    ):
        assert np.isnan(floats_of(column_of(column))).all()
        assert codes_of(column_of(column), ["1"]).tolist() == [OUTSIDE]


def test_text_that_is_no_text_is_no_error() -> None:
    """Arrow does not look at the bytes of a file's text."""
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"a"]).buffers())
    assert codes_of(column_of(broken), ["a"]).tolist() == [OUTSIDE, 0]


def test_rows_of_a_list_are_read_by_place() -> None:
    rows = [[1, 2], (3, "4"), np.array([5.0, 6.0]), [7], [8, 9, 10], None, "ab", {"a": 1}]
    expected = np.array([[1, 2], [3, 4], [5, 6], [7, np.nan], [8, 9], *[[np.nan, np.nan]] * 3])
    assert np.array_equal(float_table(rows, 2), expected, equal_nan=True)
    ragged = np.empty(len(rows), dtype=object)
    ragged[:] = rows
    assert np.array_equal(float_table(ragged, 2), expected, equal_nan=True)
    assert float_table([], 3).shape == (0, 3)


def test_the_number_of_columns_of_a_list_is_declared() -> None:
    """A list of rows does not say it: any row could be the odd one."""
    for rows in ([[1, 2]], [], [[1], [1, 2]]):
        with pytest.raises(ParameterError, match="must be public"):
            table_of(rows, None)


def test_public_structure_is_checked() -> None:
    with pytest.raises(ParameterError, match="two dimensions"):
        table_of(np.zeros((2, 2, 2)), 2)
    with pytest.raises(ParameterError, match="same rows"):
        table_of({"a": [1], "b": [1, 2]}, None)
    with pytest.raises(ParameterError, match="one dimension"):
        column_of(np.zeros((2, 2)))
    assert rows_in({"a": [1, 2]}) == rows_in(pa.table({"a": [1, 2]})) == rows_in([[1], [2]]) == 2


def test_numbers_are_not_copied() -> None:
    for kind in (np.float64, np.float32, np.int64, np.bool_):
        table = np.zeros((3, 2), dtype=kind)
        assert float_table(table, None) is table
    assert float_table(np.zeros((3, 2), dtype=np.longdouble), None).dtype == np.float64
