"""The estimator: what it finds, what it costs, and an answer for every input."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from streamdp.domain import Attribute
from streamdp.jobs import ParameterError, PrivPfC
from streamdp.jobs.privpfc import Taxonomy
from streamdp.jobs.privpfc.histogram import with_total
from streamdp.jobs.privpfc.release import rounds_for
from streamdp.privacy.noise import InsecureSeededSource

People = Callable[[int, int], tuple[dict[str, np.ndarray], np.ndarray]]
CLASSES = ["poor", "rich"]


def test_it_finds_the_attributes_that_tell_the_classes_apart(taxonomies: list[Taxonomy], people: People) -> None:
    model = PrivPfC(1, taxonomies, CLASSES, source=InsecureSeededSource(1)).fit(*people(20_000, 1))
    assert set(model.grid_) == {"age", "job"}
    assert model.score(*people(5_000, 2)) > 0.87
    shares = model.predict_proba(people(10, 3)[0])
    assert shares.shape == (10, 2)
    assert np.allclose(shares.sum(axis=1), 1)
    assert model.histogram_.counts.shape == (*(len(names) for names in model.histogram_.labels.values()), 2)
    assert model.histogram_.counts.min() >= 0
    assert model.histogram_.counts.sum() == model.histogram_.size


@pytest.mark.parametrize("selection", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_both_selections_find_it_in_any_number_of_rounds(
    taxonomies: list[Taxonomy], people: People, selection: str, rounds: int
) -> None:
    source = InsecureSeededSource(1)
    model = PrivPfC(1, taxonomies, CLASSES, selection=selection, rounds=rounds, source=source).fit(*people(20_000, 1))
    assert {"age", "job"} <= set(model.grid_)
    assert model.epsilon_spent_ == 1


def test_three_classes_and_one_that_nobody_has(taxonomies: list[Taxonomy], people: People) -> None:
    columns, labels = people(20_000, 1)
    labels = np.where((labels == "rich") & (columns["age"] >= 75), "wealthy", labels)
    classes = ["rich", "poor", "wealthy", "royal"]
    model = PrivPfC(1, taxonomies, classes, source=InsecureSeededSource(1)).fit(columns, labels)
    assert model.classes_.tolist() == sorted(classes)
    assert model.score(columns, labels) > 0.85
    assert model.predict_proba(columns).shape == (20_000, 4)
    assert "royal" not in set(model.predict(columns))


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_one_declared_class_is_always_predicted(taxonomies: list[Taxonomy], people: People, rows: int) -> None:
    columns, _ = people(rows, 1)
    model = PrivPfC(1, taxonomies, ["all"], source=InsecureSeededSource(1)).fit(columns, np.full(rows, "all"))
    assert model.grid_ == {}
    assert model.epsilon_spent_ == Fraction(63, 100)
    assert model.predict(people(3, 2)[0]).tolist() == ["all"] * 3


def test_one_class_in_the_data_is_predicted(taxonomies: list[Taxonomy], people: People) -> None:
    columns, _ = people(5_000, 1)
    model = PrivPfC(1, taxonomies, CLASSES, source=InsecureSeededSource(1)).fit(columns, np.full(5_000, "rich"))
    assert (model.predict(columns) == "rich").mean() > 0.95


@pytest.mark.parametrize("rows", [0, 1, 2, 30])
@pytest.mark.parametrize("epsilon", ["0.00001", 1, 1000])
def test_every_input_has_an_output(taxonomies: list[Taxonomy], people: People, rows: int, epsilon: Any) -> None:
    columns, labels = people(rows, 1)
    model = PrivPfC(epsilon, taxonomies, CLASSES, pool_size=50, source=InsecureSeededSource(1)).fit(columns, labels)
    assert model.epsilon_spent_ == Fraction(str(epsilon))
    assert set(model.predict(people(5, 2)[0])) <= set(CLASSES)
    nodes, drawn = model.sample(7)
    assert nodes.shape == (7, len(model.grid_))
    assert set(drawn) <= set(CLASSES)


def test_when_no_grid_fits_the_cells_the_whole_domain_is_one(taxonomies: list[Taxonomy], people: People) -> None:
    model = PrivPfC("0.001", taxonomies, CLASSES, size=100, source=InsecureSeededSource(1)).fit(*people(100, 1))
    assert model.grid_ == {}
    assert model.histogram_.counts.shape == (2,)
    assert len(set(model.predict(people(50, 2)[0]))) == 1


def test_attributes_of_one_value_are_never_in_a_grid(people: People) -> None:
    only = [Taxonomy(Attribute.categorical("planet", ["earth"]))]
    columns, labels = people(500, 1)
    assert PrivPfC(1, only, CLASSES).fit(columns, labels).grid_ == {}


@pytest.mark.parametrize(
    ("settings", "spent"),
    [
        ({}, Fraction(1, 3)),
        ({"rounds": 7}, Fraction(1, 3)),
        ({"size": 300}, Fraction(1, 3)),
        ({"shares": ("1/3", "1/3", "1/3"), "selection": "exponential"}, Fraction(1, 3)),
    ],
)
def test_the_parts_of_epsilon_add_up_exactly(
    taxonomies: list[Taxonomy], people: People, settings: dict[str, Any], spent: Fraction
) -> None:
    model = PrivPfC("1/3", taxonomies, CLASSES, pool_size=200, **settings).fit(*people(300, 1))
    assert model.epsilon_spent_ == spent


def test_rows_outside_the_domain_or_the_classes_are_left_out(taxonomies: list[Taxonomy], people: People) -> None:
    columns, labels = people(2_000, 1)
    odd, odd_labels = people(6, 2)
    odd = {name: column.astype(object) for name, column in odd.items()}
    odd["age"][0], odd["age"][1], odd["job"][2], odd["job"][3] = 200, float("nan"), "pirate", None
    odd_labels = odd_labels.astype(object)
    odd_labels[4], odd_labels[5] = "royal", None
    both = {name: np.concatenate([columns[name].astype(object), odd[name]]) for name in columns}
    first = PrivPfC(1, taxonomies, CLASSES, source=InsecureSeededSource(1)).fit(columns, labels)
    second = PrivPfC(1, taxonomies, CLASSES, source=InsecureSeededSource(1)).fit(
        both, np.concatenate([labels.astype(object), odd_labels])
    )
    assert first.grid_ == second.grid_
    assert np.array_equal(first.histogram_.counts, second.histogram_.counts)
    overall = first.histogram_.counts.reshape(-1, 2).sum(axis=0) / first.histogram_.size
    assert np.allclose(first.predict_proba(odd)[:4], overall)


def test_arrays_frames_and_codes_are_the_same_rows(taxonomies: list[Taxonomy], people: People) -> None:
    columns, labels = people(3_000, 1)
    codes = {t.name: t.attribute.encode(columns[t.name]) for t in taxonomies}
    table = np.column_stack([columns[t.name].astype(object) for t in taxonomies])
    swapped = dict(reversed(columns.items())) | {"unused": labels}

    def model() -> PrivPfC:
        return PrivPfC(1, taxonomies, ["rich", "poor"], source=InsecureSeededSource(5))

    fitted = [
        model().fit(table, labels),
        model().fit(pd.DataFrame(swapped), pd.Series(labels)),
        model().fit(pl.DataFrame(swapped), pl.Series(labels)),
        model().fit_codes(codes, (labels == "poor").astype(np.int64)),
    ]
    for other in fitted[1:]:
        assert np.array_equal(fitted[0].histogram_.counts, other.histogram_.counts)
        assert np.array_equal(fitted[0].predict(table), other.predict(pl.DataFrame(swapped)))


def test_codes_need_no_classes_that_values_can_tell_apart(taxonomies: list[Taxonomy], people: People) -> None:
    columns, labels = people(3_000, 1)
    codes = {t.name: t.attribute.encode(columns[t.name]) for t in taxonomies}
    places = (labels == "rich").astype(np.int64)
    plain, odd = (
        PrivPfC(1, taxonomies, classes, source=InsecureSeededSource(5)).fit_codes(codes, places)
        for classes in (["poor", "rich"], ["3", "3.0"])
    )
    assert np.array_equal(plain.histogram_.counts, odd.histogram_.counts)
    with pytest.raises(ParameterError, match="one number"):
        PrivPfC(1, taxonomies, ["3", "3.0"]).fit(columns, labels)


def test_samples_and_weighted_rows_have_the_counts_of_the_histogram(taxonomies: list[Taxonomy], people: People) -> None:
    model = PrivPfC(1, taxonomies, CLASSES, source=InsecureSeededSource(1)).fit(*people(20_000, 1))
    nodes, labels, weights = model.histogram_.rows()
    assert weights.sum() == model.histogram_.size
    assert weights.min() > 0
    places = (*nodes.T, np.searchsorted(model.classes_, labels))
    assert np.array_equal(model.histogram_.counts[places], weights)
    drawn, classes = model.sample(200_000)
    seen = np.zeros(model.histogram_.counts.shape)
    np.add.at(seen, (*drawn.T, np.searchsorted(model.classes_, classes)), 1)
    shares = model.histogram_.counts / model.histogram_.size
    assert np.abs(seen / 200_000 - shares).max() < 10 * 0.5 / np.sqrt(200_000)
    assert not seen[model.histogram_.counts == 0].any()
    row = {"age": [10], "job": ["miner"], "height": [1.5], "planet": ["earth"]}
    names = [
        model.histogram_.labels[name][node] for name, node in zip(model.grid_, model.generalise(row)[0], strict=True)
    ]
    assert names[list(model.grid_).index("job")] in ("field", "miner")


@pytest.mark.parametrize("total", [1, 7, 50, 100_000])
def test_counts_are_moved_to_the_paid_total(total: int) -> None:
    noisy = np.random.default_rng(total).integers(-30, 60, (5, 4, 2))
    moved = with_total(noisy, total)
    assert moved.sum() == total
    assert moved.min() >= 0
    # Every count that is left was moved by the same number, up to the unit that rounding takes.
    shift = (noisy - moved)[moved > 0]
    assert shift.max() - shift.min() <= 1
    assert (noisy[moved == 0] <= shift.max() + 1).all()


def test_more_records_times_epsilon_pay_for_more_rounds() -> None:
    assert rounds_for(1, Fraction(1, 10**6)) == 1
    assert rounds_for(40_000, Fraction(37, 1000)) == 1
    assert rounds_for(40_000, Fraction(37, 100)) == 6
    assert rounds_for(2**40, Fraction(100)) == 6


def test_progress_is_in_public_quantities(taxonomies: list[Taxonomy], people: People) -> None:
    heard: list[tuple[int, int]] = []
    PrivPfC(1, taxonomies, CLASSES, pool_size=300, rounds=3, size=1_000, progress=lambda *step: heard.append(step)).fit(
        *people(1_000, 1)
    )
    assert heard == [(step, 60) for step in range(1, 61)]


def test_a_model_holds_nothing_but_what_was_paid_for(taxonomies: list[Taxonomy], people: People) -> None:
    model = PrivPfC(1, taxonomies, CLASSES).fit(*people(3_000, 1))
    assert pickle.loads(pickle.dumps(model)).grid_ == model.grid_
    assert len(pickle.dumps(model)) < 20_000 + model.histogram_.counts.nbytes
    assert "counts" not in repr(model)
    assert copy.deepcopy(model).get_params()["epsilon"] == 1


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": "much"}, "epsilon"),
        ({"classes": []}, "classes"),
        ({"classes": "poor"}, "classes"),
        ({"classes": ["poor", "poor"]}, "each once"),
        ({"classes": ["poor", 3.5, None]}, "classes"),
        ({"pool_size": 0}, "pool_size"),
        ({"rounds": 0}, "rounds"),
        ({"size": -1}, "size"),
        ({"selection": "best"}, "selection"),
        ({"shares": (0.5, 0.5)}, "shares"),
        ({"shares": (0, "0.4", "0.6")}, "shares"),
        ({"shares": ("0.1", "0.4", "0.6")}, "shares"),
        ({"attributes": "age"}, "attributes"),
        ({"attributes": (1, 0)}, "bounds"),
        ({"attributes": [3]}, "attributes"),
        ({"attributes": []}, "at least one"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_spent(
    taxonomies: list[Taxonomy], people: People, settings: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ParameterError, match=fault):
        PrivPfC(**({"epsilon": 1, "attributes": taxonomies, "classes": CLASSES} | settings)).fit(*people(10, 1))


def test_wrong_shapes_are_refused(taxonomies: list[Taxonomy], people: People) -> None:
    columns, labels = people(10, 1)
    model = PrivPfC(1, taxonomies, CLASSES)
    with pytest.raises(ParameterError, match="no column job"):
        model.fit({name: column for name, column in columns.items() if name != "job"}, labels)
    with pytest.raises(ParameterError, match="same rows"):
        model.fit(columns, labels[:-1])
    with pytest.raises(ParameterError, match="4 features"):
        model.fit(np.zeros((10, 3)), labels)
    with pytest.raises(ParameterError, match="each name once"):
        PrivPfC(1, [*taxonomies, taxonomies[0]], CLASSES).fit(columns, labels)
    with pytest.raises(ValueError, match="fit comes first"):
        model.predict(columns)
