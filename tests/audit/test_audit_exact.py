"""Exact losses against brute force, closed forms and each other."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from streamdp.audit import Noise, Rule, Step, case_loss, exact_loss, log_probability, worst_loss
from streamdp.audit.exact import log_at_least, log_density, log_less


def continuous(threshold_scale: float, query_scale: float, positives: int | None = None, **options: object) -> Rule:
    return Rule(Noise(Fraction(threshold_scale)), Noise(Fraction(query_scale)), positives, **options)  # type: ignore[arg-type]


def discrete(threshold_scale: Fraction | int, query_scale: Fraction | int, positives: int | None = None) -> Rule:
    return Rule(Noise(Fraction(threshold_scale), True), Noise(Fraction(query_scale), True), positives)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(500, 7)])
def test_discrete_laws_agree_with_their_definition(scale: Fraction) -> None:
    reference = stats.dlaplace(1 / float(scale))
    points = np.arange(-40.0, 41.0)
    noise = Noise(scale, discrete=True)
    np.testing.assert_allclose(np.exp(log_density(noise, points)), reference.pmf(points), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(np.exp(log_less(noise, points)), reference.cdf(points - 1), rtol=1e-9)
    np.testing.assert_allclose(np.exp(log_at_least(noise, points)), reference.cdf(-points), rtol=1e-9)


@pytest.mark.parametrize("scale", [0.5, 30.0])
def test_continuous_laws_agree_with_their_definition(scale: float) -> None:
    reference = stats.laplace(scale=scale)
    points = np.linspace(-20, 20, 81)
    noise = Noise(Fraction(scale))
    np.testing.assert_allclose(log_density(noise, points), reference.logpdf(points), rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_less(noise, points)), reference.cdf(points), rtol=1e-9)
    np.testing.assert_allclose(np.exp(log_at_least(noise, points)), reference.sf(points), rtol=1e-9)


def test_probabilities_of_all_outputs_sum_to_one() -> None:
    rules = [
        discrete(2, 3, 2),
        continuous(2, 3, 2),
        continuous(2, 0, None),
        continuous(4, 2, 3, fresh_threshold=True),
        continuous(3, 2, None, clamp=(-1.0, 2.0)),
    ]
    answers, thresholds = (1, -2, 3, 0), (0, 2, -1, 4)
    for rule in rules:
        outputs = set()
        for bits in itertools.product((False, True), repeat=4):
            length = 4
            if rule.positives is not None and sum(bits) >= rule.positives:
                length = [i for i, bit in enumerate(bits) if bit][rule.positives - 1] + 1
            steps = zip(answers[:length], bits, thresholds, strict=False)
            outputs.add(tuple(Step(answer, answer, bit, threshold) for answer, bit, threshold in steps))
        assert sum(math.exp(log_probability(rule, output)) for output in outputs) == pytest.approx(1, abs=1e-12)


def test_an_integral_agrees_with_scipy() -> None:
    rule = continuous(2, 5, 3)
    case = (Step(4, 4, above=False, times=3), Step(-1, -1, above=True, threshold=2, times=2))
    rho, nu = stats.laplace(scale=2), stats.laplace(scale=5)
    expected, _ = integrate.quad(
        lambda z: rho.pdf(z) * nu.cdf(z - 4) ** 3 * nu.sf(z + 3) ** 2, -100, 100, points=[-3, 0, 4], epsabs=1e-14
    )
    assert math.exp(log_probability(rule, case)) == pytest.approx(expected, rel=1e-8)


def test_a_sum_agrees_with_simulation_free_enumeration() -> None:
    rule = discrete(1, 2, 1)
    rho, nu = stats.dlaplace(1.0), stats.dlaplace(0.5)
    expected = sum(rho.pmf(z) * nu.cdf(z - 1) ** 2 * nu.sf(z) for z in range(-60, 61))
    case = (Step(0, 0, above=False, times=2), Step(-1, -1, above=True))
    assert math.exp(log_probability(rule, case)) == pytest.approx(expected, rel=1e-12)


def test_a_fine_lattice_approaches_the_continuous_rule() -> None:
    answers, neighbour = (0, 2, -1), (1, 1, 0)
    fine = 2000
    lattice = discrete(2 * fine, 3 * fine, 2)
    loss = exact_loss(lattice, [fine * a for a in answers], [fine * a for a in neighbour])
    assert loss == pytest.approx(exact_loss(continuous(2, 3, 2), answers, neighbour), rel=1e-3)


def test_equal_inputs_lose_nothing_and_the_loss_is_symmetric() -> None:
    rule = discrete(2, 5, 2)
    assert exact_loss(rule, [0, 1, 2], [0, 1, 2]) == 0
    assert exact_loss(rule, [0, 1, 2], [1, 0, 3]) == exact_loss(rule, [1, 0, 3], [0, 1, 2]) > 0


def test_thresholds_only_shift_the_answers() -> None:
    rule = discrete(2, 5, 2)
    shifted = exact_loss(rule, [10, -4, 7], [11, -5, 8], [10, -5, 5])
    assert shifted == pytest.approx(exact_loss(rule, [0, 1, 2], [1, 0, 3]), rel=1e-12)


def test_no_query_noise_makes_an_impossible_output_and_an_infinite_loss() -> None:
    assert exact_loss(continuous(2, 0), [0, 1], [1, 0]) == math.inf
    assert exact_loss(continuous(2, 0), [0], [1]) <= 0.5 + 1e-12  # one answer is only the Laplace mechanism's tail


@pytest.mark.slow
def test_the_worst_search_is_never_beaten_by_random_neighbours() -> None:
    generator = np.random.default_rng(11)
    rules = [discrete(3, 7, 2), continuous(3, 7, 2), continuous(6, 8, 2, fresh_threshold=True)]
    for rule in rules:
        worst = worst_loss(rule, sensitivity=2).loss
        for _ in range(12):
            answers = generator.integers(-30, 30, 4)
            changed = answers + generator.integers(-2, 3, 4)
            assert exact_loss(rule, answers.tolist(), changed.tolist()) <= worst * (1 + 1e-9)


def test_a_clamped_threshold_follows_the_printed_recursion() -> None:
    # Public steps 0, -3, +4 on a noisy threshold that starts at 1 + rho: max(0, .), max(0, .), min(5, .).
    rule = continuous(1, 2, None, clamp=(0.0, 5.0))
    case = (Step(1, 1, False, threshold=1), Step(0, 0, True, threshold=-2), Step(3, 3, False, threshold=2))
    rho, nu = stats.laplace(scale=1), stats.laplace(scale=2)

    def integrand(z: float) -> float:
        first = max(0, 1 + z)
        second = max(0, first - 3)
        third = min(5, second + 4)
        return float(rho.pdf(z) * nu.cdf(first - 1) * nu.sf(second) * nu.cdf(third - 3))

    expected, _ = integrate.quad(integrand, -60, 60, points=[-1, 0, 2, 3], epsabs=1e-14)
    assert math.exp(log_probability(rule, case)) == pytest.approx(expected, rel=1e-8)


def test_a_long_run_of_rare_outputs_stays_finite() -> None:
    rule = continuous(2, 10, 5)
    case = (Step(400, 401, above=False, times=100_000), Step(-400, -401, above=True, times=5))
    assert case_loss(rule, case) == pytest.approx(1 / 2 + 2 * 5 / 10, rel=1e-6)


@pytest.mark.parametrize(
    ("rule", "case", "reason"),
    [
        (discrete(1, 1, 1), (Step(0, 1, above=True, times=2),), "that many positives"),
        (discrete(1, 1, 1), (Step(0, 1, above=True), Step(0, 1, above=False)), "stops for good"),
        (continuous(1, 1, 1), (Step(0, 1, above=True, value=3.0),), "no values"),
        (continuous(1, 1, 1, values=True), (Step(0, 1, above=True),), "lets values leave"),
        (continuous(1, 1, 1, window=3), (Step(0, 1, above=False, times=4),), "one window"),
        (continuous(1, 1, 1, window=3), (Step(0, 1, above=True, times=2),), "positives in a window"),
        (continuous(1, 1, 1, window=3), (Step(0, 0, above=True, times=2),), "that often"),
    ],
)
def test_an_output_that_cannot_happen_is_refused(rule: Rule, case: tuple[Step, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        case_loss(rule, case)


def test_wrong_descriptions_are_refused() -> None:
    with pytest.raises(ValueError, match="both be discrete"):
        Rule(Noise(Fraction(1), True), Noise(Fraction(1)), 1)
    with pytest.raises(ValueError, match="negative"):
        Noise(Fraction(-1))
    with pytest.raises(ValueError, match="no threshold noise"):
        continuous(0, 1)
    with pytest.raises(ValueError, match="fresh"):
        continuous(1, 1, 1, clamp=(0.0, 1.0), fresh_threshold=True)
    with pytest.raises(ValueError, match="same length"):
        exact_loss(discrete(1, 1), [0], [0, 1])
    with pytest.raises(ValueError, match="case_loss"):
        exact_loss(discrete(1, 1), [0] * 13, [1] * 13)


def test_values_that_leave_reveal_more_than_bits() -> None:
    answers, neighbour = (0, 0, 0, 0), (1, 1, 1, -1)
    bits, values = continuous(2, 8, 4), continuous(2, 8, 4, values=True)
    assert exact_loss(values, answers, neighbour) > exact_loss(bits, answers, neighbour)
