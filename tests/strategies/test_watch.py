"""The watch of `auto`: what it costs, what it sees, and that no window pays for two."""

import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_strategy_budget import cost_of_window, most_spent, stretches

import streamdp.privacy.sparse_vector as sparse_vector_module
from streamdp.histograms.bands import bands_of
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.strategies import Auto, Decision, make_strategy, restore_strategy
from streamdp.strategies.auto import WATCH_SHARE
from streamdp.strategies.auto.watch import Watch

CELLS, SHAPE = 64, (8, 8)
STILL = np.full(CELLS, 1_000, dtype=np.int64)


def build(seed: int, **settings: Any) -> Auto:
    strategy = make_strategy(
        "auto", cells=CELLS, shape=SHAPE, source=InsecureSeededSource(seed), **{"epsilon": 1, **settings}
    )
    assert isinstance(strategy, Auto)
    return strategy


def jumping(times: list[int], points: int) -> list[np.ndarray]:
    """Still, but at these points a quarter of everybody is suddenly elsewhere, or back."""
    away = STILL.copy()
    away[:32] -= 500
    away[32:] += 500
    series, is_away = [], False
    for point in range(1, points + 1):
        is_away ^= point in times
        series.append(away if is_away else STILL)
    return series


def check_cost(decisions: list[Decision], scales: list[Fraction], sensitivity: int) -> None:
    """By the theorem and not by the code: D / rho's scale + 2D / nu's scale, once for each charge."""
    charges = [charge for d in decisions for charge in d.charges if charge.purpose == "decisions"]
    asked = [d for d in decisions if d.reason in ("above", "below")]
    assert charges == [(WATCH_SHARE, "decisions")] * len(charges)
    assert len(charges) >= 1
    assert len(scales) == len(asked) + len(charges)
    of_threshold, of_query = scales[0], scales[1]
    assert sensitivity / of_threshold + 2 * sensitivity / of_query == WATCH_SHARE
    assert scales.count(of_query) == len(asked)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("span", [{"horizon": 150}, {"window": 50}])
def test_a_watch_has_the_noise_its_charge_pays_for(
    span: dict[str, int], halved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales: list[Fraction] = []

    def recorded(scale: Fraction, *rest: Any) -> Any:
        scales.append(scale / 2 if halved else scale)
        return discrete_laplace(scale, *rest)

    monkeypatch.setattr(sparse_vector_module, "discrete_laplace", recorded)
    strategy = build(3, sensitivity=2, **span)
    decisions = [strategy.step(counts) for counts in jumping([60], 149)]
    if halved:
        with pytest.raises(AssertionError):
            check_cost(decisions, scales, 2)
    else:
        check_cost(decisions, scales, 2)


@pytest.mark.parametrize("span", [{"horizon": 200}, {"window": 100}])
def test_a_jump_after_a_long_silence_is_seen_at_once(span: dict[str, int]) -> None:
    undisturbed = build(1, **span)
    quiet = [undisturbed.step(counts).reason for counts in jumping([], 170)]
    jump = next(point for point in range(140, 170) if quiet[point - 2 : point] == ["below", "below"])
    strategy = build(1, **span)
    decisions = [strategy.step(counts) for counts in jumping([jump], 170)]
    reasons = [decision.reason for decision in decisions]
    assert "above" not in reasons[: jump - 1]
    assert reasons[jump - 1] == "above"
    assert decisions[jump - 1].fresh
    off = np.abs(decisions[jump - 1].counts[:32].sum() - 16_000)  # type: ignore[index]
    assert off < 4_000, "the release after the jump must follow it"


@pytest.mark.parametrize("seed", range(5))
def test_still_data_makes_nobody_cry(seed: int) -> None:
    """About one in twenty may, in a window; not with these seeds."""
    strategy = build(seed, window=60)
    assert all(strategy.step(STILL).reason != "above" for _ in range(300))


def test_few_records_are_not_watched() -> None:
    strategy = build(1, horizon=100)
    decisions = [strategy.step(STILL // 20) for _ in range(99)]
    assert not [c for d in decisions for c in d.charges if c.purpose == "decisions"]
    assert all(decision.reason != "below" for decision in decisions)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    times=st.lists(st.integers(5, 120), max_size=12),
    skipped=st.sets(st.integers(1, 120), max_size=15),
    window=st.sampled_from([8, 12, 30]),
)
def test_no_window_pays_for_more_than_epsilon(seed: int, times: list[int], skipped: set[int], window: int) -> None:
    """A watch is counted in every window that meets one of its questions, wherever it was charged."""
    strategy = build(seed, window=window)
    decisions = [
        strategy.skip() if point in skipped else strategy.step(counts)
        for point, counts in enumerate(jumping(times, 120), 1)
    ]
    for first in range(1, 121):
        assert cost_of_window(decisions, first, first + window - 1) <= 1
    ended = [(begin, end) for begin, end, _ in stretches(decisions)]
    assert all(later - end >= window for (_, end), (later, _) in pairwise(ended))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), times=st.lists(st.integers(5, 120), max_size=12))
def test_a_horizon_pays_for_three_at_most(seed: int, times: list[int]) -> None:
    strategy = build(seed, horizon=120)
    decisions = [strategy.step(counts) for counts in jumping(times, 120)]
    assert most_spent(decisions, None) == 1
    assert len(stretches(decisions)) <= 3


def test_a_watch_goes_on_to_the_bit_after_a_restart() -> None:
    arguments: dict[str, Any] = {"epsilon": 1, "cells": CELLS, "shape": SHAPE, "window": 40}
    sources = InsecureSeededSource(9), InsecureSeededSource(9)
    whole, parted = (make_strategy("auto", source=source, **arguments) for source in sources)
    reasons = set()
    for counts in jumping([60, 130], 160):
        one, other = whole.step(counts), parted.step(counts)
        assert (one.reason, one.epsilon, one.threshold) == (other.reason, other.epsilon, other.threshold)
        assert np.array_equal(one.counts, other.counts)  # type: ignore[arg-type]
        reasons.add(one.reason)
        state = json.loads(json.dumps(parted.state(), allow_nan=False))
        parted = restore_strategy("auto", state=state, last=parted.last, source=sources[1], **arguments)
    assert {"above", "below"} <= reasons


@pytest.mark.parametrize("shape", [(4,), (100,), (8, 3), (2,) * 10, (48, 24, 24), (1, 1)])
def test_groups_are_disjoint_and_cover_every_cell(shape: tuple[int, ...]) -> None:
    watch = Watch(bands_of(shape), Fraction(1), 1, 100)
    cells = int(np.prod(shape))
    grouped = watch._distance.grouped(np.ones(cells, np.int64))
    assert grouped.sum() == cells
    assert grouped.min() >= 1
    assert min(cells, 16) / 2 <= grouped.size <= 32
    # What noise of variance 1 in every coefficient makes of a group is its number of cells.
    assert watch._energy.sum(axis=1) == pytest.approx(grouped)
