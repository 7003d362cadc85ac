"""The kind of job: on a snapshot's codes it is the estimator, and what is wrong is found before the charge."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdp import result_messages
from streamdp.domain import Attribute, Domain
from streamdp.jobs import ParameterError, worker
from streamdp.jobs.catalogue import KINDS, checked
from streamdp.population import Population, write_snapshot

DOMAIN = Domain(
    [
        Attribute.categorical("ward", ["north", "south", "west"]),
        Attribute.integer("age", 0, 99, bins=16),
        Attribute.categorical("outcome", ["well", "ill"]),
    ]
)
KIND = KINDS["privpfc"]
TREE = {"ward": {"cold": ["north"], "warm": ["west", "south"]}}


def snapshot(directory: Path, users: int, records_per_user: int = 1) -> Path:
    """Who is ill is told by age; the ward tells nothing."""
    population = Population(
        DOMAIN,
        [],
        record_ids=records_per_user > 1,
        records_per_user=records_per_user,
        expire_after=None,
        tombstone_points=10,
    )
    number = np.arange(users, dtype=np.uint64)
    keys = np.stack([number, number * 7919], axis=1)
    age = (number % 16).astype(np.int64)
    population.apply(
        user=keys,
        record=keys if records_per_user > 1 else None,
        ts=np.full(users, 1_000),
        delete=np.zeros(users, dtype=bool),
        codes=[(number % 3).astype(np.int64), age, (age >= 8).astype(np.int64)],
        partition=0,
        offsets=np.arange(users),
        time_point=1,
    )
    population.close(1)
    return write_snapshot(population, directory, 1)


def ran(path: Path, epsilon: Fraction, params: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    text, rows = result_messages.unpack(worker.run("privpfc", epsilon, params, path))
    return json.loads(text), rows


def test_it_finds_what_tells_the_classes_of_a_snapshot_apart(tmp_path: Path) -> None:
    result, rows = ran(snapshot(tmp_path, 6_000), Fraction(5), {"target": "outcome", "taxonomies": TREE, "rows": 500})
    assert "age" in result["grid"]
    assert result["classes"] == ["ill", "well"]
    assert result["epsilon_spent"] == "5/1"
    assert sum(result["counts"]) == result["size"]
    shape = [len(labels) for labels in result["labels"].values()]
    counts = np.array(result["counts"]).reshape(*shape, 2)
    by_age = counts.sum(axis=tuple(axis for axis, name in enumerate(result["labels"]) if name != "age"))
    assert by_age[0].argmax() == 1
    assert by_age[-1].argmax() == 0
    table = result_messages.decode_rows(rows)
    assert table.num_rows == 500
    assert table.column_names == [*result["labels"], "outcome"]


def test_several_records_of_a_user_cost_the_same(tmp_path: Path) -> None:
    result, rows = ran(snapshot(tmp_path, 300, records_per_user=4), Fraction(1), {"target": "outcome"})
    assert result["epsilon_spent"] == "1/1"
    assert rows == []


def test_an_empty_snapshot_has_a_result(tmp_path: Path) -> None:
    result, _ = ran(snapshot(tmp_path, 0), Fraction(1), {"target": "outcome"})
    assert set(result) == {"target", "classes", "grid", "labels", "counts", "size", "epsilon_spent"}


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({}, "target: missing"),
        ({"target": "age"}, "categorical"),
        ({"target": "mood"}, "categorical"),
        ({"target": "outcome", "attributes": ["outcome"]}, "attributes"),
        ({"target": "outcome", "attributes": []}, "attributes"),
        ({"target": "outcome", "taxonomies": {"ward": ["north"]}}, "misses"),
        ({"target": "outcome", "taxonomies": {"mood": []}}, "taxonomies"),
        ({"target": "outcome", "taxonomies": 3}, "an object"),
        ({"target": "outcome", "shares": ["0.5", "0.5", "0.5"]}, "shares"),
        ({"target": "outcome", "pool_size": 0}, "pool_size"),
    ],
)
def test_what_is_wrong_is_refused_before_the_charge(params: dict[str, Any], fault: str) -> None:
    with pytest.raises(ParameterError, match=fault):
        checked(KIND, params, Fraction(1), DOMAIN, 1)


def test_what_is_right_is_not_refused() -> None:
    checked(KIND, {"target": "outcome", "taxonomies": TREE, "attributes": ["ward"]}, Fraction(1), DOMAIN, 3)
    with pytest.raises(ParameterError, match="epsilon"):
        checked(KIND, {"target": "outcome"}, Fraction(1, 10**5), DOMAIN, 2)
