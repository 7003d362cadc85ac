"""Personalised estimates: what everybody pays, what comes out, and what is refused."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.jobs import KMeans, ParameterError, Personalized
from streamdp.jobs.personalized import (
    MECHANISMS,
    Clusters,
    Histogram,
    LogisticRegression,
    Mean,
    Preferences,
    RangeCounts,
    Sum,
)
from streamdp.jobs.personalized.releases import KEPT_UNITS, sampled, weighted
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace

GENERATOR = np.random.default_rng(7)
TABLE = np.round(GENERATOR.uniform(0.05, 1, 2_000), 1)
CODES = GENERATOR.integers(0, 4, (2_000, 1))
TARGETS = {
    "histogram": (Histogram([4]), CODES),
    "ranges": (RangeCounts([{0: (0, 1)}, {0: (2, 2)}], {0: (0, 3)}), CODES),
    "mean": (Mean((0, 3)), CODES.astype(float)),
    "sum": (Sum((-1, 3)), CODES.astype(float)),
    "clusters": (Clusters(2, (0, 3)), np.hstack([CODES, CODES]).astype(float)),
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("target", TARGETS)
def test_nobody_pays_more_than_their_preference(mechanism: str, target: str) -> None:
    what, rows = TARGETS[target]
    model = Personalized(what, TABLE, mechanism, rounds=3, source=InsecureSeededSource(1)).fit(rows)
    assert all(0 <= spent <= level for spent, level in zip(model.epsilon_spent_, model.levels_, strict=True))
    assert max(model.epsilon_spent_) > 0
    assert all(
        level <= as_fraction(value) for level, value in zip(model.levels_, np.sort(TABLE)[:1].tolist(), strict=False)
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.01, 0.05, 0.3, 1 / 3, 1.0, 2.5]), min_size=1, max_size=30),
    st.sampled_from(sorted(MECHANISMS)),
    st.integers(1, 5),
)
def test_nobody_pays_more_whatever_the_table(table, mechanism, rounds) -> None:
    model = Personalized(Histogram([3]), table, mechanism, rounds=rounds, source=InsecureSeededSource(1))
    model.fit(np.zeros((len(table), 1)))
    assert all(spent <= level for spent, level in zip(model.epsilon_spent_, model.levels_, strict=True))
    assert model.levels_ == tuple(sorted({as_fraction(value) for value in table}))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_equal_preferences_are_plain_differential_privacy_to_the_bit(mechanism: str) -> None:
    epsilon = Fraction(3, 10)
    exact = np.bincount(CODES[:, 0], minlength=4)
    plain = exact + discrete_laplace(1 / epsilon, 4, InsecureSeededSource(5))
    model = Personalized(Histogram([4]), np.full(2_000, 0.3), mechanism, rounds=4, source=InsecureSeededSource(5))
    assert model.fit(CODES).counts_.tolist() == plain.tolist()
    assert model.epsilon_spent_ == (epsilon,)
    assert model.equivalent_epsilon_ == pytest.approx(0.3)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_estimates_are_right_on_average(mechanism: str) -> None:
    """Rows and preferences are independent, so every mechanism estimates the counts of all rows."""
    exact = np.bincount(CODES[:, 0], minlength=4)
    source = InsecureSeededSource(3)
    generator = np.random.default_rng(1)
    found = []
    for _ in range(60):
        table = generator.permutation(TABLE)
        found.append(Personalized(Histogram([4]), table, mechanism, rounds=2, source=source).fit(CODES).counts_)
    error = np.array(found) - exact
    assert (np.abs(error.mean(axis=0)) < 6 * error.std(axis=0) / np.sqrt(60) + 1e-9).all()
    assert np.abs(error).mean() < 60 if mechanism != "minimum" else True


def test_the_cap_follows_the_width_of_a_query() -> None:
    table = np.random.default_rng(2).uniform(0.01, 1, 100_000)
    narrow = Personalized(RangeCounts([{0: (0, 0)}], {0: (0, 10**6)}), table).fit(np.zeros((100_000, 1)))
    wide = Personalized(RangeCounts([{0: (0, 5)}], {0: (0, 9)}), table).fit(np.zeros((100_000, 1)))
    assert max(narrow.epsilon_spent_) > Fraction(9, 10)
    assert max(wide.epsilon_spent_) < Fraction(1, 5)


def test_weights_lie_on_a_lattice_and_are_rounded_down() -> None:
    few = weighted([Fraction(1, 20), Fraction(3, 10), Fraction(1)], Fraction(1))
    assert (few.weights, few.unit) == ((1, 6, 20), Fraction(1, 20))
    awkward = [Fraction(1, 3), Fraction(10**12 + 1, 10**13), Fraction(7, 11)]
    many = weighted(sorted(awkward), Fraction(1))
    assert all(cost <= level for cost, level in zip(many.costs, sorted(awkward), strict=True))
    assert all(level - cost < level / 1000 for cost, level in zip(many.costs, sorted(awkward), strict=True))


def test_a_tiny_epsilon_still_has_an_answer() -> None:
    """The scale of the noise stays within what the sampler draws: a failure after the charge would cost it."""
    table = [1e-5, 1.00001e-5, 0.9]
    for target in (Mean(([0] * 50, [1] * 50)), LogisticRegression(([0] * 50, [1] * 50)), Histogram([2])):
        columns = 1 if isinstance(target, Histogram) else 50
        model = Personalized(target, table, source=InsecureSeededSource(1))
        model.fit(np.ones((3, columns)), [0, 1, 1])
        assert all(spent <= level for spent, level in zip(model.epsilon_spent_, model.levels_, strict=True))


def test_a_sample_keeps_rows_with_a_probability_that_is_surely_not_too_large() -> None:
    levels = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(1))
    release = sampled(levels, Fraction(1, 2))
    exact = [np.expm1(0.01) / np.expm1(0.5), np.expm1(0.1) / np.expm1(0.5), 1, 1]
    assert release.kept is not None
    for kept, wanted in zip(release.kept, exact, strict=True):
        assert -3 / KEPT_UNITS < kept / KEPT_UNITS - wanted <= 0 or kept == KEPT_UNITS
    for kept, level in zip(release.kept[:2], levels, strict=False):
        assert np.log1p(kept / KEPT_UNITS * np.expm1(0.5)) <= float(level)


def test_rows_of_a_table_and_rows_that_are_present_need_not_be_the_same() -> None:
    model = Personalized(Histogram([4]), TABLE, source=InsecureSeededSource(1))
    some = model.fit(CODES[:100], preferences=TABLE[:100])
    assert some.counts_.shape == (4,)
    strict = Personalized(Histogram([4]), [1.0, 2.0], source=InsecureSeededSource(1))
    assert strict.fit(CODES[:2], preferences=[np.nan, 2.0]).epsilon_spent_ == (1, 2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_class_with_one_user_and_empty_data_have_an_answer(mechanism: str) -> None:
    table = [0.1] * 50 + [5.0]
    model = Personalized(Histogram([2]), table, mechanism, rounds=2, source=InsecureSeededSource(1))
    assert np.isfinite(model.fit(np.zeros((51, 1))).counts_).all()
    assert np.isfinite(model.fit(np.zeros((0, 1)), preferences=[]).counts_).all()
    means = Personalized(Mean((0, 1)), table, mechanism, source=InsecureSeededSource(1))
    assert 0 <= means.fit(np.zeros((0, 1)), preferences=[]).means_[0] <= 1
    assert 0 <= means.fit(np.full((51, 1), np.nan)).means_[0] <= 1


def test_means_and_sums_come_out() -> None:
    generator = np.random.default_rng(1)
    rows = generator.uniform(0, 10, (20_000, 2))
    table = generator.uniform(0.5, 2, 20_000)
    means = Personalized(Mean((0, 10)), table, source=InsecureSeededSource(1)).fit(rows).means_
    sums = Personalized(Sum(([0, 0], [10, 10])), table, source=InsecureSeededSource(1)).fit(pd.DataFrame(rows)).sums_
    assert np.abs(means - rows.mean(axis=0)).max() < 0.1
    assert np.abs(sums / rows.sum(axis=0) - 1).max() < 0.02


@pytest.mark.parametrize("make", [np.asarray, np.ndarray.tolist, lambda rows: pd.DataFrame(rows, columns=[0, 1])])
def test_ranges_are_counted_in_arrays_lists_and_frames(make) -> None:
    rows = np.array([[1.5, 2.0], [3.0, 9.0], [4.0, 0.0]] * 1_000)
    target = RangeCounts([{0: (1, 3)}, {0: (1, 3), 1: (5, 10)}], {0: (0, 5), 1: (0, 10)}, step=0)
    model = Personalized(target, [5.0, 9.0, 20.0] * 1_000, source=InsecureSeededSource(1)).fit(make(rows))
    assert np.abs(model.counts_ - [2_000, 1_000]).max() < 20


def test_clusters_are_those_of_the_kmeans_job() -> None:
    generator = np.random.default_rng(1)
    centres = np.array([[2.0, 8.0], [8.0, 2.0]])
    rows = np.clip(centres[generator.integers(0, 2, 5_000)] + generator.normal(0, 0.5, (5_000, 2)), 0, 10)
    model = Personalized(Clusters(2, (0, 10)), generator.uniform(0.3, 3, 5_000), source=InsecureSeededSource(1)).fit(
        rows
    )
    assert np.abs(np.sort(model.cluster_centers_, axis=0) - np.sort(centres, axis=0)).max() < 0.5
    plain = KMeans(2, 1, (0, 10), "pruned", size=5_000, source=InsecureSeededSource(2)).fit(rows)
    same = Personalized(Clusters(2, (0, 10)), [1.0] * 5_000, source=InsecureSeededSource(2)).fit(rows)
    assert (same.synopsis_.counts == plain.synopsis_.counts).all()
    assert same.cluster_centers_.tolist() == plain.cluster_centers_.tolist()


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"preferences": [0.5, 0.0]}, "above zero"),
        ({"preferences": [0.5, -1]}, "above zero"),
        ({"preferences": [0.5, np.inf]}, "above zero"),
        ({"preferences": []}, "empty"),
        ({"preferences": [np.nan, np.nan]}, "above zero"),
        ({"preferences": ["much", "little"]}, "one number for each"),
        ({"preferences": [[1.0, 2.0]]}, "one dimension"),
        ({"preferences": [1e-9, 1e-8]}, "at least 1e-05"),
        ({"mechanism": "magic"}, "mechanism: give one of"),
        ({"rounds": 0}, "rounds"),
        ({"threshold": "much"}, "threshold"),
        ({"threshold": 9}, "threshold"),
        ({"smallest": 0}, "smallest"),
        ({"target": Histogram([])}, "shape"),
        ({"target": RangeCounts([], {})}, "at least one"),
        ({"target": RangeCounts([{1: (0, 1)}], {0: (0, 3)})}, "public bounds"),
        ({"target": RangeCounts([{0: (1, 0)}], {0: (0, 3)})}, "low, high"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_spent(changed, fault) -> None:
    settings = {"target": Histogram([4]), "preferences": [0.5, 1.0]} | changed
    with pytest.raises(ParameterError, match=fault):
        Personalized(**settings).fit(CODES[:2])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_row_whose_preference_is_below_the_table_is_left_out(mechanism: str) -> None:
    """It cannot be served, and an error would tell that it is there. Too much is the most, and no number the least."""
    some, all_of_them = (
        Personalized(Histogram([4]), [0.5, 1.0], mechanism, source=InsecureSeededSource(1)).fit(rows, preferences=each)
        for rows, each in [(CODES[:2], [1.0, 0.5]), (CODES[:5], [np.inf, "much", 0.4, -1, 0])]
    )
    assert some.counts_.tolist() == all_of_them.counts_.tolist()
    third = Preferences.of_levels([Fraction(1, 4), Fraction(1, 3)], [1, 1])
    assert third.levels_of([1 / 3, 0.34]).tolist() == [0, 1], "0.3333333333333333 is less than a third"


def test_missing_entries_of_the_table_are_the_strictest() -> None:
    table = Preferences.of_table([np.nan, 0.5, 1.0])
    assert (table.epsilons, table.sizes.tolist()) == ((Fraction(1, 2), Fraction(1)), [2, 1])


def test_the_manner_is_scikit_learns() -> None:
    model = Personalized(Histogram([4]), TABLE)
    assert model.get_params()["mechanism"] == "weighted"
    assert model.set_params(mechanism="minimum").mechanism == "minimum"
    assert pickle.loads(pickle.dumps(model.fit(CODES))).counts_.shape == (4,)
