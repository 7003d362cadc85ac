"""The estimator: what it learns, what it spends, how it treats bad input."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamdp.errors import ConfigurationError
from streamdp.jobs import KMeans, ParameterError
from streamdp.jobs.kmeans import METHODS
from streamdp.privacy.noise import InsecureSeededSource

Mixture = Callable[..., np.ndarray]
EVERY = sorted(METHODS)
WITH_GRID = [method for method in EVERY if "lloyd" not in method]


def nicv(rows: np.ndarray, centres: np.ndarray) -> float:
    return float(np.square(rows[:, None] - centres[None]).sum(axis=2).min(axis=1).mean())


@pytest.mark.parametrize("size", [None, 2000])
@pytest.mark.parametrize("method", EVERY)
def test_every_method_learns_in_the_units_of_the_data_and_spends_exactly_epsilon(
    method: str, size: int | None, mixture: Mixture
) -> None:
    rows = (mixture(3, 4, 2000, 1) + 1) * [50, 5, 0.5]
    bounds = ([0, 0, 0], [100, 10, 1])
    model = KMeans(4, "0.7", bounds, method, size, InsecureSeededSource(7))
    assert model.fit(rows) is model
    assert model.epsilon_spent_ == Fraction(7, 10)
    assert model.cluster_centers_.shape == (4, 3)
    assert (model.cluster_centers_ >= bounds[0]).all() and (model.cluster_centers_ <= bounds[1]).all()
    assert model.cluster_sizes_.shape == (4,) and (model.cluster_sizes_ >= 0).all()
    assert (model.synopsis_ is None) == ("lloyd" in method)
    assert model.method_used_ in METHODS and model.method_used_ != "auto"
    assert model.reason_
    assert np.array_equal(np.unique(model.predict(model.cluster_centers_)), np.arange(4))


@pytest.mark.parametrize("epsilon", [0.1, Decimal("0.1"), "1/10", Fraction(1, 10)])
def test_epsilon_is_read_exactly(epsilon: object) -> None:
    model = KMeans(2, epsilon, (0, 1)).fit(np.zeros((10, 2)))
    assert model.epsilon_spent_ == Fraction(1, 10)


def test_a_public_size_is_not_paid_for(mixture: Mixture) -> None:
    rows = mixture(2, 3, 1000, 2)
    assert KMeans(3, 1, (-1, 1), "eugkm", size=1000).fit(rows).synopsis_.epsilon == 1
    assert KMeans(3, 1, (-1, 1), "eugkm").fit(rows).synopsis_.epsilon == Fraction(97, 100)


@pytest.mark.parametrize("method", ["auto", "pruned", "refined", "eugkm", "hybrid", "ugkm"])
def test_clear_clusters_are_found(method: str) -> None:
    generator = np.random.default_rng(3)
    truth = np.array([[-0.6, -0.6], [0.6, -0.5], [0.0, 0.7]])
    rows = np.clip(np.repeat(truth, 4000, axis=0) + generator.normal(size=(12_000, 2)) * 0.05, -1, 1)
    model = KMeans(3, 1, (-1, 1), method, source=InsecureSeededSource(5)).fit(rows)
    order = [int(np.square(model.cluster_centers_ - centre).sum(axis=1).argmin()) for centre in truth]
    assert sorted(order) == [0, 1, 2]
    assert np.abs(model.cluster_centers_[order] - truth).max() < 0.03
    assert np.abs(model.cluster_sizes_ - 4000).max() < 600


def test_the_same_source_gives_the_same_model(mixture: Mixture) -> None:
    rows = mixture(2, 5, 3000, 4)
    first, second = (KMeans(5, 0.5, (-1, 1), source=InsecureSeededSource(9)).fit(rows) for _ in range(2))
    assert np.array_equal(first.cluster_centers_, second.cluster_centers_)


def test_the_synopsis_is_usable_by_itself() -> None:
    rows = np.repeat([[10.0, 0.5]], 5000, axis=0)
    synopsis = KMeans(2, 1, ([0, 0], [40, 1]), "eugkm", source=InsecureSeededSource(1)).fit(rows).synopsis_
    densest = synopsis.cell_centers()[synopsis.counts.argmax()]
    assert np.abs(densest - [10, 0.5]).max() <= 40 / synopsis.side
    assert synopsis.cell_centers().shape == (synopsis.counts.size, 2)
    assert synopsis.low.tolist() == [0, 0] and synopsis.high.tolist() == [40, 1]


def test_the_number_of_clusters_can_be_left_open() -> None:
    generator = np.random.default_rng(6)
    corners = np.array([[-0.7, -0.7], [-0.7, 0.7], [0.7, -0.7], [0.7, 0.7]])
    rows = np.clip(np.repeat(corners, 5000, axis=0) + generator.normal(size=(20_000, 2)) * 0.08, -1, 1)
    for method in ("auto", "eugkm", "hybrid"):
        model = KMeans("auto", 1, (-1, 1), method, source=InsecureSeededSource(2), n_clusters_range=(2, 7)).fit(rows)
        assert model.n_clusters_ == len(model.cluster_centers_) == 4
        assert model.epsilon_spent_ == 1


@pytest.mark.parametrize("kind", ["pandas", "polars", "lists", "integers"])
def test_tables_of_any_kind(kind: str) -> None:
    rows = np.repeat([[1, 9], [8, 2]], 500, axis=0)
    table = {
        "pandas": pd.DataFrame(rows, columns=["a", "b"]),
        "polars": pl.DataFrame({"a": rows[:, 0], "b": rows[:, 1]}),
        "lists": rows.tolist(),
        "integers": rows.astype(np.uint8),
    }[kind]
    expected = KMeans(2, 1, (0, 10), source=InsecureSeededSource(3)).fit(rows.astype(float))
    model = KMeans(2, 1, ([0, 0], 10), source=InsecureSeededSource(3)).fit(table)
    assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
    assert np.array_equal(model.predict(table), expected.predict(rows))


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_population_and_a_single_row_have_an_answer(method: str, rows: int) -> None:
    model = KMeans(3, 1, (-1, 1), method, source=InsecureSeededSource(1)).fit(np.zeros((rows, 2)))
    assert model.cluster_centers_.shape == (3, 2)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.epsilon_spent_ == 1


def test_an_empty_list_has_the_attributes_of_its_bounds() -> None:
    assert KMeans(2, 1, ([0, 0, 0], 1)).fit([]).cluster_centers_.shape == (2, 3)


@pytest.mark.parametrize("method", WITH_GRID)
def test_more_clusters_than_the_grid_would_have_make_it_finer(method: str) -> None:
    model = KMeans(50, "0.01", (-1, 1), method, size=10, source=InsecureSeededSource(1)).fit(np.zeros((10, 2)))
    assert model.synopsis_.side == 8
    assert model.cluster_centers_.shape == (50, 2)


@pytest.mark.parametrize("size", [None, 2**40])
def test_a_noisy_size_asks_for_no_more_cells_than_can_be_clustered(size: int | None) -> None:
    """At the smallest epsilon noise makes millions of rows out of none, and the cells of mkm do not mind epsilon."""
    rows, source = np.zeros((0, 2)), InsecureSeededSource(3)
    model = KMeans("auto", "1e-5", (-1, 1), "mkm", size, source, n_clusters_range=(2, 10)).fit(rows)
    assert 100_000 < model.synopsis_.counts.size < 400_000


def test_more_clusters_than_any_grid_are_refused_unless_no_grid_is_needed() -> None:
    table = np.zeros((5, 21))
    with pytest.raises(ParameterError, match="dplloyd_impr"):
        KMeans(3, 1, (0, 1), "eugkm").fit(table)
    assert KMeans(3, 1, (0, 1), source=InsecureSeededSource(1)).fit(table).method_used_ == "dplloyd_impr"


@pytest.mark.parametrize("method", EVERY)
def test_a_constant_attribute_costs_nothing_when_its_bounds_say_so(method: str) -> None:
    rows = np.column_stack([np.linspace(0, 1, 500), np.full(500, 3.0)])
    model = KMeans(2, 1, ([0, 3], [1, 3]), method, source=InsecureSeededSource(1)).fit(rows)
    assert (model.cluster_centers_[:, 1] == 3).all()
    assert model.synopsis_ is None or model.synopsis_.axes == [0]


@pytest.mark.parametrize("method", EVERY)
def test_a_constant_attribute_within_wider_bounds_is_clustered_like_any(method: str) -> None:
    rows = np.column_stack([np.linspace(-1, 1, 500), np.full(500, 0.5)])
    model = KMeans(2, 1, (-1, 1), method, source=InsecureSeededSource(1)).fit(rows)
    assert np.isfinite(model.cluster_centers_).all()


def test_points_outside_the_bounds_are_moved_to_them_and_the_model_does_not_know_how_many() -> None:
    inside = np.repeat([[0.0, 0.0], [1.0, 1.0]], 50, axis=0)
    outside = inside.copy()
    outside[:50] = [-7.0, -np.inf]
    outside[50:75, 0] = np.inf
    models = [KMeans(2, 1, (0, 1), source=InsecureSeededSource(8)).fit(rows) for rows in (inside, outside)]
    # All that is reachable from a model: the same noise on the same moved rows leaves no difference.
    first, second = (pickle.dumps(vars(model) | {"source": None}) for model in models)
    assert first == second


@pytest.mark.parametrize("method", EVERY)
def test_rows_with_a_nan_are_left_out(method: str) -> None:
    whole = np.repeat([[0.2, 0.2], [0.9, 0.7]], 50, axis=0)
    holed = np.insert(whole, [0, 30, 100], [np.nan, 0.5], axis=0)
    first, second = (KMeans(2, 1, (0, 1), method, source=InsecureSeededSource(8)).fit(rows) for rows in (whole, holed))
    assert np.array_equal(first.cluster_centers_, second.cluster_centers_)
    assert second.predict(holed)[[0, 31, 102]].tolist() == [-1, -1, -1]
    assert np.array_equal(np.delete(second.predict(holed), [0, 31, 102]), first.predict(whole))


def test_what_is_no_number_counts_as_missing_rather_than_failing() -> None:
    """A failure would tell that somebody's value is odd."""
    numbers = [[0.2, 0.2], [0.9, 0.7]] * 20
    for odd in ("a secret", None, [1], 10**400):
        table = np.empty((41, 2), dtype=object)
        table[:40] = numbers
        table[40, 0], table[40, 1] = odd, 0.5
        model = KMeans(2, 1, (0, 1), source=InsecureSeededSource(8)).fit(table)
        expected = KMeans(2, 1, (0, 1), source=InsecureSeededSource(8)).fit(np.array(numbers))
        assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)


