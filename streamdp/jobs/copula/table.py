"""From a caller's frame to columns of codes, and back. What is no value of an attribute is a null, never an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars
import pyarrow

from streamdp.arrays import Codes
from streamdp.domain import Attribute, Domain
from streamdp.jobs.base import ParameterError
from streamdp.jobs.copula.sampling import uniform
from streamdp.jobs.values import attribute_codes, table_of
from streamdp.privacy.noise import NoiseSource


def encoded(frame: Any, domain: Domain) -> list[Codes]:
    """The codes of every attribute's column, `OUTSIDE` for nulls and what the domain does not hold."""
    names, columns = table_of(frame, None)
    column_of_name = dict(zip(names or (), columns, strict=False))
    for name in domain.names:
        if name not in column_of_name:
            raise ParameterError(f"the frame has no column {name!r}; it needs one for each attribute of the domain")
    return [attribute_codes(column_of_name[attribute.name], attribute) for attribute in domain.attributes]


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
    return "arrow" if isinstance(frame, pyarrow.Table | pyarrow.RecordBatch | Mapping) else "pandas"
