"""From what a caller holds (an array, a data frame) to leaves and class codes, and what is checked about it in public.

A value that is no value of its attribute has no leaf. It is not an error: an error would tell that somebody's value is
odd. What becomes of a row depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.domain import OUTSIDE, Attribute
from streamdp.jobs.base import ParameterError
from streamdp.jobs.privpfc.taxonomy import BINS_WITHIN_BOUNDS, Taxonomy, codes_of_text

Integers = npt.NDArray[np.int64]


def columns_of(X: Any) -> tuple[list[str] | None, list[npt.NDArray[Any]]]:
    """The names, when X has them, and the columns. X is a mapping or data frame of columns, or a table of rows."""
    if hasattr(X, "toarray"):
        raise TypeError("sparse data is not taken: give a dense array, for instance with X.toarray()")
    if isinstance(X, Mapping) or hasattr(X, "columns"):
        names = list(X.keys() if isinstance(X, Mapping) else X.columns)
        columns = [np.asarray(X[name]) for name in names]
        if len({len(column) for column in columns}) > 1:
            raise ParameterError("X must be a table: every column with the same rows")
        return ([str(name) for name in names] if all(isinstance(name, str) for name in names) else None), columns
    try:
        table = np.asarray(X)
    except ValueError:
        raise ParameterError("X must be a table: every row with the same columns") from None
    if np.iscomplexobj(table):
        raise ParameterError("Complex data not supported")
    if table.ndim != 2:
        raise ParameterError(
            "Expected 2D array, a row per user and a column per attribute. Reshape your data: X.reshape(-1, 1)"
        )
    return None, list(table.T)


def taxonomies_for(attributes: Any, names: Sequence[str] | None, columns: int) -> tuple[Taxonomy, ...]:
    """The declared taxonomies, or even bins within the two bounds that were declared for every column."""
    if columns == 0:
        raise ParameterError("X has 0 features, and at least one attribute is needed")
    if _is_bounds(attributes):
        low, high = map(float, attributes)
        if not (np.isfinite([low, high]).all() and low < high):
            raise ParameterError("attributes: bounds are two finite numbers, the lower first")
        given = names if names is not None else [f"x{place}" for place in range(columns)]
        return tuple(
            Taxonomy(Attribute.real(name, low, high, bins=BINS_WITHIN_BOUNDS, outside="clamp")) for name in given
        )
    return declared_taxonomies(attributes)


def declared_taxonomies(attributes: Any) -> tuple[Taxonomy, ...]:
    if isinstance(attributes, Sequence) and not len(attributes):
        raise ParameterError("attributes: at least one")
    fault = "attributes must be Taxonomy or Attribute objects, one for each column, or the two bounds of all columns"
    if isinstance(attributes, str) or not isinstance(attributes, Sequence):
        raise ParameterError(fault)
    made = []
    for given in attributes:
        if not isinstance(given, Taxonomy | Attribute):
            raise ParameterError(fault)
        made.append(given if isinstance(given, Taxonomy) else Taxonomy(given))
    if len({taxonomy.name for taxonomy in made}) < len(made):
        raise ParameterError("attributes: each name once")
    return tuple(made)


def leaves_of(
    taxonomies: Sequence[Taxonomy], names: Sequence[str] | None, columns: Sequence[npt.NDArray[Any]]
) -> list[Integers]:
    """The leaves of every taxonomy's column, found by name when X has names and by place when not."""
    if names is None:
        if len(columns) != len(taxonomies):
            raise ParameterError(
                f"X has {len(columns)} features, but PrivPfC is expecting {len(taxonomies)} features as input"
            )
        chosen = list(columns)
    else:
        place_of = {name: place for place, name in enumerate(names)}
        missing = [taxonomy.name for taxonomy in taxonomies if taxonomy.name not in place_of]
        if missing:
            raise ParameterError(f"X has no column {', '.join(missing)}")
        chosen = [columns[place_of[taxonomy.name]] for taxonomy in taxonomies]
    return [taxonomy.leaves_of(column) for taxonomy, column in zip(taxonomies, chosen, strict=True)]


def checked_classes(classes: Any) -> npt.NDArray[Any]:
    """The public classes in increasing order."""
    given = np.asarray(classes) if not isinstance(classes, str) and np.iterable(classes) else np.zeros((0, 0))
    if given.ndim != 1 or not len(given) or given.dtype.kind not in "biufUO":
        raise ParameterError("classes must be the public list of all classes, one at least")
    try:
        ordered: npt.NDArray[Any] = np.unique(given)
    except TypeError:
        raise ParameterError("classes must be all text or all numbers") from None
    if len(ordered) < len(given) or (ordered.dtype.kind == "f" and np.isnan(ordered).any()):
        raise ParameterError("classes: each once, and none of them NaN")
    return ordered


def codes_of_classes(y: Any, classes: npt.NDArray[Any]) -> Integers:
    """The place of every label among the classes, OUTSIDE for what is none of them."""
    if y is None:
        raise ParameterError("PrivPfC requires y to be passed, but the target y is None")
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ParameterError("y must have one dimension, a class for each row")
    if labels.dtype.kind == classes.dtype.kind == "U":
        return codes_of_text(labels, classes.tolist())
    code_of: dict[Any, int] = {value: code for code, value in enumerate(classes.tolist())}
    return np.fromiter((_code(code_of, label) for label in labels.tolist()), dtype=np.int64, count=len(labels))


def _code(code_of: Mapping[Any, int], label: Any) -> int:
    try:
        return code_of.get(label, OUTSIDE)
    except TypeError:
        return OUTSIDE


def _is_bounds(attributes: Any) -> bool:
    pair = isinstance(attributes, Sequence) and not isinstance(attributes, str) and len(attributes) == 2
    return pair and all(isinstance(bound, Real) and not isinstance(bound, bool) for bound in attributes)