@given(
    table=arrays(np.float64, st.tuples(st.integers(0, 12), st.integers(1, 3)), elements=st.floats(width=64)),
    low=st.floats(-1e308, 1e308),
    high=st.floats(-1e308, 1e308),
    clusters=st.integers(1, 6),
    method=st.sampled_from(EVERY),
    size=st.sampled_from([None, 0, 7, 500]),
    epsilon=st.sampled_from(["1e-5", "1/3", "50"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_every_table_has_an_answer(
    table: np.ndarray, low: float, high: float, clusters: int, method: str, size: int | None, epsilon: str, seed: int
) -> None:
    low, high = sorted((low, high))
    assume(high / 2 - low / 2 > 1e-280)
    model = KMeans(clusters, epsilon, (low, high), method, size, InsecureSeededSource(seed)).fit(table)
    assert model.cluster_centers_.shape == (clusters, table.shape[1])
    assert (model.cluster_centers_ >= low).all() and (model.cluster_centers_ <= high).all()
    assert model.epsilon_spent_ == Fraction(epsilon)
    assert np.array_equal(model.predict(table) == -1, np.isnan(table).any(axis=1))


TABLE = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("parameters", "table", "says"),
    [
        ({"bounds": None}, TABLE, "bounds are missing"),
        ({"bounds": (1, 0)}, TABLE, "no greater"),
        ({"bounds": (0, np.inf)}, TABLE, "finite"),
        ({"bounds": (0, np.nan)}, TABLE, "finite"),
        ({"bounds": (1, 1)}, TABLE, "nothing to cluster"),
        ({"bounds": (0, 1, 2)}, TABLE, "two numbers"),
        ({"bounds": ("a", "b")}, TABLE, "two numbers"),
        ({"bounds": ([[0]], [[1]])}, TABLE, "two numbers"),
        ({"bounds": ([0, 0], [1, 1, 1])}, TABLE, "as many"),
        ({"bounds": ([0, 0, 0], 1)}, TABLE, "columns"),
        ({"epsilon": 0}, TABLE, "positive"),
        ({"epsilon": -1}, TABLE, "positive"),
        ({"epsilon": "1e-9"}, TABLE, "at least"),
        ({"epsilon": float("nan")}, TABLE, "epsilon"),
        ({"epsilon": None}, TABLE, "epsilon"),
        ({"n_clusters": 0}, TABLE, "whole number"),
        ({"n_clusters": 2.5}, TABLE, "whole number"),
        ({"n_clusters": True}, TABLE, "whole number"),
        ({"n_clusters": "many"}, TABLE, "whole number"),
        ({"n_clusters": "auto", "method": "dplloyd"}, TABLE, "needs a synopsis"),
        ({"n_clusters": "auto"}, np.zeros((3, 30)), "needs a synopsis"),
        ({"n_clusters": "auto", "n_clusters_range": (5, 2)}, TABLE, "smallest"),
        ({"method": "kmeans++"}, TABLE, "method must be one of"),
        ({"size": -1}, TABLE, "size"),
        ({"size": 2.5}, TABLE, "size"),
        ({}, np.zeros(4), "two dimensions"),
        ({}, [[1, 2], [3]], "must be public"),
    ],
)
def test_wrong_parameters_are_refused_by_public_facts(parameters: dict, table: object, says: str) -> None:
    model = KMeans(**{"n_clusters": 2, "epsilon": 1, "bounds": (0, 1)} | parameters)
    with pytest.raises(ParameterError, match=says) as caught:
        model.fit(table)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, ConfigurationError)
    assert not hasattr(model, "cluster_centers_")


def test_predict_needs_a_fitted_model() -> None:
    with pytest.raises(ParameterError, match="fit comes before"):
        KMeans(2, 1, (0, 1)).predict(TABLE)


def test_parameters_follow_scikit_learns_protocol() -> None:
    model = KMeans(2, 0.5, (0, 1))
    assert model.get_params()["epsilon"] == 0.5
    assert model.set_params(epsilon=1, method="eugkm") is model
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    assert repr(model).startswith("KMeans(n_clusters=2, epsilon=1")
    with pytest.raises(ParameterError, match="no parameter n_cluster"):
        model.set_params(n_cluster=3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "dplloyd_impr", "eugkm", "hybrid"])
