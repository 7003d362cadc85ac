"""Kinds of job: their parameters are documented, and they run on a snapshot as the estimator does on an array."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from job_snapshots import DOMAIN, halves

from streamdp import result_messages
from streamdp.jobs import KMeans, worker
from streamdp.jobs.catalogue import KINDS, describe
from streamdp.jobs.kind import bounds_of, middles
from streamdp.jobs.kinds.kmeans import KMeansParameters
from streamdp.jobs.kmeans import METHODS


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
    blob = worker.run("kmeans", Fraction(5), {"n_clusters": 2}, halves(tmp_path, 2_000))
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
    fit = KMeans.fit_table
    monkeypatch.setattr(KMeans, "fit_table", lambda self, table: seen.append(self.epsilon) or fit(self, table))
    blob = worker.run("kmeans", Fraction(1), {"n_clusters": 2}, halves(tmp_path, 100, records_per_user=4))
    assert seen == [Fraction(1, 4)]
    assert json.loads(result_messages.unpack(blob)[0])["epsilon_spent"] == "1/1"


@pytest.mark.parametrize("users", [0, 1])
def test_an_empty_snapshot_has_a_result_too(tmp_path, users):
    blob = worker.run("kmeans", Fraction(1), {"n_clusters": 3, "attributes": ["age"]}, halves(tmp_path, users))
    assert len(json.loads(result_messages.unpack(blob)[0])["cluster_centers"]) == 3
