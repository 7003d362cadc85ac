"""The Monte-Carlo bound: it never passes a true loss, and finds one that is there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from streamdp.audit import clopper_pearson, monte_carlo_lower_bound
from streamdp.audit.monte_carlo import is_consistent
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource, discrete_laplace, uniform_below


def randomised_response(bit: int, source: NoiseSource | None) -> int:
    """Tells the truth three times out of four: exactly log 3."""
    return bit ^ int(uniform_below(4, 1, source)[0] == 0)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (500, 100_000)])
def test_clopper_pearson_is_scipys(successes: int, trials: int) -> None:
    interval = stats.binomtest(successes, trials).proportion_ci(0.98, method="exact")
    assert clopper_pearson(successes, trials, 0.01) == pytest.approx((interval.low, interval.high), rel=1e-6)


def test_it_comes_close_to_a_known_loss_without_passing_it() -> None:
    bound = monte_carlo_lower_bound(randomised_response, 0, 1, trials=8000, source=InsecureSeededSource(1))
    assert math.log(3) - 0.15 < bound.epsilon < math.log(3)
    assert bound.event in (frozenset({0}), frozenset({1}))


def test_confidence_is_kept_over_many_audits() -> None:
    # At 80 % confidence a bound may pass the truth one time in five; it is far more cautious than that here.
    source = InsecureSeededSource(2)
    bounds = [
        monte_carlo_lower_bound(randomised_response, 0, 1, trials=200, confidence=0.8, source=source).epsilon
        for _ in range(60)
    ]
    assert sum(bound > math.log(3) for bound in bounds) <= 12


def test_it_finds_a_leak_in_either_direction() -> None:
    def leaks(present: bool, source: NoiseSource | None) -> str:
        return "seen" if present and uniform_below(10, 1, source)[0] == 0 else "nothing"

    for pair in ((True, False), (False, True)):
        bound = monte_carlo_lower_bound(leaks, *pair, trials=4000, source=InsecureSeededSource(3))
        assert bound.epsilon > 2 and bound.event == frozenset({"seen"})


def test_halved_noise_passes_the_claim_and_the_right_noise_does_not() -> None:
    def noisy(scale: float) -> float:
        def mechanism(count: int, source: NoiseSource | None) -> int:
            return count + int(discrete_laplace(scale, 1, source)[0])

        return monte_carlo_lower_bound(mechanism, 0, 1, trials=4000, source=InsecureSeededSource(4)).epsilon

    assert noisy(1) <= 1 < noisy(0.5)


def test_a_mechanism_that_ignores_its_input_shows_nothing() -> None:
    bound = monte_carlo_lower_bound(
        lambda _, source: int(uniform_below(5, 1, source)[0]), 0, 1, trials=2000, source=InsecureSeededSource(5)
    )
    assert bound.epsilon == 0


def test_consistency_tells_a_quarter_off() -> None:
    outcomes = np.arange(3000) % 5 == 0
    assert is_consistent(outcomes, 0.2)
    assert not is_consistent(outcomes, 0.25)
    assert not is_consistent(outcomes, 0.15)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="two trials"):
        monte_carlo_lower_bound(randomised_response, 0, 1, trials=1)
    with pytest.raises(ValueError, match="confidence"):
        monte_carlo_lower_bound(randomised_response, 0, 1, confidence=1)