def test_memory_does_not_grow_with_rows(method: str) -> None:
    """A million rows hold 40 MB."""
    rows = np.random.default_rng(1).normal(size=(1_000_000, 5)) / 4
    KMeans(8, "0.1", (-1, 1), method, size=1000).fit(rows[:100])
    tracemalloc.start()
    KMeans(8, "0.1", (-1, 1), method, size=1000).fit(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000 < rows.nbytes / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attributes", "clusters", "size", "epsilon", "worse"),
    [
        (2, 6, 10_000, 0.3, 1.3),
        (3, 10, 30_000, 0.5, 1.3),
        (4, 5, 30_000, 0.2, 1.3),
        (6, 4, 40_000, 0.3, 1.3),
        (8, 5, 50_000, 0.5, 1.3),
    ],
)
def test_the_default_comes_close_to_the_truth_on_fresh_mixtures(
    attributes: int, clusters: int, size: int, epsilon: float, worse: float, mixture: Mixture
) -> None:
    """Against the inertia around the means of the clusters the rows were drawn from."""
    ratios = []
    for seed in range(5):
        rows = mixture(attributes, clusters, size, 100 + seed)
        model = KMeans(clusters, epsilon, (-1, 1), source=InsecureSeededSource(seed)).fit(rows)
        ratios.append(nicv(rows[:5000], model.cluster_centers_) / (attributes * 0.08**2))
    assert np.median(ratios) < worse
