"""The watch of `auto`: what it costs, what it sees, and that every window pays for those it meets."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_strategy_budget import cost_of_window, max_spent, stretches
from watched import CELLS, SHAPE, STILL, build, jumping

import streamdp.privacy.sparse_vector as sparse_vector_module
import streamdp.strategies.auto.strategy as strategy_module
import streamdp.strategies.auto.watch as watch_module
from streamdp.histograms.bands import bands_of
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.strategies import Auto, Decision, make_strategy, restore_strategy
from streamdp.strategies.auto.outlook import Next, next_release
from streamdp.strategies.auto.watch import SHARE as WATCH_SHARE
from streamdp.strategies.auto.watch import Watch
from streamdp.strategies.base import StreamStrategy


def check_cost(decisions: list[Decision], scales: list[Fraction], sensitivity: int) -> None:
    """By the theorem and not by the code: D / rho's scale + 2D / nu's scale, once for each charge."""
    costs = [charge for d in decisions for charge in d.costs if charge.purpose == "decisions"]
    asked = [d for d in decisions if d.reason in ("above", "below")]
    assert len(costs) >= 1
    price = costs[0].epsilon
    assert 0 < price <= WATCH_SHARE
    assert costs == [(price, "decisions")] * len(costs)
    assert len(scales) == len(asked) + len(costs)
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


@pytest.mark.parametrize("span", [{"window": 20}, {"horizon": 100}])
def test_among_many_every_silence_is_watched(span: dict[str, int]) -> None:
    """Short ones too: a watch costs little there."""
    strategy = build(5, **span)
    reasons = [strategy.step(100 * STILL).reason for _ in range(12)]
    assert "below" in reasons
    assert "waiting" not in reasons


def test_few_records_are_not_watched() -> None:
    strategy = build(1, horizon=100)
    decisions = [strategy.step(STILL // 20) for _ in range(99)]
    assert not [c for d in decisions for c in d.costs if c.purpose == "decisions"]
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("window", [12, 30])
def test_who_spends_all_that_is_left_pays_for_every_watch_too(
    seed: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watches are dear here, and all that a window has left is spent again and again, whether or not one cried."""
    monkeypatch.setattr(watch_module, "_CHEAPEST", 1.0)
    strategy = build(seed, window=window)
    monkeypatch.setattr(strategy, "_spendable", lambda: strategy._left(strategy.time_point))
    monkeypatch.setattr(strategy, "_affordable", lambda: strategy._left(strategy.time_point))
    monkeypatch.setattr(strategy_module, "_USEFUL", 10**6)
    monkeypatch.setattr(strategy_module, "_DEAR", 0)
    monkeypatch.setattr(strategy, "_answer", lambda: max(strategy._left(strategy.time_point) / 2, Fraction(1, 2**20)))
    decisions = []
    for point, counts in enumerate(jumping(list(range(3, 150, 4)), 150), 1):
        strategy._due = point + (0 if point % 6 == 0 else 5)
        strategy._wanted = Fraction(1, 2**20)
        decisions.append(strategy.step(counts))
    costs = [cost_of_window(decisions, first, first + window - 1) for first in range(1, 150 - window)]
    assert max(costs) <= 1
    assert max(costs) > Fraction(999, 1_000)
    assert sum(decision.reason == "above" for decision in decisions) >= 2


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cry_is_paid_for_until_it_is_a_window_ago(restarted: bool) -> None:
    strategy: StreamStrategy = build(1, window=30)
    strategy.step(STILL)
    assert isinstance(strategy, Auto)
    strategy._watch._ended = [2]
    if restarted:
        arguments: dict[str, Any] = {"epsilon": 1, "cells": CELLS, "shape": SHAPE, "window": 30}
        state = json.loads(json.dumps(strategy.state(), allow_nan=False))
        strategy = restore_strategy(
            "auto", state=state, last=strategy.released, source=InsecureSeededSource(1), **arguments
        )
        assert isinstance(strategy, Auto)
    price, paid = strategy._watch.epsilon, {}
    for point in range(2, 34):
        strategy.step(STILL)
        paid[point] = 1 - strategy._for_releases - price * strategy._watch.is_on
    assert (paid[2], paid[31], paid[32]) == (price, price, 0)


def test_a_dear_watch_does_not_begin() -> None:
    """One that would cost more than a third of what answers it."""
    strategy = build(1, horizon=100)
    few = 300 * STILL // 1_000
    reasons = []
    for _ in range(40):
        reasons.append(strategy.step(few).reason)
        assert strategy._watch.sees
        is_dear = strategy._watch.epsilon * 3 > strategy._answer()
        assert strategy._watch.is_on or is_dear or reasons[-1] not in ("waiting", "below")
    assert reasons[1] == "waiting"
    assert "below" in reasons


