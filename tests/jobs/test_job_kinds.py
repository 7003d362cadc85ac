"""Kinds of job: their parameters are documented, and they run on a snapshot as the estimator does on an array."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from streamdp import result_messages
from streamdp.domain import Attribute, Domain
from streamdp.jobs import worker
from streamdp.jobs.catalogue import KINDS, describe
from streamdp.jobs.kind import bounds_of, middles
from streamdp.jobs.kinds.kmeans import KMeansParameters
from streamdp.jobs.kmeans import METHODS
from streamdp.population import Population, write_snapshot

DOMAIN = Domain(
    [
        Attribute.categorical("ward", ["north", "south"]),
        Attribute.integer("age", 0, 99, bins=10),
        Attribute.real("weight", 0, 200, bins=40),
    ]
)


def snapshot(directory, users: int, records_per_user: int = 1):
    """Half of the users in bin 2 of age and 8 of weight, half in 7 and 30."""
    population = Population(
        DOMAIN, [], record_ids=records_per_user > 1, records_per_user=records_per_user, expire_after=None,
        tombstone_points=10,
    )  # fmt: skip
    number = np.arange(users, dtype=np.uint64)
    keys = np.stack([number, number * 7919], axis=1)
    half = (number % 2).astype(np.int64)
    population.apply(
        user=keys,
        record=keys if records_per_user > 1 else None,
        ts=np.full(users, 1_000),
        delete=np.zeros(users, dtype=bool),
        codes=[half, 2 + 5 * half, 8 + 22 * half],
        partition=0,
        offsets=np.arange(users),
        time_point=1,
    )
    population.close(1)
    return write_snapshot(population, directory, 1)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_every_parameter_of_every_kind_is_documented(kind):
    assert kind.summary
    for parameter in describe(kind):
        assert parameter["type"]
        assert parameter["meaning"], f"{kind.name}.{parameter['name']} has no meaning"


def test_the_methods_of_kmeans_are_all_there():
    assert set(get_args(KMeansParameters.model_fields["method"].annotation)) == set(METHODS)


def test_bounds_and_middles_come_from_the_public_domain():
    assert bounds_of([DOMAIN["age"], DOMAIN["weight"]]) == ([0.0, 0.0], [99.0, 200.0])
    assert middles(DOMAIN["age"]).tolist() == [4.5, 14.5, 24.5, 34.5, 44.5, 54.5, 64.5, 74.5, 84.5, 94.5]
    assert middles(DOMAIN["weight"])[:3].tolist() == [2.5, 7.5, 12.5]


def test_kmeans_finds_the_clusters_of_a_snapshot(tmp_path):
    blob = worker.run("kmeans", Fraction(5), {"n_clusters": 2}, snapshot(tmp_path, 2_000))
    text, rows = result_messages.unpack(blob)
    result = json.loads(text)
    assert rows == []
    assert result["attributes"] == ["age", "weight"]
    assert result["epsilon_spent"] == "5/1"
    centres = np.array(sorted(result["cluster_centers"]))
    assert np.abs(centres - [[24.5, 42.5], [74.5, 152.5]]).max() < 6
    assert all(abs(size - 1_000) < 200 for size in result["cluster_sizes"])
    assert len(result["synopsis"]["counts"]) == result["synopsis"]["side"] ** 2


def test_a_user_with_several_records_is_protected_at_the_same_epsilon(tmp_path, monkeypatch):
    """The noise of the whole job grows with m: the estimator is given epsilon / m, and the charge is epsilon."""
    seen = []
    fit = worker.KINDS["kmeans"].run.__globals__["KMeans"].fit
    monkeypatch.setattr("streamdp.jobs.kmeans.KMeans.fit", lambda self, X: seen.append(self.epsilon) or fit(self, X))
    blob = worker.run("kmeans", Fraction(1), {"n_clusters": 2}, snapshot(tmp_path, 100, records_per_user=4))
    assert seen == [Fraction(1, 4)]
    assert json.loads(result_messages.unpack(blob)[0])["epsilon_spent"] == "1/1"


@pytest.mark.parametrize("users", [0, 1])
def test_an_empty_snapshot_has_a_result_too(tmp_path, users):
    blob = worker.run("kmeans", Fraction(1), {"n_clusters": 3, "attributes": ["age"]}, snapshot(tmp_path, users))
    assert len(json.loads(result_messages.unpack(blob)[0])["cluster_centers"]) == 3
