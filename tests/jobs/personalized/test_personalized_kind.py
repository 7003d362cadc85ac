"""The kind of job: every target on a snapshot with levels, and nobody pays more than their amount."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from job_snapshots import DOMAIN, halves, user_keys

from streamdp import result_messages
from streamdp.jobs import ParameterError, worker
from streamdp.jobs.catalogue import KINDS, checked
from streamdp.population import Snapshot, relevel
from streamdp.population.levels import LevelTable

KIND = KINDS["personalized"]
AMOUNTS = (Fraction(1, 2), Fraction(2), Fraction(8))
TARGETS = {
    "histogram": {"attributes": ["ward"]},
    "range_counts": {"ranges": [{"age": [0, 49]}, {"ward": ["north"], "weight": [None, 100]}]},
    "mean": {},
    "sum": {"attributes": ["age"]},
    "kmeans": {"n_clusters": 2},
    "logistic_regression": {"label": "ward", "positive": "south"},
    "linear_svm": {"label": "ward", "positive": "south", "attributes": ["age"]},
}


def snapshot(directory, users: int = 3_000, records_per_user: int = 1):
    """Every third user at each level."""
    levels = LevelTable.of_entries(user_keys(users), np.arange(users) % 3)
    return halves(directory, users, records_per_user, levels=levels, level_count=3, with_users=True)


def result(path, target: str, amounts=AMOUNTS, **params):
    blob = worker.run("personalized", amounts[-1], {"target": target, **TARGETS[target], **params}, path, amounts)
    text, _ = result_messages.unpack(blob)
    return json.loads(text)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mechanism", ["weighted", "utility", "sampling"])
def test_every_target_runs_on_a_snapshot_and_on_an_empty_one(tmp_path, target, mechanism) -> None:
    for users in (3_000, 0):
        found = result(snapshot(tmp_path, users), target, mechanism=mechanism)
        spent = [Fraction(each) for each in found["epsilon_spent_by_level"]]
        assert all(paid <= amount for paid, amount in zip(spent, AMOUNTS, strict=True))
        assert max(spent) > 0


def test_results_come_out_right(tmp_path) -> None:
    path = snapshot(tmp_path)
    assert np.abs(np.array(result(path, "histogram")["counts"]) - 1_500).max() < 60
    assert np.abs(np.array(result(path, "range_counts")["counts"]) - 1_500).max() < 200
    assert np.abs(np.array(result(path, "mean")["means"]) - [49.5, 97.5]).max() < 3
    assert result(path, "sum")["sums"][0] == pytest.approx(3_000 * 49.5, rel=0.1)
    centres = np.array(sorted(result(path, "kmeans")["cluster_centers"]))
    assert np.abs(centres - [[24.5, 42.5], [74.5, 152.5]]).max() < 20
    model = result(path, "linear_svm")
    assert (model["attributes"], model["features"]) == (["age"], ["age="])
    assert model["coefficients"][0] > 0


def test_a_user_with_several_records_pays_once(tmp_path) -> None:
    found = result(snapshot(tmp_path, records_per_user=4), "histogram", attributes=["age", "weight"])
    assert [Fraction(each) for each in found["epsilon_spent_by_level"]] == list(AMOUNTS)


def test_levels_with_nothing_to_pay_are_left_out(tmp_path) -> None:
    found = result(snapshot(tmp_path), "histogram", (Fraction(0), Fraction(0), Fraction(8)))
    assert found["epsilon_spent_by_level"] == ["0/1", "0/1", "8/1"]
    assert np.abs(np.array(found["counts"]) - 1_500).max() < 60


def test_a_snapshot_is_given_newer_levels(tmp_path) -> None:
    path = snapshot(tmp_path, 30)
    before = Snapshot.open(path)
    assert before.level_sizes == (10, 10, 10)
    relevel(path, LevelTable.of_entries(before.users[:5], np.full(5, 2)), 3)
    after = Snapshot.open(path)
    assert after.level_sizes == (0, 0, 5)
    assert after.levels.tolist() == [2] * 5 + [0] * 25
    assert (after.columns["age"] == before.columns["age"]).all()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"target": "secret"},
        {"target": "histogram", "attributes": []},
        {"target": "histogram", "attributes": ["secret"]},
        {"target": "range_counts"},
        {"target": "range_counts", "ranges": [{"secret": [0, 1]}]},
        {"target": "range_counts", "ranges": [{"ward": ["secret"]}]},
        {"target": "range_counts", "ranges": [{"age": [1, 2, 3]}]},
        {"target": "range_counts", "ranges": [{"age": ["secret", {}]}]},
        {"target": "mean", "attributes": ["ward"]},
        {"target": "kmeans", "n_clusters": 0},
        {"target": "mean", "mechanism": "sampling", "threshold": "secret"},
        {"target": "mean", "mechanism": "sampling", "threshold": "2"},
        {"target": "linear_svm"},
        {"target": "linear_svm", "label": "age", "positive": "3"},
        {"target": "linear_svm", "label": "ward", "positive": "secret"},
        {"target": "linear_svm", "label": "ward", "positive": "north", "attributes": ["ward"]},
    ],
)
def test_what_is_wrong_is_refused_before_the_charge_and_not_repeated(params) -> None:
    with pytest.raises(ParameterError) as refused:
        checked(KIND, params, Fraction(1), DOMAIN, 1)
    assert "secret" not in str(refused.value)