def recorded(sensitivity: int) -> tuple[Watch, list[int]]:
    """A watch that never cries, and what it asks, which is as private as the data."""
    asked: list[int] = []

    class Recorder:
        def above(self, query: int, threshold: int) -> bool:
            asked.append(query)
            return False

    watch = Watch(bands_of(SHAPE), WATCH_SHARE, sensitivity, 200)
    watch._sparse_vector = Recorder()  # type: ignore[assignment]
    return watch, asked


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), records=st.integers(1, 4))
def test_one_user_moves_what_a_watch_asks_by_no_more_than_their_records(seed: int, records: int) -> None:
    generator = np.random.default_rng(seed)
    watch, asked = recorded(records)
    published, counts = (generator.integers(0, 50, CELLS) for _ in range(2))
    slack = watch.slack(generator.random(bands_of(SHAPE).number) * 400)
    with_user = counts + np.bincount(generator.integers(0, CELLS, records), minlength=CELLS)
    for one in (counts, with_user):
        watch.cries(one, published, slack, 1)
    without, with_them = asked
    assert abs(with_them - without) <= records


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), times=st.lists(st.integers(5, 120), max_size=12))
def test_a_horizon_pays_for_every_watch(seed: int, times: list[int]) -> None:
    strategy = build(seed, horizon=120)
    decisions = [strategy.step(counts) for counts in jumping(times, 120)]
    assert max_spent(decisions, None) == 1
    assert sum(price for _, _, price in stretches(decisions)) <= (1 + len(times)) * WATCH_SHARE


@pytest.mark.parametrize(
    ("users", "least", "most"), [(17_000, 0.8, 1), (60_000, 1 / 5, 1 / 2), (10**8, 1 / 40, 1 / 38)]
)
def test_the_more_users_the_cheaper_is_a_watch(users: int, least: float, most: float) -> None:
    watch = Watch(bands_of(SHAPE), WATCH_SHARE, 1, 200)
    watch.fit(users)
    assert watch.sees
    assert least <= watch.epsilon / WATCH_SHARE <= most
    if users < 10**6:
        assert watch.threshold == pytest.approx(users / 10, rel=0.01)


def test_the_schedule_counts_on_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def both(*about: Any) -> Next:
        *rest, watch, slack = about
        with_it, without = next_release(*rest, watch, slack), next_release(*rest, None, slack)
        if watch is not None:
            found.append((with_it.interval, without.interval))
        return with_it

    monkeypatch.setattr(strategy_module, "next_release", both)
    strategy = build(2, epsilon="0.1", horizon=600)
    for counts in jumping(list(range(80, 560, 60)), 599):
        strategy.step(10_000 * counts)
    assert sum(with_it > without for with_it, without in found) >= 3
    assert sum(with_it < without for with_it, without in found) == 0


@pytest.mark.parametrize("part", [0.5, 2.0])
def test_silences_may_be_longer_where_a_watch_would_cry(part: float) -> None:
    bands = bands_of(SHAPE)
    watch = Watch(bands, WATCH_SHARE, 1, 200)
    watch.fit(1e5)
    held, profile = np.full(bands.number, 1e4), np.ones(bands.number)
    ages, slack = np.arange(1.0, 50.0), part * watch.slack(held)
    never, late, soon = watch.heard_after(held, profile, slack, np.array([1.0, 1e5, 1e9]), ages)
    assert never == np.inf
    assert 1 <= soon < late < np.inf
    # What it expects is what there is, on average over errors of such variances.
    normal = np.random.default_rng(1).normal(size=(50_000, len(watch._energy)))

    def beyond(age: float) -> float:
        deviations = np.sqrt(watch._energy @ (held + age * 1e5 * profile))
        return float(np.maximum(np.abs(normal * deviations) - slack, 0).sum(axis=1).mean())

    assert beyond(late - 1) < 1.01 * watch.threshold
    assert beyond(late) > 0.99 * watch.threshold


def test_slack_never_overflows_the_counts() -> None:
    """With a tiny epsilon noise is larger than any integer; what is asked is nothing then, and never everything."""
    watch, asked = recorded(1)
    watch.cries(STILL, np.zeros_like(STILL), watch.slack(np.full(bands_of(SHAPE).number, 1e40)), 1)
    assert asked == [0]


@pytest.mark.parametrize("span", [{"horizon": 200}, {"window": 100}])
def test_slack_is_the_larger_of_what_is_held_and_what_would_answer(span: dict[str, int]) -> None:
    strategy = build(4, **span)
    strategy.step(STILL)
    held = strategy._watch.slack(strategy._estimate.held())
    little, much = (strategy._slack(Fraction(1, part)) for part in (10_000, 1))
    assert (much == held).all()
    assert (little > 100 * held).all()
    noise = strategy._estimate.fresh(Fraction(10_000))
    assert (little == strategy._watch.slack(noise)).all()


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
        parted = restore_strategy("auto", state=state, last=parted.released, source=sources[1], **arguments)
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
