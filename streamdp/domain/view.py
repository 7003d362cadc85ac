"""A histogram's view of the domain: some attributes, each perhaps coarsened, as one flat array of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdp.domain.attribute import Attribute, Number
from streamdp.domain.domain import Domain

Selector = str | Sequence[str] | tuple[Number | None, Number | None]
"""Which part of an axis: a label, a list of labels, or, for numbers, `(low, high)` inclusive (`None` is the end)."""


@dataclass(frozen=True)
class Axis:
    """One attribute of a histogram, with at most one coarsening.

    `bins=n` merges neighbouring fine bins as evenly as possible; `edges` keeps some of the fine edges (the last one is
    the attribute's high, inclusive, as in the domain); `groups` merges categories and must name each exactly once.
    """

    attribute: str
    bins: int | None = None
    edges: tuple[Number, ...] | None = None
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.bins, self.edges, self.groups)) > 1:
            raise ValueError(f"{self.attribute}: give one of bins, edges and groups")

    @classmethod
    def grouped(cls, attribute: str, groups: Mapping[str, Iterable[str]]) -> Axis:
        return cls(attribute, groups=tuple((label, tuple(values)) for label, values in groups.items()))

    def coarsen(self, fine: Attribute) -> tuple[Attribute, NDArray[np.int64]]:
        """The attribute as this axis sees it, and its code for each fine code."""
        if self.groups is not None:
            return self._group(fine)
        if self.bins is None and self.edges is None:
            return fine, np.arange(fine.size)
        if fine.kind == "categorical":
            raise ValueError(f"{fine.name}: categories have no order to merge by; use groups, not bins or edges")
        kept = self._kept_edges(fine)
        coarse = Attribute(fine.name, fine.kind, edges=tuple(fine.edges[i] for i in kept), outside=fine.outside)
        return coarse, np.repeat(np.arange(coarse.size), np.diff(kept))

    def _kept_edges(self, fine: Attribute) -> list[int]:
        """Positions, among the fine edges, of the edges this axis keeps."""
        if self.bins is not None:
            if not 1 <= self.bins <= fine.size:
                raise ValueError(
                    f"{fine.name}: {self.bins} bins cannot be merged from {fine.size}; give 1 to {fine.size}"
                )
            return [fine.size * i // self.bins for i in range(self.bins + 1)]
        assert self.edges is not None
        if len(self.edges) < 2 or self.edges[0] != fine.low or self.edges[-1] != fine.high:
            raise ValueError(f"{fine.name}: edges must run from {fine.low} to {fine.high}, the ends of the domain")
        places = {edge: place for place, edge in enumerate(fine.edges[:-1])}
        if unknown := [edge for edge in self.edges[:-1] if edge not in places]:
            near = ", ".join(f"{edge} (nearest {min(places, key=lambda e: abs(e - edge))})" for edge in unknown)
            raise ValueError(f"{fine.name}: every edge must be an edge of the domain; not one: {near}")
        kept = [*(places[edge] for edge in self.edges[:-1]), fine.size]
        if any(a >= b for a, b in pairwise(kept)):
            raise ValueError(f"{fine.name}: edges must increase")
        return kept

    def _group(self, fine: Attribute) -> tuple[Attribute, NDArray[np.int64]]:
        assert self.groups is not None
        if fine.kind != "categorical":
            raise ValueError(f"{fine.name}: groups are for categories; use bins or edges")
        named = [value for _, values in self.groups for value in values]
        if len({label for label, _ in self.groups}) != len(self.groups):
            raise ValueError(f"{fine.name}: group labels must differ")
        if any(not values for _, values in self.groups):
            raise ValueError(f"{fine.name}: a group needs at least one value")
        if unknown := [value for value in named if value not in fine.values]:
            raise ValueError(f"{fine.name}: not in the domain: {', '.join(unknown)}")
        if twice := sorted({value for value in named if named.count(value) > 1}):
            raise ValueError(f"{fine.name}: in more than one group: {', '.join(twice)}")
        if missing := [value for value in fine.values if value not in named]:
            raise ValueError(f"{fine.name}: in no group: {', '.join(missing)}")
        group_of = {value: code for code, (_, values) in enumerate(self.groups) for value in values}
        coarse = Attribute.categorical(fine.name, [label for label, _ in self.groups], fine.outside)
        return coarse, np.array([group_of[value] for value in fine.values], dtype=np.int64)

    def describe(self) -> dict[str, Any]:
        description: dict[str, Any] = {"attribute": self.attribute}
        if self.bins is not None:
            description["bins"] = self.bins
        if self.edges is not None:
            description["edges"] = list(self.edges)
        if self.groups is not None:
            # Pairs, because the order of the groups is the order of the cells and JSON objects have none.
            description["groups"] = [[label, list(values)] for label, values in self.groups]
        return description

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Axis:
        groups, edges = description.get("groups"), description.get("edges")
        return cls(
            description["attribute"],
            bins=description.get("bins"),
            edges=None if edges is None else tuple(edges),
            groups=None if groups is None else tuple((label, tuple(values)) for label, values in groups),
        )


@dataclass(frozen=True, init=False)
class View:
    """A histogram over `axes` of a domain: `cells` counts in C order over `shape`."""

    name: str
    domain: Domain
    axes: tuple[Axis, ...]

    def __init__(self, name: str, domain: Domain, axes: Iterable[Axis | str]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "axes", tuple(Axis(axis) if isinstance(axis, str) else axis for axis in axes))
        if not self.axes:
            raise ValueError(f"histogram {name}: at least one attribute is needed")
        if len(set(self.attributes)) != len(self.axes):
            raise ValueError(f"histogram {name}: each attribute once")
        # Now, so that a coarsening that does not fit is refused here and not at the first record.
        _ = self._coarsened

    @cached_property
    def _coarsened(self) -> tuple[tuple[Attribute, NDArray[np.int64]], ...]:
        return tuple(axis.coarsen(self.domain[axis.attribute]) for axis in self.axes)

    @property
    def _coarse(self) -> tuple[Attribute, ...]:
        return tuple(coarse for coarse, _ in self._coarsened)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes, one per axis."""
        return tuple(axis.attribute for axis in self.axes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(coarse.size for coarse in self._coarse)

    @cached_property
    def cells(self) -> int:
        return prod(self.shape)

    @property
    def axis_labels(self) -> tuple[tuple[str, ...], ...]:
        """A readable label for every index of every axis."""
        return tuple(coarse.labels for coarse in self._coarse)

    @cached_property
    def _steps(self) -> tuple[tuple[str, int, NDArray[np.int64]], ...]:
        """Per axis: the attribute, its place in the domain, and for each fine code its index times the axis' stride."""
        strides = [prod(self.shape[place + 1 :]) for place in range(len(self.shape))]
        return tuple(
            (axis.attribute, self.domain.index(axis.attribute), codes * stride)
            for axis, (_, codes), stride in zip(self.axes, self._coarsened, strides, strict=True)
        )

    def cell_of(self, columns: Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """The flat cell of every row, from its codes: columns by attribute name, or all of the domain's in order.

        Every code must lie inside the domain; rows that do not are ingest's to turn away.
        """
        cells: NDArray[np.int64] | None = None
        for name, place, step in self._steps:
            part = step.take(columns[name] if isinstance(columns, Mapping) else columns[place])
            if cells is None:
                cells = part
            else:
                cells += part
        assert cells is not None
        return cells

    def selection(self, **ranges: Selector) -> tuple[slice | NDArray[np.int64], ...]:
        """Per axis, the indices that `ranges` selects; an attribute not named is selected whole.

        A numeric range must begin and end with cells, because part of a cell was never counted on its own.
        """
        for name in ranges:
            if name not in self.attributes:
                raise ValueError(
                    f"histogram {self.name} has no attribute {name!r}; it has {', '.join(self.attributes)}"
                )
        return tuple(
            _select(coarse, ranges[coarse.name]) if coarse.name in ranges else slice(0, coarse.size)
            for coarse in self._coarse
        )

    def range_count(self, counts: NDArray[Any], **ranges: Selector) -> int:
        """The sum of `counts` (flat, or of this view's shape) over the selected cells."""
        selected = np.asarray(counts).reshape(self.shape)
        for place, chosen in enumerate(self.selection(**ranges)):
            selected = selected[(slice(None),) * place + (chosen,)]
        total: int = selected.sum().item()
        return total

    def describe(self) -> dict[str, Any]:
        """JSON-able: all a subscriber needs to rebuild the view, with the attributes it uses and no others."""
        used = Domain(self.domain[name] for name in self.attributes)
        return {"name": self.name, "domain": used.describe(), "axes": [axis.describe() for axis in self.axes]}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> View:
        """The same cells over a domain of just the attributes used."""
        axes = [Axis.from_description(axis) for axis in description["axes"]]
        return cls(description["name"], Domain.from_description(description["domain"]), axes)


def _select(coarse: Attribute, selector: Selector) -> slice | NDArray[np.int64]:
    if isinstance(selector, str):
        selector = [selector]
    if isinstance(selector, tuple) and coarse.kind != "categorical" and not any(isinstance(s, str) for s in selector):
        if len(selector) != 2:
            raise ValueError(f"{coarse.name}: a range is a pair (low, high)")
        return _select_range(coarse, *selector)
    codes = {label: code for code, label in enumerate(coarse.labels)}
    if unknown := [str(label) for label in selector if label not in codes]:
        raise ValueError(f"{coarse.name}: no cell labelled {', '.join(unknown)}; labels are like {coarse.labels[0]!r}")
    return np.array(sorted({codes[label] for label in selector}), dtype=np.int64)  # type: ignore[index]


def _select_range(coarse: Attribute, low: Number | None, high: Number | None) -> slice:
    starts = coarse.edges[:-1]
    # The highest value of each bin: what an inclusive range ends with.
    ends = tuple(edge - 1 for edge in coarse.edges[1:]) if coarse.kind == "integer" else coarse.edges[1:]
    low = starts[0] if low is None else low
    high = ends[-1] if high is None else high
    if low in starts and high in ends and low <= high:
        return slice(starts.index(low), ends.index(high) + 1)
    nearest_low = min(starts, key=lambda start: abs(start - low))
    nearest_high = min((end for end in ends if end >= nearest_low), key=lambda end: abs(end - high))
    raise ValueError(
        f"{coarse.name}: the range ({low}, {high}) does not begin and end with cells;"
        f" the nearest that does is ({nearest_low}, {nearest_high})"
    )
