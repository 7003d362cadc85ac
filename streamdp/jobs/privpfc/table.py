"""From what a caller holds (an array, a data frame) to leaves and class codes, and what is checked about it in public.

A value that is no value of its attribute has no leaf. It is not an error: an error would tell that somebody's value is
odd. What becomes of a row depends on that row alone (`streamdp.jobs.values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Integers
from streamdp.domain import Attribute
from streamdp.jobs.base import ParameterError
from streamdp.jobs.privpfc.taxonomy import BINS_WITHIN_BOUNDS, Taxonomy
from streamdp.jobs.values import codes_of, column_of, table_of


def columns_of(X: Any, width: int | None) -> tuple[list[str] | None, list[npt.NDArray[Any]]]:
    """The names, when X has them and they are text, and the columns; `width` of them in a list of rows."""
    names, columns = table_of(X, width)
    return (None if names is None or not all(isinstance(name, str) for name in names) else names), columns


def declared_columns(attributes: Any) -> int | None:
    """How many columns the attributes speak of: None when two bounds serve for any number of them."""
    return None if _is_bounds(attributes) or not isinstance(attributes, Sequence) else len(attributes)


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
    return codes_of(column_of(y), classes.tolist())


def _is_bounds(attributes: Any) -> bool:
    pair = isinstance(attributes, Sequence) and not isinstance(attributes, str) and len(attributes) == 2
    return pair and all(isinstance(bound, Real) and not isinstance(bound, bool) for bound in attributes)
