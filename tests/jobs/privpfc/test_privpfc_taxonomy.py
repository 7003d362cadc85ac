from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamdp.domain import OUTSIDE, Attribute
from streamdp.jobs import ParameterError
from streamdp.jobs.privpfc import Taxonomy

COLOURS = Attribute.categorical("colour", ["red", "blue", "pink", "green"])
TREE = {"warm": ["red", "pink"], "cold": {"sea": ["blue"], "wood": ["green"]}}


def partition(taxonomy: Taxonomy, level: int) -> list[set[int]]:
    """The codes in each node, by asking where every code goes."""
    leaves = taxonomy.leaves_of_codes(np.arange(taxonomy.attribute.size))
    nodes = taxonomy.nodes_of_leaves(level)[leaves]
    return [set(np.flatnonzero(nodes == node).tolist()) for node in range(taxonomy.nodes[level])]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 16, 74, 99])
def test_numeric_levels_are_nested_even_and_dyadic(size: int) -> None:
    taxonomy = Taxonomy(Attribute.integer("age", 1, size))
    assert taxonomy.nodes[0] == 1
    assert taxonomy.nodes[-1] == size
    assert all(nodes == 2**level for level, nodes in enumerate(taxonomy.nodes[:-1]))
    assert all(below >= 2 * above for above, below in zip(taxonomy.nodes, taxonomy.nodes[1:], strict=False))
    for level in range(taxonomy.height):
        nodes = partition(taxonomy, level)
        lengths = [len(node) for node in nodes]
        assert sum(lengths) == size
        assert max(lengths) - min(lengths) <= 1
        assert all(node == set(range(min(node), max(node) + 1)) for node in nodes)
        if level:
            above = partition(taxonomy, level - 1)
            assert all(sum(node <= parent for parent in above) == 1 for node in nodes)


def test_a_tree_gives_its_levels_and_shallow_values_stay() -> None:
    taxonomy = Taxonomy(COLOURS, {"warm": ["red", "pink"], "cold": {"sea": ["blue"], "wood": ["green"]}})
    assert [taxonomy.labels(level) for level in range(taxonomy.height)] == [
        ("any",),
        ("warm", "cold"),
        ("red", "pink", "blue", "green"),
    ]
    assert partition(taxonomy, 1) == [{0, 2}, {1, 3}]
    uneven = Taxonomy(COLOURS, ["red", ["blue", ["pink", "green"]]])
    assert [uneven.labels(level) for level in (1, 2)] == [
        ("red", "blue or pink or green"),
        ("red", "blue", "pink or green"),
    ]


def test_without_a_tree_there_are_the_whole_domain_and_the_values() -> None:
    assert Taxonomy(COLOURS).nodes == (1, 4)
    assert Taxonomy(Attribute.categorical("one", ["only"])).nodes == (1,)


def test_values_find_their_leaf_and_odd_ones_none() -> None:
    taxonomy = Taxonomy(COLOURS, TREE)
    leaves = taxonomy.leaves_of(np.array(["pink", "blue", "mauve", None], dtype=object))
    assert leaves.tolist() == [1, 2, OUTSIDE, OUTSIDE]
    for dtype in (object, None):
        # Half a surrogate pair is an odd value like any other.
        assert taxonomy.leaves_of(np.array(["pink", "\ud800", "blue"], dtype=dtype)).tolist() == [1, OUTSIDE, 2]
    age = Taxonomy(Attribute.integer("age", 0, 9))
    assert age.leaves_of(np.array([0, "3", 9.0, "old", None, 12], dtype=object)).tolist() == [0, 3, 9, *[OUTSIDE] * 3]


def looped() -> dict[str, Any]:
    tree: dict[str, Any] = {"warm": ["red", "pink", "blue", "green"]}
    tree["again"] = tree
    return tree


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ({"warm": ["red", "pink"], "cold": ["blue"]}, "misses"),
        (["red", "blue", "pink", "green", "mauve"], "does not have"),
        ({"a": ["red", "blue"], "b": ["pink", "green", "red"]}, "two places"),
        ({"a": ["red", "blue", "pink", "green"], "b": []}, "nothing below"),
        ({"a": ["red", "blue", "pink", "green"], "b": 3}, "not a tree"),
        (looped(), "not a tree"),
    ],
)
def test_what_is_no_tree_over_the_values_is_refused(tree: Any, fault: str) -> None:
    with pytest.raises(ParameterError, match=fault):
        Taxonomy(COLOURS, tree)


def test_a_tree_is_for_categories() -> None:
    with pytest.raises(ParameterError, match="categorical"):
        Taxonomy(Attribute.integer("age", 0, 9), {"young": ["0"]})


def test_nodes_of_numbers_are_called_by_their_ends() -> None:
    taxonomy = Taxonomy(Attribute.integer("income", 0, 999))
    assert taxonomy.labels(0) == ("any",)
    assert taxonomy.labels(2) == ("0 to 249", "250 to 499", "500 to 749", "750 to 999")
    assert taxonomy.labels(taxonomy.height - 1)[:2] == ("0", "1")
    assert Taxonomy(Attribute.real("height", 0, 2, bins=4)).labels(1) == ("0.0 to 1.0", "1.0 to 2.0")
