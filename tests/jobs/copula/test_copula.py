"""The estimator from outside: what it learns, spends and samples, and its answer to every kind of bad input."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from streamdp.domain import Attribute
from streamdp.histograms import method_names
from streamdp.jobs import Copula, ParameterError
from streamdp.privacy.noise import InsecureSeededSource

METHODS = ["auto", "hybrid", "kendall", "mle"]
DOMAIN = [
    Attribute.integer("age", 0, 99),
    Attribute.real("weight", 0, 200, bins=40),
    Attribute.integer("income", 0, 999_999, bins=50),
    Attribute.categorical("city", ["north", "south", "west"]),
]


def people(rows: int, seed: int = 1) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    age = generator.integers(0, 100, rows)
    return {
        "age": age,
        "weight": np.clip(age + generator.normal(60, 20, rows), 0, 200),
        "income": np.clip(generator.exponential(50_000, rows), 0, 999_999).astype(np.int64),
        "city": np.array(["north", "south", "west"])[generator.integers(0, 3, rows)],
    }


def gaussian(rows: int, attributes: int, correlation: float, seed: int = 1) -> np.ndarray:
    """Codes 0 to 99 of normal variables, all pairs correlated alike."""
    generator = np.random.default_rng(seed)
    matrix = np.full((attributes, attributes), correlation) + (1 - correlation) * np.eye(attributes)
    normal = generator.multivariate_normal(np.zeros(attributes), matrix, rows)
    return np.clip(np.floor(50 + 15 * normal), 0, 99).astype(np.int64)


def numbered(table: np.ndarray) -> tuple[list[Attribute], dict[str, np.ndarray]]:
    names = [f"x{place}" for place in range(table.shape[1])]
    return [Attribute.integer(name, 0, 99) for name in names], dict(zip(names, table.T, strict=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", ["1/7", "3", "0.001"])
def test_the_budget_is_spent_to_the_last_fraction(method: str, epsilon: str) -> None:
    model = Copula(epsilon, DOMAIN, method, source=InsecureSeededSource(1)).fit(people(300))
    assert model.epsilon_spent_ == Fraction(epsilon)


@pytest.mark.parametrize("margin", ["auto", *method_names()])
def test_every_histogram_method_is_a_margin(margin: str) -> None:
    model = Copula(2, DOMAIN, "kendall", margin, source=InsecureSeededSource(1)).fit(people(2000))
    assert all(probabilities.sum() == pytest.approx(1) for probabilities in model.margins_.values())
    assert all((probabilities >= 0).all() for probabilities in model.margins_.values())
    assert model.margins_["city"][:3] == pytest.approx(1 / 3, abs=0.1)


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, pyarrow.table, dict])
def test_rows_come_back_as_they_came(make: Any) -> None:
    model = Copula(2, DOMAIN, source=InsecureSeededSource(1)).fit(make(people(3000)))
    sampled = model.sample(1000)
    assert isinstance(sampled, pyarrow.Table if make in (dict, pyarrow.table) else make)
    frame = sampled.to_pandas() if isinstance(sampled, pyarrow.Table) else sampled
    columns = {name: np.asarray(frame[name]) for name in ("age", "weight", "income", "city")}
    assert set(columns["city"]) == {"north", "south", "west"}
    assert columns["age"].dtype.kind == columns["income"].dtype.kind == "i"
    assert 0 <= columns["age"].min() <= columns["age"].max() <= 99
    assert 0 <= columns["weight"].min() <= columns["weight"].max() <= 200
    assert 0 <= columns["income"].min() <= columns["income"].max() <= 999_999
    assert len(set(columns["income"] % 20_000)) > 100, "values are spread within their bins"
    assert np.corrcoef(columns["age"], columns["weight"])[0, 1] > 0.6


def test_a_fine_attribute_has_a_margin_and_a_dependence() -> None:
    """Beyond what `merged` and the grid of a pair take as they are."""
    generator = np.random.default_rng(1)
    normal = generator.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], 30_000)
    domain = [Attribute.real(name, -4, 4, bins=20_000, outside="clamp") for name in ("x", "y")]
    model = Copula(1, domain, source=InsecureSeededSource(1)).fit({"x": normal[:, 0], "y": normal[:, 1]})
    sampled = model.sample(10_000)
    assert model.correlation_[0, 1] == pytest.approx(0.7, abs=0.05)
    assert np.std(sampled["x"].to_numpy()) == pytest.approx(1, abs=0.1)
    assert np.median(sampled["y"].to_numpy()) == pytest.approx(0, abs=0.1)


def test_a_frame_of_pandas_has_categories() -> None:
    frame = pandas.DataFrame(people(1000)).astype({"city": "category"})
    sampled = Copula(2, DOMAIN, source=InsecureSeededSource(1)).fit(frame).sample(10)
    assert list(sampled["city"].cat.categories) == ["north", "south", "west"]


def test_nulls_are_a_category_of_their_own() -> None:
    data = people(4000)
    age = [None if place % 4 == 0 else int(value) for place, value in enumerate(data["age"])]
    city = ["elsewhere" if place % 2 else value for place, value in enumerate(data["city"])]
    frame = polars.DataFrame(data | {"age": age, "city": city})
    sampled = Copula(4, DOMAIN, source=InsecureSeededSource(1)).fit(frame).sample(4000)
    assert sampled["age"].null_count() == pytest.approx(1000, abs=200)
    assert sampled["city"].null_count() == pytest.approx(2000, abs=200)
    assert sampled["weight"].null_count() == 0


def test_without_a_category_for_nulls_their_rows_are_left_out() -> None:
    frame = polars.DataFrame({"age": [None, 5] * 500, "weight": [1.0] * 1000})
    model = Copula(4, DOMAIN[:2], nullable=(), source=InsecureSeededSource(1)).fit(frame)
    assert abs(model.n_rows_ - 500) < 200
    assert model.sample(50)["age"].null_count() == 0


@pytest.mark.parametrize(
    "odd", [["one", 2, None, 3.5], [object()] * 4, [float("inf"), float("nan"), -1, 2**70], ["\ud800"]]
)
def test_odd_values_are_nulls_and_no_error(odd: list[Any]) -> None:
    for attribute in (DOMAIN[0], DOMAIN[3]):
        model = Copula(1, [attribute], source=InsecureSeededSource(1)).fit({attribute.name: odd})
        assert model.sample(3).num_rows == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_hardly_any_rows_have_an_answer(method: str, rows: int) -> None:
    """Fewer rows than the sample of the taus: it is filled up with rows uniform on the domain."""
    model = Copula(Fraction(1, 100), DOMAIN, method, source=InsecureSeededSource(3)).fit(people(rows))
    assert model.sample(20).num_rows == 20
    assert np.linalg.eigvalsh(model.correlation_).min() > 0


def test_one_attribute_needs_no_dependence() -> None:
    model = Copula(1, DOMAIN[:1], source=InsecureSeededSource(1)).fit({"age": np.full(1000, 30)})
    assert model.correlation_.tolist() == [[1.0]]
    assert (np.asarray(model.sample(100)["age"]) == 30).mean() > 0.9
    assert model.epsilon_spent_ == 1


def test_a_domain_of_one_value_is_a_public_constant() -> None:
    only = Attribute.categorical("only", ["this"])
    alone = Copula(1, [only], nullable=(), source=InsecureSeededSource(1)).fit({"only": ["this"] * 10})
    assert alone.epsilon_spent_ == 1
    assert alone.sample(3)["only"].to_pylist() == ["this"] * 3
    for method in METHODS:
        beside = Copula(1, [only, *DOMAIN], method, nullable=(), source=InsecureSeededSource(1))
        beside.fit(people(500) | {"only": ["this"] * 500})
        assert beside.correlation_[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
        assert set(beside.sample(10)["only"].to_pylist()) == {"this"}


@pytest.mark.parametrize("method", ["kendall", "mle"])
def test_a_constant_attribute_and_perfectly_correlated_ones(method: str) -> None:
    table = gaussian(20_000, 3, 0.0)
    table[:, 1] = table[:, 0]
    table[:, 2] = 7
    domain, data = numbered(table)
    model = Copula(5, domain, method, nullable=(), source=InsecureSeededSource(1)).fit(data)
    assert model.correlation_[0, 1] > 0.95
    assert abs(model.correlation_[0, 2]) < 0.2
    assert np.linalg.eigvalsh(model.correlation_).min() > 0
    sampled = model.sample(1000)
    assert np.median(sampled["x2"].to_numpy()) == 7
    assert np.corrcoef(sampled["x0"].to_numpy(), sampled["x1"].to_numpy())[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kendall", "mle"])
def test_a_known_correlation_is_recovered_as_rows_grow(method: str) -> None:
    errors = []
    for rows in (1_000, 10_000, 100_000):
        domain, data = numbered(gaussian(rows, 3, 0.5))
        fits = [Copula(1, domain, method, source=InsecureSeededSource(seed)).fit(data) for seed in range(3)]
        off_diagonal = np.triu_indices(3, 1)
        errors.append(np.mean([np.abs(fit.correlation_[off_diagonal] - 0.5).mean() for fit in fits]))
    assert errors[2] < errors[0] / 4
    assert errors[2] < (0.02 if method == "kendall" else 0.1)


def test_hybrid_says_which_parts_share() -> None:
    data = people(20_000)
    data["city"] = np.where(np.arange(20_000) < 30, "west", np.where(np.arange(20_000) % 2, "north", "south"))
    model = Copula(2, DOMAIN, "hybrid", nullable=(), source=InsecureSeededSource(1)).fit(data)
    parts = {part["values"]["city"]: part for part in model.parts_}
    assert not parts["north"]["shares_margins"]
    assert not parts["north"]["shares_dependence"]
    assert parts["west"]["shares_margins"]
    assert parts["west"]["shares_dependence"]
    assert parts["north"]["rows"] == pytest.approx(9985, abs=100)


def test_hybrid_sees_what_a_copula_cannot() -> None:
    """Two clouds, told apart by a category in the middle of the order: no monotone dependence at all."""
    generator = np.random.default_rng(1)
    group = generator.integers(0, 3, 30_000)
    value = np.where(group == 1, 80, 20) + generator.integers(0, 10, 30_000)
    domain = [Attribute.integer("value", 0, 99), Attribute.categorical("group", ["a", "b", "c"])]
    frame = {"value": value, "group": np.array(["a", "b", "c"])[group]}

    def share_above(method: str) -> float:
        sampled = Copula(2, domain, method, nullable=(), source=InsecureSeededSource(1)).fit(frame).sample(5000)
        values = np.asarray(sampled["value"])[np.asarray(sampled["group"]) == "b"]
        return float((values >= 80).mean())

    assert share_above("hybrid") > 0.9
    assert share_above("auto") > 0.9
    assert share_above("kendall") < 0.6


def test_auto_splits_only_when_it_can_afford_to() -> None:
    data = people(20_000)
    rich = Copula(1, DOMAIN, nullable=(), source=InsecureSeededSource(1)).fit(data)
    poor = Copula("0.01", DOMAIN, nullable=(), source=InsecureSeededSource(1)).fit(data)
    assert (rich.method_used_, poor.method_used_) == ("hybrid", "kendall")
    assert rich.reason_ != poor.reason_


def test_sampling_streams_any_number_of_rows_for_free() -> None:
    model = Copula(1, DOMAIN, source=InsecureSeededSource(1)).fit(people(2000))
    sizes = [table.num_rows for table in model.sample_chunks(2500, chunk_rows=1000)]
    assert sizes == [1000, 1000, 500]
    assert model.sample(0).num_rows == 0
    assert model.sample().num_rows == model.n_rows_
    assert model.epsilon_spent_ == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "positive"),
        ({"method": "vine"}, "kendall"),
        ({"margin": "exact"}, "merged"),
        ({"ratio": 0}, "ratio"),
        ({"ratio": "much"}, "ratio"),
        ({"nullable": ["nobody"]}, "nullable"),
        ({"method": "hybrid", "domain": DOMAIN[:2]}, "fewer than ten"),
        ({"domain": [*DOMAIN, Attribute.integer("missing", 0, 1)]}, "no column 'missing'"),
    ],
)
def test_what_is_wrong_in_public_is_refused_before_anything_is_spent(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Copula(**({"epsilon": 1, "domain": DOMAIN} | change)).fit(people(10))


def test_sampling_comes_after_fitting_and_needs_a_number() -> None:
    model = Copula(1, DOMAIN)
    with pytest.raises(ParameterError, match="fit"):
        model.sample(1)
    model.fit(people(10))
    for wrong in (-1, 1.5, True, "many"):
        with pytest.raises(ParameterError, match="whole number"):
            model.sample(wrong)  # type: ignore[arg-type]


def test_parameters_are_only_stored() -> None:
    model = Copula(1, DOMAIN).set_params(ratio=4)
    assert model.get_params()["ratio"] == 4
    assert model.get_params()["domain"] is DOMAIN
