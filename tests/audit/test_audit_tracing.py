"""Tracing gives the losses that theory gives, for mechanisms small enough to know them, and sees what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

import streamdp.strategies.auto.strategy as auto_module
from streamdp.audit import traced
from streamdp.audit.catalogue import TRACED, catalogue
from streamdp.audit.findings import Finding, Verdict
from streamdp.audit.tracing import traced_loss
from streamdp.histograms.base import Noisy
from streamdp.histograms.laplace import Laplace
from streamdp.privacy.mechanisms import noisy_at_least, noisy_sum, row_draws
from streamdp.privacy.noise import NoiseSource, uniform_below
from streamdp.privacy.selection import exponential_mechanism, permute_and_flip
from streamdp.privacy.sparse_vector import SparseVector

HALF = Fraction(1, 2)


def test_a_sum_loses_what_was_moved_over_the_scale() -> None:
    def run(counts: list[int], source: NoiseSource) -> None:
        noisy_sum(np.array(counts), Fraction(4), source)

    assert traced_loss(run, [5, 5], [[6, 4], [5, 6]]) == 0.5


def test_a_comparison_pays_every_time() -> None:
    def run(count: int, source: NoiseSource) -> None:
        for _ in range(10):
            noisy_at_least(count, 3, HALF, 2, source)

    assert traced_loss(run, 5, [7]) == 10 * 0.5


@pytest.mark.parametrize("positives", [1, 3])
def test_a_sparse_vector_is_one_step_however_often_it_is_asked(positives: int) -> None:
    """Bit by bit, two hundred answers below would lose many times what was paid."""

    def run(count: int, source: NoiseSource) -> None:
        vector = SparseVector(HALF, 2, positives, source=source)
        for _ in range(200):
            if not vector.exhausted:
                vector.above(count, 100)

    assert traced_loss(run, 0, [1]) == pytest.approx(0.25)
    assert traced_loss(run, 0, [2, -2]) == pytest.approx(0.5)
    assert traced_loss(run, 0, [3]) == pytest.approx(0.75), "an answer that moves by more than its sensitivity"


def test_two_sparse_vectors_are_two_steps() -> None:
    def run(counts: Sequence[int], source: NoiseSource) -> None:
        for count in counts:
            SparseVector(HALF, 1, 1, source=source).above(count, 0)

    assert traced_loss(run, [0, 500], [[1, 501]]) == pytest.approx(1)
    assert traced_loss(run, [0, 500], [[0, 499]]) == pytest.approx(0.5)


def test_two_that_are_open_at_once_are_two_steps_too() -> None:
    def run(count: int, source: NoiseSource) -> None:
        one, other = SparseVector(HALF, 1, 1, source=source), SparseVector(HALF, 1, 1, source=source)
        one.above(count, 10_000)
        other.above(count, 10_000)

    assert traced_loss(run, 0, [1]) == pytest.approx(1)


def test_a_sparse_vector_goes_on_after_a_restart_as_the_same_step() -> None:
    def run(count: int, source: NoiseSource) -> None:
        vector = SparseVector(HALF, 1, 1, source=source)
        vector.above(count, 10_000)
        SparseVector.from_state(vector.state(), source).above(count, 10_000)

    assert traced_loss(run, 0, [1]) == pytest.approx(0.5)


def test_what_a_sparse_vector_does_beyond_its_price_is_infinite() -> None:
    def never_stops(count: int, source: NoiseSource) -> None:
        state = SparseVector(HALF, 1, 1, source=source).state()
        for _ in range(2):
            SparseVector.from_state(state, source).above(count, -10_000)

    def drawn_again(count: int, source: NoiseSource) -> None:
        state = SparseVector(HALF, 1, 1, source=source).state()
        SparseVector.from_state(state | {"rho": state["rho"] + 1}, source).above(count, 0)

    assert traced_loss(never_stops, 0, [1]) == math.inf
    assert traced_loss(drawn_again, 0, [1]) == math.inf


@pytest.mark.parametrize("select", [exponential_mechanism, permute_and_flip])
def test_a_selection_loses_at_most_its_epsilon_and_nearly_that(select) -> None:
    """One of many equal candidates gains and the others lose what they may."""

    def run(scores: list[int], source: NoiseSource) -> None:
        select(scores, HALF, 1, source=source)

    assert traced_loss(run, [0] * 400, [[1] + [-1] * 399]) == pytest.approx(0.5, rel=0.02)
    assert traced_loss(run, [0, -40], [[0, -40]]) == 0


def test_the_law_of_permute_and_flip_is_what_it_draws() -> None:
    """Of two candidates the worse is first in half of the orders: P = p / 2 with p = exp(-gap * rate)."""

    def run(scores: list[int], source: NoiseSource) -> None:
        permute_and_flip(scores, 2, 1, source=source)

    # Rate 1: from p = exp(-1) to p = exp(-2), whose ratio is that of the worse one.
    assert traced_loss(run, [1, 0], [[2, 0]]) == pytest.approx(1)


def test_a_call_that_the_neighbour_would_not_make_is_infinite() -> None:
    def scale_follows(count: int, source: NoiseSource) -> None:
        noisy_sum(np.array([count]), Fraction(max(count, 1)), source)

    def asks_if_there(count: int, source: NoiseSource) -> None:
        if count:
            noisy_sum(np.array([count]), Fraction(1), source)

    assert traced_loss(scale_follows, 5, [6]) == math.inf
    assert traced_loss(asks_if_there, 0, [1]) == math.inf
    assert traced_loss(asks_if_there, 1, [0]) == math.inf


def test_public_draws_and_those_of_other_rows_are_the_same_in_the_replay() -> None:
    def run(rows: int, source: NoiseSource) -> None:
        noisy_sum(np.array([0]), Fraction(1), source)
        start = int(uniform_below(100, 1, source)[0])
        kept = int(row_draws(1_000, 50, source)[:50].sum())
        noisy_sum(np.array([rows + start + kept]), Fraction(1), source)

    assert traced_loss(run, 50, [51]) == 1


SUBJECTS = {subject.name: subject for subject in catalogue() if subject.group == TRACED}


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_row_is_as_expected(name: str) -> None:
    finding = Finding(SUBJECTS[name], SUBJECTS[name].measure())
    assert finding.verdict is Verdict.WITHIN
    assert finding.as_expected, finding.ratio


def test_a_halved_scale_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    release = Laplace.release

    def wrong(self: Laplace, counts, shape, epsilon: Fraction, sensitivity: int, source=None) -> Noisy:
        return release(self, counts, shape, 2 * epsilon, sensitivity, source)

    monkeypatch.setattr(Laplace, "release", wrong)
    assert traced.histogram("laplace").loss == 2
    assert traced.strategy("fixed", "window", {"interval": 3}).loss == 2


def test_a_slack_that_follows_the_data_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the detector asks then moves by more than one user's records."""
    cries = auto_module.Watch.cries

    def wrong(self, counts, published, slack, time_point: int) -> bool:
        return cries(self, counts, published, np.minimum(slack, counts.sum()), time_point)

    monkeypatch.setattr(auto_module.Watch, "cries", wrong)
    assert traced.strategy("auto", "horizon", {}).loss > 1 + 1e-6
