"""Public taxonomies: for every attribute, partitions of its domain from the whole down to single codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Codes
from streamdp.domain import OUTSIDE, Attribute
from streamdp.jobs.base import ParameterError
from streamdp.jobs.values import attribute_codes, column_of

Tree = Mapping[str, Any] | Sequence[Any]

# What a column given by its bounds alone is divided into at the finest level.
BINS_WITHIN_BOUNDS = 64


@dataclass(frozen=True)
class Taxonomy:
    """The levels of one attribute, the whole domain first; leaves are ordered so that every node is a run of them.

    Numeric: dyadic, each level halves the nodes of the one above, down to the attribute's bins. Categorical: the levels
    of `tree`, or the whole domain and its values. A tree is a mapping from the name of a node to its subtree, or a list
    of values and subtrees; a value that ends higher than others stays as it is on the levels below.

    >>> colours = Attribute.categorical("colour", ["red", "pink", "blue"])
    >>> taxonomy = Taxonomy(colours, {"warm": ["red", "pink"], "cold": ["blue"]})
    >>> [taxonomy.labels(level) for level in range(taxonomy.height)]
    [('any',), ('warm', 'cold'), ('red', 'pink', 'blue')]
    """

    attribute: Attribute
    tree: Tree | None = None

    def __post_init__(self) -> None:
        if self.tree is not None and self.attribute.kind != "categorical":
            raise ParameterError(f"{self.attribute.name}: a tree is for a categorical attribute")
        _ = self._partition  # a tree with faults is refused here, before it meets any data

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def starts(self) -> tuple[Codes, ...]:
        """For every level, the first leaf of each node, in the taxonomy's order of leaves."""
        return self._partition.starts

    @property
    def height(self) -> int:
        return len(self.starts)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The number of nodes of every level, increasing from 1."""
        return tuple(map(len, self.starts))

    def labels(self, level: int) -> tuple[str, ...]:
        """What the nodes of a level are called."""
        if self._partition.labels is not None:
            return self._partition.labels[level]
        starts = self.starts[level].tolist()
        return tuple(_label(self.attribute, *node) for node in pairwise([*starts, self.attribute.size]))

    def leaves_of(self, values: Any) -> Codes:
        """The leaf of every value, OUTSIDE where it has none; what is no value of the attribute is outside too."""
        return self.leaves_of_codes(attribute_codes(column_of(values), self.attribute))

    def leaves_of_codes(self, codes: npt.NDArray[np.integer]) -> Codes:
        """The leaf of every code of the attribute."""
        leaves: Codes = np.append(self._leaf_of_code, OUTSIDE)[codes]
        return leaves

    def nodes_of_leaves(self, level: int) -> Codes:
        """The node on `level` of every leaf."""
        starts = self.starts[level]
        return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, self.attribute.size)))

    @cached_property
    def _leaf_of_code(self) -> Codes:
        return np.argsort(self._partition.codes)

    @cached_property
    def _partition(self) -> _Partition:
        if self.tree is not None:
            return _levels_of_tree(self.attribute, self.tree)
        size = self.attribute.size
        counts = [1] if size == 1 else [1, size]
        if self.attribute.kind != "categorical":
            counts[1:-1] = [2**height for height in range(1, (size // 2).bit_length())]
        return _Partition(np.arange(size), tuple(_even_starts(size, nodes) for nodes in counts), None)


@dataclass(frozen=True)
class _Partition:
    """The codes in the order of the leaves, the levels, and what a tree calls their nodes."""

    codes: Codes
    starts: tuple[Codes, ...]
    labels: tuple[tuple[str, ...], ...] | None


def _even_starts(size: int, nodes: int) -> Codes:
    # Bin i is in node floor(i * nodes / size); for powers of two these are nested.
    return -(-np.arange(nodes, dtype=np.int64) * size // nodes)


def _label(attribute: Attribute, start: int, end: int) -> str:
    if end == start + 1:
        return attribute.labels[start]
    if end - start == attribute.size:
        return "any"
    edges = attribute.edges
    last = edges[end] - 1 if attribute.kind == "integer" else edges[end]
    return f"{edges[start]} to {last}"


@dataclass(frozen=True)
class _Node:
    label: str
    values: tuple[str, ...]
    children: tuple[_Node, ...]


def _levels_of_tree(attribute: Attribute, tree: Tree) -> _Partition:
    root = _node(attribute.name, "any", tree, ())
    _check_values(attribute, root.values)
    levels: list[list[_Node]] = [[root]]
    while any(node.children for node in levels[-1]):
        below = [child for node in levels[-1] for child in (node.children or (node,))]
        # A chain of single children is one node: two levels with the same partition would be the same grid twice.
        if len(below) == len(levels[-1]):
            levels[-1] = below
        else:
            levels.append(below)
    code_of = {value: code for code, value in enumerate(attribute.values)}
    return _Partition(
        np.array([code_of[value] for value in root.values], dtype=np.int64),
        tuple(np.cumsum([0, *(len(node.values) for node in level[:-1])]) for level in levels),
        tuple(tuple(node.label for node in level) for level in levels),
    )


def _node(name: str, label: str, tree: Any, above: tuple[int, ...]) -> _Node:
    if isinstance(tree, str):
        return _Node(tree, (tree,), ())
    if id(tree) in above or not isinstance(tree, Mapping | Sequence):
        raise ParameterError(f"{name}: the taxonomy is not a tree of mappings, lists and the attribute's values")
    if not tree:
        raise ParameterError(f"{name}: a node of the taxonomy has nothing below it")
    children = tuple(_node(name, child, below, (*above, id(tree))) for child, below in _named(tree))
    values = tuple(value for child in children for value in child.values)
    return _Node(label, values, children)


def _named(tree: Tree) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        yield from ((str(label), below) for label, below in tree.items())
    else:
        yield from ((_list_label(item), item) for item in tree)


def _list_label(item: Any) -> str:
    """A node that was given no name is called by the values in it."""
    if isinstance(item, str):
        return item
    return " or ".join(_list_label(below) for below in item) if isinstance(item, Sequence) else "node"


def _check_values(attribute: Attribute, values: tuple[str, ...]) -> None:
    known = set(attribute.values)
    if not set(values) <= known:
        raise ParameterError(f"{attribute.name}: the taxonomy holds a value that the attribute does not have")
    if len(set(values)) < len(values):
        raise ParameterError(f"{attribute.name}: the taxonomy is not a tree: a value has two places in it")
    if set(values) < known:
        raise ParameterError(f"{attribute.name}: the taxonomy misses a value of the attribute")
