"""How estimators read the rows that a caller gives them: one value at a time, to the public type of its column.

Rule: what a value becomes depends on that value and on public facts alone. No error depends on a value or quotes one.
numpy and pandas change the type of a whole column when it holds one odd value: 3 becomes 3.0, "3", b"3" or 3+0j. So all
of these are one number and one category, and a row is read alike whoever else is there.

Numbers (`number`): what is no real number is NaN.
Categories (`category`): text, numbers and truth values; all else, a missing value too, is called "nan".
Tables (`table_of`): arrays, frames, Arrow tables, mappings of columns, lists of rows. A row of a list is read by place:
what it lacks is missing, what it has beyond is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import nan
from numbers import Complex
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars
import pyarrow
import pyarrow.compute

from streamdp.arrays import Codes, Floats
from streamdp.domain import OUTSIDE, Attribute
from streamdp.jobs.base import ParameterError

Column = npt.NDArray[Any]

# As numpy, and as polars and Arrow, write them.
_TRUTH = {"True": 1.0, "true": 1.0, "False": 0.0, "false": 0.0}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)


def number(value: Any) -> float:
    """The real number that a value is, NaN when it is none.

    Truth values are 0 and 1. Text, also as bytes, is the number it spells. A complex number is real when its imaginary
    part is zero. A whole number that no float holds is NaN.
    """
    if type(value) is float:
        return value
    try:
        if isinstance(value, bytes):
            value = value.decode()
        if isinstance(value, str):
            return _TRUTH[value] if value in _TRUTH else float(value)
        # numpy calls a duration an integer.
        if isinstance(value, Complex) and not isinstance(value, np.timedelta64):
            return nan if value.imag else float(value.real)
        return float(value) if isinstance(value, Decimal | np.bool_) else nan
    except (ArithmeticError, TypeError, ValueError):
        return nan


def category(value: Any) -> str:
    """The name of the category that a value is.

    Text is its own name, but a number that was written as text is that number. So 3, 3.0, "3" and "3.0" are called "3",
    True and "true" are called "1", and "03" stays "03".
    """
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return _name(nan)
    if not isinstance(value, str) or value in _TRUTH or _INTEGER.fullmatch(value):
        return _name(number(value))
    spelt = number(value)
    return _name(spelt) if value == repr(spelt) else str(value)


def _name(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def floats_of(column: Column) -> Floats:
    """`number` of every value."""
    kind = column.dtype.kind
    if kind in "biuf":
        with np.errstate(over="ignore"):
            return column.astype(np.float64, copy=False)
    if kind == "c":
        with np.errstate(over="ignore"):
            return np.where(column.imag == 0, column.real, nan).astype(np.float64)
    if kind == "m":
        # numpy makes durations of the integers next to one.
        return np.where(np.isnat(column), nan, column.astype(np.int64).astype(np.float64))
    if kind in "OSTU":
        return np.fromiter(map(number, column.tolist()), dtype=np.float64, count=len(column))
    return np.full(len(column), nan)


def codes_of(column: Column, categories: Iterable[Any]) -> Codes:
    """The place of every value among the public categories, OUTSIDE where it has none."""
    categories = list(categories)
    places = category_places(categories)
    if column.dtype.kind not in "OSTU":
        distinct, rows = np.unique(floats_of(column), return_inverse=True)
        codes: Codes = np.array([places.get(_name(each), OUTSIDE) for each in distinct.tolist()], dtype=np.int64)[rows]
        return codes
    # Most values are the text of a category, to the letter.
    exact = {each: places[category(each)] for each in categories if isinstance(each, str)}
    return np.fromiter(
        (
            exact[value] if type(value) is str and value in exact else places.get(category(value), OUTSIDE)
            for value in column.tolist()
        ),
        dtype=np.int64,
        count=len(column),
    )


def category_places(categories: Iterable[Any]) -> dict[str, int]:
    """The place of every category by its name; two that have one name could not be told apart in every container."""
    places: dict[str, int] = {}
    for place, each in enumerate(categories):
        if places.setdefault(category(each), place) != place:
            raise ParameterError('two categories are one number, such as "3" and "3.0", or are no text and no number')
    return places


def attribute_codes(column: Column, attribute: Attribute) -> Codes:
    """The code of every value, OUTSIDE where it has none."""
    if attribute.kind == "categorical":
        return codes_of(column, attribute.values)
    return attribute.encode(floats_of(column))


class Table(NamedTuple):
    """Columns, and what they are called where the container says so."""

    names: list[Any] | None
    columns: list[Column]


def table_of(X: Any, width: int | None) -> Table:
    """The columns of what a caller gave. `width` is how many a list of rows has, from public facts."""
    if hasattr(X, "toarray"):
        raise TypeError("sparse data is not taken: give a dense array, for instance with X.toarray()")
    named = _named_columns(X)
    if named is not None:
        names, columns = named
        if len({len(column) for column in columns}) > 1:
            raise ParameterError("X must be a table: every column with the same rows")
        return Table(names, columns)
    array = None if _is_list(X) else np.asarray(X)
    if array is None or (array.ndim == 1 and (array.dtype.kind == "O" or not array.size)):
        # An array of objects has one dimension when the rows of its list differ in length.
        return Table(None, _columns_of_rows(X if array is None else array, width))
    if array.ndim != 2:
        raise ParameterError(
            "Expected 2D array: X must have two dimensions, a row per user and a column per attribute. "
            "Reshape your data: X.reshape(-1, 1)"
        )
    return Table(None, list(array.T))


def float_table(X: Any, width: int | None) -> npt.NDArray[Any]:
    """The table as an array of numbers with two dimensions; without a copy where it is one already."""
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf" and X.dtype.itemsize <= 8:
        return X
    columns = table_of(X, width).columns
    table = np.empty((len(columns[0]) if columns else len(X), len(columns)), order="F")
    for place, column in enumerate(columns):
        table[:, place] = floats_of(column)
    return table


def rows_in(X: Any) -> int:
    """How many rows a table has."""
    return len(next(iter(X.values()), ())) if isinstance(X, Mapping) else len(X)


def column_of(values: Any) -> Column:
    """One column: a list, an array, or a column of a frame or Arrow table. Values keep their own types."""
    if isinstance(values, polars.Series):
        return _column_of_polars(values)
    if isinstance(values, pyarrow.Array | pyarrow.ChunkedArray):
        return _column_of_arrow(values)
    array = _objects(values) if _is_list(values) else np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ParameterError("a column must have one dimension, a value for each row")
    return array


def _named_columns(X: Any) -> tuple[list[Any], list[Column]] | None:
    if isinstance(X, Mapping):
        return list(X), [column_of(values) for values in X.values()]
    if isinstance(X, pyarrow.Table | pyarrow.RecordBatch):
        return X.schema.names, [column_of(values) for values in X.columns]
    if isinstance(X, polars.DataFrame):
        return X.columns, [column_of(values) for values in X.iter_columns()]
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return list(X.columns), [column_of(X.iloc[:, place]) for place in range(X.shape[1])]
    return None


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def _objects(values: Iterable[Any]) -> Column:
    return np.fromiter(values, dtype=object)


def _columns_of_rows(rows: Sequence[Any] | Column, width: int | None) -> list[Column]:
    if width is None:
        raise ParameterError(
            "X is a list of rows, and how many columns they have must be public: "
            "give bounds for each column, or an array or a frame with two dimensions"
        )
    listed = [row if _is_list(row) or (isinstance(row, np.ndarray) and row.ndim == 1) else () for row in rows]
    return [_objects(row[place] if place < len(row) else None for row in listed) for place in range(width)]


def _column_of_polars(values: polars.Series) -> Column:
    if values.dtype == polars.Object:
        return _objects(values.to_list())
    if values.dtype.is_temporal():
        return np.full(len(values), None, dtype=object)
    if values.dtype.is_integer():
        # Those of 128 bits have no type in Arrow.
        values = values.cast(polars.Float64)
    return _column_of_arrow(values.to_arrow())


def _column_of_arrow(values: Any) -> Column:
    """By type: what is neither text, number nor truth value has no value that is read here."""
    kind = values.type
    if pyarrow.types.is_temporal(kind) and not pyarrow.types.is_interval(kind):
        # Arrow makes dates of the integers next to one.
        values = values.cast(pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64())
        kind = values.type
    if pyarrow.types.is_dictionary(kind):
        chunks = values.chunks if isinstance(values, pyarrow.ChunkedArray) else [values]
        decoded = [chunk.dictionary_decode() for chunk in chunks]
        return _column_of_arrow(pyarrow.chunked_array(decoded, type=kind.value_type))
    if any(is_type(kind) for is_type in _ARROW_NUMBERS):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    if any(is_type(kind) for is_type in _ARROW_OBJECTS):
        try:
            return _objects(values.to_pylist())
        except UnicodeDecodeError:
            return _objects(map(_arrow_value, values))
    return np.full(len(values), None, dtype=object)


def _arrow_value(value: Any) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return None


_ARROW_NUMBERS = (pyarrow.types.is_integer, pyarrow.types.is_floating, pyarrow.types.is_boolean)
_ARROW_OBJECTS = (
    pyarrow.types.is_decimal,
    pyarrow.types.is_string,
    pyarrow.types.is_large_string,
    pyarrow.types.is_string_view,
    pyarrow.types.is_binary,
    pyarrow.types.is_large_binary,
    pyarrow.types.is_binary_view,
    pyarrow.types.is_fixed_size_binary,
)
