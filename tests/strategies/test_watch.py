"""The watch of `auto`: what it costs, what it sees, and that no window pays for more than it has put aside."""

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
import streamdp.strategies.auto.strategy as strategy_module
from streamdp.histograms.bands import bands_of
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.strategies import Auto, Decision, make_strategy, restore_strategy
from streamdp.strategies.auto import WATCH_SHARE
from streamdp.strategies.auto.drift import _OVER, Drift
from streamdp.strategies.auto.outlook import Next, next_release
from streamdp.strategies.auto.watch import Watch
from streamdp.strategies.base import StreamStrategy

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
    assert len(charges) >= 1
    price = charges[0].epsilon
    assert 0 < price <= WATCH_SHARE
    assert charges == [(price, "decisions")] * len(charges)
    assert len(scales) == len(asked) + len(charges)
    of_threshold, of_query = scales[0], scales[1]
    assert sensitivity / of_threshold + 2 * sensitivity / of_query == price
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


@pytest.mark.parametrize(("span", "passed"), [({"window": 20}, False), ({"horizon": 100}, True)])
def test_every_silence_of_a_window_is_watched(span: dict[str, int], passed: bool) -> None:
    """Short ones too: their watch is paid for. A horizon passes its first silence without a look."""
    strategy = build(5, **span)
    reasons = [strategy.step(100 * STILL).reason for _ in range(12)]
    assert "below" in reasons
    assert ("waiting" in reasons) == passed


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
        met = (price for begin, end, price in stretches(decisions) if begin < first + window and end >= first)
        assert sum(met) <= WATCH_SHARE


@pytest.mark.parametrize("seed", range(5))
def test_no_window_meets_more_watches_than_it_has_put_aside(seed: int) -> None:
    """Among few a watch costs all that there is, so there is one, and the next begins when a window has passed."""
    strategy = build(seed, window=30)
    decisions = [strategy.step(150 * counts // 1_000) for counts in jumping(list(range(5, 200, 9)), 200)]
    watches = stretches(decisions)
    assert {price for _, _, price in watches} == {WATCH_SHARE}
    waited = [later - end for (_, end, _), (later, _, _) in pairwise(watches)]
    assert waited and min(waited) >= 30


@pytest.mark.parametrize("restarted", [False, True])
def test_the_next_watch_begins_when_the_last_cry_is_a_window_ago(restarted: bool) -> None:
    strategy: StreamStrategy = build(1, window=30)
    few = 150 * STILL // 1_000
    strategy.step(few)
    assert isinstance(strategy, Auto)
    strategy._watch._ended = [2]
    if restarted:
        arguments: dict[str, Any] = {"epsilon": 1, "cells": CELLS, "shape": SHAPE, "window": 30}
        state = json.loads(json.dumps(strategy.state(), allow_nan=False))
        strategy = restore_strategy(
            "auto", state=state, last=strategy.last, source=InsecureSeededSource(1), **arguments
        )
    reasons = {point: strategy.step(few).reason for point in range(2, 34)}
    assert reasons[31] == "waiting", "the window that ends there begins with the cry"
    assert reasons[32] == "below"


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), times=st.lists(st.integers(5, 120), max_size=12))
def test_a_horizon_pays_for_three_of_the_dearest_at_most(seed: int, times: list[int]) -> None:
    strategy = build(seed, horizon=120)
    decisions = [strategy.step(counts) for counts in jumping(times, 120)]
    assert most_spent(decisions, None) == 1
    assert sum(price for _, _, price in stretches(decisions)) <= 3 * WATCH_SHARE


@pytest.mark.parametrize(("users", "least", "most"), [(9_000, 1, 1), (60_000, 1 / 5, 1 / 2), (10**8, 1 / 50, 1 / 48)])
def test_the_more_users_the_cheaper_is_a_watch(users: int, least: float, most: float) -> None:
    watch = Watch(bands_of(SHAPE), WATCH_SHARE, 1, 200)
    assert watch.fit(users)
    assert least <= watch.epsilon / WATCH_SHARE <= most


@pytest.mark.parametrize("span", [{"horizon": 600}, {"window": 300}])
def test_jump_after_jump_is_seen_among_many(span: dict[str, int]) -> None:
    jumps = list(range(80, 560, 60))
    strategy = build(2, **{"epsilon": "0.1", **span})
    decisions = [strategy.step(10_000 * counts) for counts in jumping(jumps, 599)]
    seen = [decision.time_point for decision in decisions if decision.reason == "above"]
    assert len(set(seen) & set(jumps)) >= 6, f"of {jumps} only {seen}"
    off = [np.abs(d.counts - 10_000 * c).sum() for d, c in zip(decisions, jumping(jumps, 599), strict=True)]  # type: ignore[operator]
    assert np.mean(off) < 0.02 * 10_000 * STILL.sum()


def test_after_a_cry_the_data_may_rest_again() -> None:
    """Speed is not taken to be what one jump makes of it."""
    bands = bands_of(SHAPE)
    drift = Drift(bands, 100.0, 300, 1e9)
    noise, still = np.full(bands.number, 100.0), np.full(bands.number, 100.0)
    for _ in range(5):
        drift.observe(still, noise, 10)
    slow, before = drift.total, drift._history
    drift.observe(np.full(bands.number, 1e7), noise, 10)
    fast, after = drift.total, drift._history
    drift.jumped()
    assert drift._history == pytest.approx(_OVER * before + (1 - _OVER) * after)
    assert slow < drift.total < fast**0.5 * slow**0.5
    drift.observe(still, noise, 10)
    assert drift.total < 10 * slow


def test_only_a_cry_is_a_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    jumped: list[float] = []
    monkeypatch.setattr(Drift, "jumped", lambda drift: jumped.append(drift.total))
    strategy = build(2, epsilon="0.1", horizon=600)
    decisions = [strategy.step(10_000 * counts) for counts in jumping([80, 200, 320], 599)]
    assert len(jumped) == sum(decision.reason == "above" for decision in decisions) >= 2
    assert len(jumped) < sum(decision.fresh for decision in decisions)


def test_the_schedule_counts_on_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def both(*about: Any) -> Next:
        *rest, watch = about
        with_it, without = next_release(*rest, watch), next_release(*rest, None)
        if watch is not None:
            found.append((with_it.interval, without.interval))
        return with_it

    monkeypatch.setattr(strategy_module, "next_release", both)
    strategy = build(2, epsilon="0.1", horizon=600)
    for counts in jumping(list(range(80, 560, 60)), 599):
        strategy.step(10_000 * counts)
    assert sum(with_it > without for with_it, without in found) >= 3
    assert sum(with_it < without for with_it, without in found) == 0


@pytest.mark.parametrize("far", [1.0, 100.0])
def test_silences_may_be_longer_where_a_watch_would_cry(far: float) -> None:
    watch = Watch(bands_of(SHAPE), WATCH_SHARE, 1, 200)
    assert watch.fit(1e5)
    held, profile = np.full(bands_of(SHAPE).number, 1e4), np.ones(bands_of(SHAPE).number)
    ages = np.arange(1.0, 50.0)
    never, late, soon = watch.heard_after(held, profile, far, np.array([far, 1e6, 1e9]), ages)
    assert never == np.inf
    assert 1 <= soon <= late < np.inf
    # What it says is what a threshold says.
    at = held + late * profile * 1e6
    assert np.sqrt(2 / np.pi) * np.sqrt(watch._energy @ at).sum() > watch.threshold(held + late * profile * far)


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
