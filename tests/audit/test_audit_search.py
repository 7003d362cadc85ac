"""The search finds the losses that theory gives: for ours, and for every printed rule of privacy.md section 8."""

from __future__ import annotations

from fractions import Fraction

import pytest

from streamdp.audit import Noise, Rule, growth, worst_loss
from streamdp.privacy.sparse_vector import noise_scales


def printed(threshold_scale: Fraction | int, query_scale: Fraction | int, positives: int | None) -> Rule:
    return Rule(Noise(Fraction(threshold_scale)), Noise(Fraction(query_scale)), positives)


def ours(epsilon: Fraction, sensitivity: int, positives: int, monotone: bool) -> Rule:
    threshold, query = noise_scales(epsilon, sensitivity, positives, monotone)
    return Rule(Noise(threshold, discrete=True), Noise(query, discrete=True), positives)


@pytest.mark.parametrize("positives", [1, 2, 7])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_ours_is_tight_at_every_sensitivity(positives: int, monotone: bool, sensitivity: int) -> None:
    epsilon = Fraction(1, 2)
    rule = ours(epsilon, sensitivity, positives, monotone)
    assert worst_loss(rule, sensitivity, monotone=monotone).loss == pytest.approx(0.5, rel=1e-6)


def test_the_monotone_form_on_queries_that_are_not_costs_more() -> None:
    loss = worst_loss(ours(Fraction(1), 1, 4, monotone=True), 1, monotone=False).loss
    assert 1.5 < loss < 1.8


@pytest.mark.parametrize("C", [2, 5, 12])
@pytest.mark.slow
def test_the_printed_dsft_rules_cost_what_section_8_says(C: int) -> None:
    assert worst_loss(printed(2, 2 * C, C - 1), 1).loss == pytest.approx(1.5 - 1 / C, rel=1e-6)
    assert worst_loss(printed(2, 2 * C, C), 1).loss == pytest.approx(1.5, rel=1e-6)
    assert worst_loss(printed(2 * C, 2 * C, C - 1), 1).loss == pytest.approx(1 - 1 / (2 * C), rel=1e-6)
    assert worst_loss(printed(2 * C, 2 * C, C), 1).loss == pytest.approx(1 + 1 / (2 * C), rel=1e-6)


@pytest.mark.parametrize("c", [1, 3])
def test_lee_and_clifton_cost_six_times_c(c: int) -> None:
    assert worst_loss(printed(4, Fraction(4, 3), c), 1).loss == pytest.approx((1 + 6 * c) / 4, rel=1e-6)


def test_each_below_after_a_clamp_costs_its_share() -> None:
    C = 3
    rule = Rule(Noise(Fraction(2 * C)), Noise(Fraction(2 * C)), C - 1, clamp=(0.0, 500.0))
    assert [attack.loss for attack in growth(rule, 1, [12, 24])] == pytest.approx([2, 4], rel=1e-6)


def test_one_threshold_noise_for_ever_costs_a_share_for_every_point_of_the_window() -> None:
    C, scale = 3, Noise(Fraction(6))
    losses = [worst_loss(Rule(scale, scale, C, window=window), 1, window).loss for window in (12, 24)]
    assert losses == pytest.approx([2, 4], rel=1e-6)


@pytest.mark.slow
def test_without_a_cut_the_loss_grows_and_with_one_it_stays() -> None:
    uncut = [attack.loss for attack in growth(printed(2, 2, None), 1, [12, 24, 48])]
    cut = [attack.loss for attack in growth(printed(2, 2, 2), 1, [12, 24, 48])]
    assert uncut[1] > 1.8 * uncut[0] and uncut[2] > 1.8 * uncut[1]
    assert cut == pytest.approx([2.5] * 3, rel=1e-3)


def test_the_attack_it_reports_has_the_loss_it_reports() -> None:
    from streamdp.audit import case_loss

    rule = printed(2, 8, 2)
    attack = worst_loss(rule, 1)
    assert abs(case_loss(rule, attack.case)) == attack.loss
    assert all(abs(step.answer - step.neighbour) <= 1 for step in attack.case)


def test_a_rule_without_a_limit_needs_a_length() -> None:
    with pytest.raises(ValueError, match="length"):
        worst_loss(printed(2, 2, None), 1)
