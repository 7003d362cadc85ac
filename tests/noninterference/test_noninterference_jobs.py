"""With every mechanism's answer fixed, a job of any kind asks and gives back the same, whatever its snapshot holds."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answering import AnsweringSource, answered_by
from job_snapshots import halves, user_keys

from streamdp import result_messages
from streamdp.jobs.catalogue import KINDS
from streamdp.jobs.worker import run
from streamdp.population.levels import LevelTable

USERS = 1_500
LEVELS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
# Public: the table is the same whoever is there.
TABLE = LevelTable.of_entries(user_keys(USERS), np.arange(USERS) % len(LEVELS))
RANGES = [{"age": [10, 39]}, {"ward": ["north"], "weight": [0, 60]}]

KMEANS = [
    {"n_clusters": clusters, "method": method}
    for method in ("auto", "dplloyd", "dplloyd_impr", "eugkm", "hybrid", "mkm", "pruned", "refined", "ugkm")
    for clusters in (3, "auto")
    if clusters == 3 or not method.startswith("dplloyd")
]
COPULA = [
    {"method": method, "margin": margin}
    for method in ("auto", "hybrid", "kendall", "mle")
    for margin in ("auto", "efpa")
]
PRIVPFC = [
    {"target": "ward", "selection": selection, "rows": 50} for selection in ("permute_and_flip", "exponential")
] + [{"target": "ward", "size": 500, "rounds": 3}]
PERSONALIZED = [
    {"target": target, "mechanism": mechanism}
    for target in ("histogram", "range_counts", "mean", "sum", "kmeans", "logistic_regression", "linear_svm")
    for mechanism in ("weighted", "minimum", "threshold", "sampling", "privacy_aware", "utility")
]
ASKED = [
    *(("kmeans", params) for params in KMEANS),
    *(("copula", params) for params in COPULA),
    *(("privpfc", params) for params in PRIVPFC),
    *(("personalized", params) for params in PERSONALIZED),
]


def test_every_kind_is_here() -> None:
    assert {kind for kind, _ in ASKED} == set(KINDS)


def outcome(kind: str, params: Mapping[str, Any], users: int, records: int, directory: Path) -> tuple[bytes, list[Any]]:
    directory.mkdir()
    more: dict[str, Any] = {}
    by_level = KINDS[kind].is_by_level
    if by_level:
        more = {"levels": TABLE, "level_count": len(LEVELS)}
    halves(directory, users, records, **more)
    (snapshot,) = directory.glob("snapshot-*")
    source = AnsweringSource()
    with answered_by(source):
        result = run(kind, LEVELS[-1], complete(params), snapshot, LEVELS if by_level else None)
    return result, source.asked


def complete(params: Mapping[str, Any]) -> dict[str, Any]:
    match params.get("target"):
        case "range_counts":
            return {**params, "ranges": RANGES}
        case "logistic_regression" | "linear_svm":
            return {**params, "label": "ward", "positive": "north"}
    return dict(params)


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize(
    ("kind", "params"),
    ASKED,
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_the_rows_decide_nothing_but_what_is_answered(
    kind: str, params: dict[str, Any], records: int, tmp_path: Path
) -> None:
    few, asked_few = outcome(kind, params, 0, records, tmp_path / "few")
    many, asked_many = outcome(kind, params, USERS, records, tmp_path / "many")
    assert asked_few == asked_many
    assert asked_few
    assert result_messages.unpack(few) == result_messages.unpack(many)
