"""The auditor, class by class: for a neighbour in class c the loss is at most c's epsilon; the noise is all there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np
import pytest

from streamdp.audit.monte_carlo import monte_carlo_lower_bound
from streamdp.jobs import Personalized
from streamdp.jobs.personalized import MECHANISMS, Histogram, Mean, Preferences
from streamdp.jobs.personalized.releases import LevelMeter, sampled, uniform, weighted
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource

CLASSES = (Fraction(1, 2), Fraction(3, 2), Fraction(4))
TABLE = Preferences.of_levels(CLASSES, [3, 3, 3])
CROWD = np.array([0, 1, 2])


def audited(mechanism: str) -> Callable[[tuple[np.ndarray, np.ndarray], NoiseSource | None], Hashable]:
    def run(data: tuple[np.ndarray, np.ndarray], source: NoiseSource | None) -> Hashable:
        rows, levels = data
        settings = {"rounds": 2, "smallest": 1, "source": source}
        if mechanism in ("sampling", "threshold"):
            settings["threshold"] = CLASSES[1]
        model = Personalized(Histogram([1]), TABLE, mechanism, **settings).fit_levels(rows, None, levels)
        return int(np.clip(np.rint(model.counts_[0] * 2), -8, 16))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("level", range(3))
def test_a_neighbour_of_a_class_is_hidden_at_its_own_epsilon(mechanism: str, level: int) -> None:
    """Nobody and one of the class; a crowd and one of the class more."""
    for crowd in (CROWD[:0], CROWD):
        without = (np.zeros((len(crowd), 1)), crowd)
        with_one = (np.zeros((len(crowd) + 1, 1)), np.append(crowd, level))
        bound = monte_carlo_lower_bound(
            audited(mechanism), without, with_one, trials=1_500, source=InsecureSeededSource(level + 1)
        )
        assert bound.epsilon <= CLASSES[level]


@pytest.mark.slow
def test_the_audit_finds_that_another_class_pays_more() -> None:
    """The same audit refutes that everybody is hidden as the strictest are, and that all of them pay as much."""
    empty, one = (np.zeros((0, 1)), CROWD[:0]), (np.zeros((1, 1)), np.array([2]))
    bound = monte_carlo_lower_bound(audited("weighted"), empty, one, trials=3_000, source=InsecureSeededSource(1))
    assert bound.epsilon > 3 * CLASSES[0]


def mean_absolute(scale: float) -> float:
    q = np.exp(-1 / scale)
    return 2 * q / (1 - q * q)


@pytest.mark.parametrize(
    ("release", "scale"),
    [
        (weighted(CLASSES, Fraction(4)), 2.0),
        (uniform([True] * 3, Fraction(1, 4)), 4.0),
        (sampled(CLASSES, Fraction(1, 5)), 5.0),
    ],
)
def test_a_release_has_the_noise_of_its_unit(release, scale: float) -> None:
    """Fails when the noise is halved: it lies within a tenth of what it should be."""
    size, sensitivity = 40_000, 3
    meter = LevelMeter(TABLE, InsecureSeededSource(1))
    noise = meter.noisy(
        lambda weights: np.zeros(size, dtype=np.int64), np.zeros(0, dtype=np.int64), release, sensitivity
    )
    assert np.abs(noise).mean() == pytest.approx(mean_absolute(scale * sensitivity), rel=0.1)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_estimates_have_the_noise_of_what_was_paid(mechanism: str) -> None:
    """On empty data an estimate is noise alone. What it should be follows from what every level paid; fails when any
    mechanism halves it."""
    small = Preferences.of_levels([epsilon / 20 for epsilon in CLASSES], TABLE.sizes)
    model = Personalized(Histogram([20_000]), small, mechanism, rounds=2, smallest=1, source=InsecureSeededSource(2))
    model.fit_levels(np.zeros((0, 1)), None, np.zeros(0, dtype=np.int64))
    spent = [sum(costs) for costs in zip(*(release.costs for release in model.releases_), strict=True)]
    assert tuple(spent) == model.epsilon_spent_
    assert all(paid <= level for paid, level in zip(spent, small.epsilons, strict=True))
    # The best average of independent estimates whose precisions are (sum of users times what they pay)^2 / 2.
    paid = [float((np.array(r.costs, dtype=float) * small.sizes).sum()) for r in model.releases_]
    if mechanism == "sampling":
        (release,) = model.releases_
        chance = np.array(release.kept) / 2**32 if release.kept else np.ones(3)
        paid = [float((chance * small.sizes).sum() * release.unit)]
    deviation = 9 * np.sqrt(2 / np.square(paid).sum())
    assert model.counts_.std() == pytest.approx(deviation, rel=0.06)


@pytest.mark.parametrize("share", ["sums", "count"])
def test_a_mean_pays_for_both_of_its_parts(share: str) -> None:
    model = Personalized(Mean((0, 1)), TABLE, source=InsecureSeededSource(1)).fit_levels(np.ones((3, 1)), None, CROWD)
    assert model.epsilon_spent_ <= CLASSES
    assert len(model.releases_) == 2
    assert model.releases_[{"sums": 0, "count": 1}[share]].costs[0] <= CLASSES[0] / 2


def test_a_meter_lets_no_level_pay_more_than_it_has() -> None:
    meter = LevelMeter(TABLE, InsecureSeededSource(1))
    with pytest.raises(RuntimeError, match="more than its epsilon"):
        meter.noisy(lambda weights: np.zeros(1, dtype=np.int64), CROWD, uniform([True] * 3, Fraction(1)), 1)
