"""What one row moves, exactly: each target and each mechanism against what it claims, at the edges of floats."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdp.jobs import Personalized
from streamdp.jobs.personalized import (
    MECHANISMS,
    Clusters,
    Histogram,
    LinearSVM,
    LogisticRegression,
    Mean,
    Preferences,
    RangeCounts,
    Sum,
)
from streamdp.jobs.personalized.mechanisms import Settings
from streamdp.jobs.personalized.releases import KEPT_UNITS, Release, sampled
from streamdp.jobs.personalized.session import Part, Session
from streamdp.privacy.noise import InsecureSeededSource


class Traced(Session):
    """A fit of one row at epsilon 1 that adds up the exact loss: for each sum, how far the row moves it."""

    def __init__(self) -> None:
        table = Preferences.of_table([1.0])
        super().__init__(table, Settings("minimum"), np.zeros(1, dtype=np.int64), InsecureSeededSource(1))
        self.loss = Fraction(0)

    def parts(self, tally: Any, sensitivity: int, spread: float, share: Fraction = Fraction(1)) -> list[Part]:
        moved = sum(map(abs, tally(np.ones(1, dtype=np.int64)).tolist()))
        self.loss += Fraction(moved, sensitivity) * share
        return super().parts(tally, sensitivity, spread, share)


def loss_of(target: Any, row: list[float]) -> Fraction:
    session = Traced()
    target.fit(np.array([row]), np.array([1]), session)
    return session.loss


@pytest.mark.parametrize(
    ("low", "high", "without_the_clip"),
    [(10**16, 10**16 + 2, Fraction(3, 2)), (2**53 - 1, 2**53 + 2, Fraction(7, 6))],
)
def test_a_mean_of_wide_integers_moves_by_no_more_than_is_paid(low: int, high: int, without_the_clip: Fraction) -> None:
    """The middle is no float. Without a clip one row's distance from it was 2 or 4/3 half widths."""
    assert max(loss_of(Mean((low, high)), [value]) for value in (low, high)) == 1 < without_the_clip


ANY = st.floats(allow_nan=True, allow_infinity=True)
ENDS = st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))


@settings(max_examples=100, deadline=None)
@given(st.lists(ENDS.map(sorted).filter(lambda ends: ends[1] > ends[0] + 1e-270), min_size=1, max_size=3), st.data())
@example([[1e16, 1e16 + 2]], None)
def test_no_row_moves_a_sum_by_more_than_is_paid_whatever_its_bounds(ends: list[list[float]], data: Any) -> None:
    bounds = tuple(map(list, zip(*ends, strict=True)))
    drawn = [data.draw(ANY) for _ in ends] if data else [1e16 + 2]
    targets = [Mean(bounds), Sum(bounds), LogisticRegression(bounds), LinearSVM(bounds), Clusters(2, bounds)]
    for row in (drawn, [low for low, _ in ends], [high for _, high in ends], [np.inf] * len(ends)):
        for target in targets:
            assert loss_of(target, row) <= 1


@pytest.mark.parametrize("value", [0, 3, -1e300, 1e300, np.inf, -np.inf, np.nan, 0.5])
def test_no_row_moves_counts_by_more_than_is_paid(value: float) -> None:
    ranges = RangeCounts([{0: (0, 1)}, {0: (0, 9)}, {0: (-1e308, 1e308)}], {0: (0, 9)})
    for target in (Histogram([4]), ranges):
        assert loss_of(target, [value]) <= 1


STRICT = [
    [1e-17] + [1.0] * 49,
    [1e-17] * 49 + [1.0],
    [5e-324] * 25 + [1.0] * 25,
    [1e-300, 1e-16, 1e-12, 1e-5] * 12 + [1.0, 2.0],
    [0.3, 0.1 + 0.2] * 25,
]
ROWS = np.random.default_rng(1).uniform(0, 1, (50, 2))
TARGETS: dict[str, Any] = {
    "histogram": Histogram([2, 2]),
    "ranges": RangeCounts([{0: (0, 0.5)}, {1: (0, 1)}], {0: (0, 1), 1: (0, 1)}, step=0),
    "mean": Mean((0, 1)),
    "sum": Sum((0, 1)),
    "clusters": Clusters(2, (0, 1)),
    "logistic": LogisticRegression((0, 1)),
    "svm": LinearSVM((0, 1), ensemble="vote"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_however_strict_somebody_is_there_is_an_answer_and_nobody_pays_more(mechanism: str, target: str) -> None:
    for table in STRICT:
        model = Personalized(TARGETS[target], table, mechanism, 2, smallest=1, source=InsecureSeededSource(1))
        model.fit(ROWS, (ROWS[:, 0] > 0.5).astype(int))
        for name in ("counts_", "means_", "sums_", "cluster_centers_", "cluster_sizes_", "coef_"):
            assert np.isfinite(getattr(model, name, 0.0)).all()
        for level, epsilon in enumerate(model.levels_):
            assert sum(exact_loss(release, level) for release in model.releases_) <= epsilon


def test_one_strict_user_does_not_silence_the_others() -> None:
    table = [1e-17] + [0.5, 1.0] * 500
    model: Any = Personalized(Histogram([2]), table, source=InsecureSeededSource(1)).fit(np.zeros((1_001, 1)))
    assert model.epsilon_spent_[1] == Fraction(1, 2)
    assert abs(model.counts_[0] - 1_001) < 100


@pytest.mark.parametrize("digits", [1, 10, 17, 35, 36, 50, 324])
def test_a_sampled_row_pays_no_more_at_any_threshold(digits: int) -> None:
    threshold = Fraction(3, 10**digits)
    levels = (threshold / 7, threshold / 3, threshold)
    release = sampled(levels, threshold)
    assert release.kept is not None
    assert min(release.kept) > KEPT_UNITS // 12, "about a seventh, for small ones"
    for level, epsilon in enumerate(levels):
        assert exact_loss(release, level) <= epsilon


def exact_loss(release: Release, level: int) -> Fraction:
    """What the presence of a row of the level costs: its weight times the unit, or ln(1 + p (exp(unit) - 1))."""
    if release.kept is None or release.kept[level] == KEPT_UNITS:
        return release.weights[level] * release.unit
    context = Context(prec=1_000)
    unit = context.divide(Decimal(release.unit.numerator), Decimal(release.unit.denominator))
    chance = context.divide(Decimal(release.kept[level]), Decimal(KEPT_UNITS))
    grown = context.multiply(chance, context.subtract(context.exp(unit), Decimal(1)))
    return Fraction(context.ln(context.add(Decimal(1), grown)))
