"""Linear classifiers from perturbed sums: what a row can move, what the noise is, what comes out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.audit.monte_carlo import monte_carlo_lower_bound
from streamdp.jobs import ParameterError, Personalized
from streamdp.jobs.kmeans.bounds import checked_bounds
from streamdp.jobs.personalized import MECHANISMS, LinearSVM, LogisticRegression, Preferences
from streamdp.jobs.personalized.classifiers import LATTICE, clipped, on_lattice
from streamdp.jobs.personalized.objective import CURVATURES, LOSSES, calibrated
from streamdp.jobs.personalized.releases import LevelMeter
from streamdp.privacy.noise import InsecureSeededSource


def sample(rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two features that tell the class, one that does not."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, rows)
    X = np.clip(generator.normal(0, 1.5, (rows, 3)) + np.outer(2 * y - 1, [2, -2, 0]), -5, 5)
    return X, y, generator.uniform(0.05, 0.5, rows)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("target", [LogisticRegression, LinearSVM])
@pytest.mark.parametrize("ensemble", ["pooled", "scores", "vote"])
def test_classes_are_told_apart(mechanism, target, ensemble) -> None:
    X, y, table = sample(20_000)
    model = Personalized(target((-5, 5), ensemble=ensemble), table, mechanism, source=InsecureSeededSource(1)).fit(X, y)
    other, truth, _ = sample(2_000, seed=2)
    assert (model.predict(other) == truth).mean() > 0.93
    assert (model.decision_function(other) > 0).mean() == pytest.approx(0.5, abs=0.1)
    assert all(spent <= level for spent, level in zip(model.epsilon_spent_, model.levels_, strict=True))
    assert model.coef_.shape == (3,)


rows = st.lists(st.lists(st.floats(-20, 20) | st.just(float("nan")), min_size=4, max_size=4), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(rows, st.integers(1, 5 * LATTICE))
def test_a_row_moves_the_sums_by_no_more_than_is_claimed(table, limit) -> None:
    found = clipped(on_lattice(np.array(table), checked_bounds((-5, 5), 4)), limit)
    norms = np.abs(found).sum(axis=1)
    assert (norms <= limit).all()
    upper = np.triu_indices(5)
    products = [np.abs(np.outer(row, row)[upper]).sum() for row in found]
    assert max(products) <= (limit**2 + limit * min(limit, LATTICE)) // 2
    for place, row in enumerate(table):
        alone = clipped(on_lattice(np.array([row]), checked_bounds((-5, 5), 4)), limit)
        assert (alone[0] == found[place]).all(), "a row depends on itself only"


def test_sums_get_the_noise_of_their_sensitivity(monkeypatch) -> None:
    """Fails when a sensitivity, and so the noise, is halved."""
    asked = []
    noisy = LevelMeter.noisy

    def spy(self, tally, levels, release, sensitivity, rows=None):
        found = noisy(self, tally, levels, release, sensitivity, rows)
        asked.append((sensitivity, release.unit, found))
        return found

    monkeypatch.setattr(LevelMeter, "noisy", spy)
    model = Personalized(LogisticRegression((-1, 1)), [1.0], source=InsecureSeededSource(1))
    for _ in range(400):
        model.fit(np.zeros((0, 3)), np.zeros(0), preferences=[])
    limit = 2 * LATTICE
    for sensitivity, unit, kind in (
        (limit, Fraction(2, 5), 4),
        ((limit**2 + limit * LATTICE) // 2, Fraction(3, 5), 10),
    ):
        draws = np.concatenate([found for s, u, found in asked if (s, u, found.size) == (sensitivity, unit, kind)])
        assert draws.size == 400 * kind
        assert np.abs(draws).mean() == pytest.approx(float(sensitivity / unit), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("level", range(2))
def test_a_neighbour_of_a_class_is_hidden_at_its_own_epsilon(level) -> None:
    classes = (Fraction(1, 2), Fraction(3))
    table = Preferences.of_levels(classes, [1, 1])

    def mechanism(data, source):
        rows, labels, levels = data
        model = Personalized(LinearSVM((-1, 1)), table, source=source).fit_levels(rows, labels, levels)
        return int(np.sign(model.coef_[0])), int(np.sign(model.intercept_))

    without = (np.zeros((0, 1)), np.zeros(0), np.zeros(0, dtype=np.int64))
    with_one = (np.ones((1, 1)), np.ones(1), np.array([level]))
    bound = monte_carlo_lower_bound(mechanism, without, with_one, trials=2_000, source=InsecureSeededSource(1))
    assert bound.epsilon <= classes[level]


@pytest.mark.parametrize("target", [LogisticRegression, LinearSVM])
@pytest.mark.parametrize("mechanism", ["weighted", "sampling", "utility"])
def test_the_published_form_works_and_says_that_it_promises_nothing(target, mechanism) -> None:
    X, y, table = sample(5_000)
    model = Personalized(
        target((-5, 5), calibration="published", ensemble="vote"), table, mechanism, source=InsecureSeededSource(1)
    ).fit(X, y)
    assert model.guarantee_ == "none"
    assert (model.predict(X) == y).mean() > 0.85
    assert all(spent <= level for spent, level in zip(model.epsilon_spent_, model.levels_, strict=True))
    exact = Personalized(target((-5, 5)), table, mechanism, source=InsecureSeededSource(1)).fit(X, y)
    assert exact.guarantee_ == "personalised"


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 10), st.floats(1e-3, 10), st.floats(1e-6, 1e6))
def test_regularisation_is_added_before_the_noise_loses_its_bound(epsilon, curvature, ridge) -> None:
    """As printed it is added only when nothing is left, and the noise 1 / beta is then as large as one likes."""
    beta, raised = calibrated(epsilon, curvature, ridge)
    assert beta >= epsilon / 2
    assert raised >= ridge or beta > epsilon / 2
    assert beta + curvature / raised <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_have_the_slope_and_the_curvature_that_are_claimed(loss) -> None:
    scores = np.linspace(-6, 6, 2_401)
    value, slope = LOSSES[loss](scores)
    assert np.abs(np.gradient(value, scores) - slope)[1:-1].max() < 0.01
    assert np.abs(slope).max() <= 1
    assert np.abs(np.gradient(slope, scores)).max() <= CURVATURES[loss] + 0.01


def test_equal_preferences_are_plain() -> None:
    X, y, _ = sample(500)
    found = [
        Personalized(LogisticRegression((-5, 5)), [0.5] * 500, mechanism, source=InsecureSeededSource(1))
        .fit(X, y)
        .coef_
        for mechanism in MECHANISMS
    ]
    assert all((coefficients == found[0]).all() for coefficients in found)


def test_odd_labels_and_missing_values_are_left_out_and_nothing_fails() -> None:
    X, y, table = sample(1_000)
    X[::3, 1] = np.nan
    labels = y.astype(object)
    labels[::5] = "unknown"
    model = Personalized(LinearSVM((-5, 5)), table, source=InsecureSeededSource(1)).fit(X, labels)
    assert np.isfinite(model.coef_).all()
    empty = model.fit(np.zeros((0, 3)), np.zeros(0), preferences=[])
    assert empty.predict(X).shape == (1_000,)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"classes": (1, 1)}, "two labels"),
        ({"classes": (1, 2, 3)}, "two labels"),
        ({"regularization": 0.0}, "regularization"),
        ({"ensemble": "magic"}, "ensemble"),
        ({"row_norm": 0.5}, "row_norm"),
        ({"calibration": "magic"}, "calibration"),
        ({"bounds": None}, "bounds are missing"),
    ],
)
def test_what_is_wrong_is_refused(changed, fault) -> None:
    target = LogisticRegression(**({"bounds": (-5, 5)} | changed))
    with pytest.raises(ParameterError, match=fault):
        Personalized(target, [1.0]).fit([[1.0]], [1])


def test_prediction_needs_a_classifier_that_was_fitted() -> None:
    with pytest.raises(ParameterError, match="fit comes before"):
        Personalized(LogisticRegression((-5, 5)), [1.0]).predict([[1.0]])
    with pytest.raises(ParameterError, match="a label for each row"):
        Personalized(LogisticRegression((-5, 5)), [1.0]).fit(np.ones((1, 1)), [])
