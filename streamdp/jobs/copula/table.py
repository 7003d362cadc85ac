"""From a caller's frame to columns of codes, and back. What is no value of an attribute is a null, never an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars
import pyarrow
import pyarrow.compute

from streamdp.domain import Attribute, Domain
from streamdp.domain.attribute import OUTSIDE
from streamdp.jobs.base import ParameterError
from streamdp.jobs.copula.sampling import Codes, uniform
from streamdp.privacy.noise import NoiseSource


def encoded(frame: Any, domain: Domain) -> list[Codes]:
    """The codes of every attribute's column, `OUTSIDE` for nulls and what the domain does not hold."""
    return [_codes(_column(frame, attribute.name), attribute) for attribute in domain.attributes]


def _column(frame: Any, name: str) -> Any:
    names = frame.column_names if isinstance(frame, pyarrow.Table) else getattr(frame, "columns", frame)
    if not hasattr(frame, "__getitem__") or name not in names:
        raise ParameterError(f"the frame has no column {name!r}; it needs one for each attribute of the domain")
    column = frame[name]
    if isinstance(column, polars.Series):
        return column.to_arrow()
    if isinstance(column, pyarrow.ChunkedArray):
        return column.combine_chunks()
    if isinstance(column, pyarrow.Array):
        return column
    try:
        return pyarrow.array(column, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError, UnicodeError):
        # Mixed types, or half a surrogate pair: one value at a time, since an error would tell that somebody's value is
        # odd.
        return pyarrow.array([None if value is None else _plain_text(value) for value in column])


def _plain_text(value: Any) -> str:
    return str(value).encode(errors="backslashreplace").decode()


def _codes(column: Any, attribute: Attribute) -> Codes:
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if attribute.kind == "categorical":
        text = column.cast(pyarrow.string(), safe=False)
        found = pyarrow.compute.index_in(text, value_set=pyarrow.array(attribute.values, pyarrow.string()))
        codes: Codes = found.fill_null(OUTSIDE).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes
    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
        column = pyarrow.array([_number(value) for value in column.to_pylist()], pyarrow.float64())
    return attribute.encode(column.to_numpy(zero_copy_only=False))


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def decoded(codes: Sequence[Codes], domain: Domain, source: NoiseSource | None) -> pyarrow.Table:
    """A table with a value for every code: a category, or a number uniform in its bin; null beyond the last code."""
    columns = [_values(column, attribute, source) for column, attribute in zip(codes, domain.attributes, strict=True)]
    return pyarrow.table(dict(zip(domain.names, columns, strict=True)))


def _values(codes: Codes, attribute: Attribute, source: NoiseSource | None) -> Any:
    nulls = codes >= attribute.size
    mask = nulls if nulls.any() else None
    if attribute.kind == "categorical":
        indices = pyarrow.array(codes.astype(np.int32), mask=mask)
        return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(attribute.values, pyarrow.string()))
    bins = codes if mask is None else np.minimum(codes, attribute.size - 1)
    return pyarrow.array(_numbers(bins, attribute, source), mask=mask)


def _numbers(bins: Codes, attribute: Attribute, source: NoiseSource | None) -> npt.NDArray[Any]:
    edges = np.array(attribute.edges)
    widths = np.diff(edges)
    if attribute.kind == "integer" and (widths == 1).all():
        return edges[bins]
    inside = uniform((bins.size,), source) * widths[bins]
    if attribute.kind == "integer":
        inside = np.minimum(inside.astype(np.int64), widths[bins] - 1)
    numbers: npt.NDArray[Any] = np.minimum(edges[bins] + inside, attribute.high)
    return numbers


def like(table: pyarrow.Table, kind: str) -> Any:
    """As the kind of frame that was fitted."""
    if kind == "polars":
        return polars.from_arrow(table)
    return table.to_pandas() if kind == "pandas" else table


def kind_of(frame: Any) -> str:
    if isinstance(frame, polars.DataFrame):
        return "polars"
    return "arrow" if isinstance(frame, pyarrow.Table | Mapping) else "pandas"
