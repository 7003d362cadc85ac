"""The watch of `auto`: what it costs, what it sees, and that every window pays for those it meets."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_strategy_budget import cost_of_window, most_spent, stretches

import streamdp.privacy.sparse_vector as sparse_vector_module
import streamdp.strategies.auto.strategy as strategy_module
import streamdp.strategies.auto.watch as watch_module
from streamdp.histograms.bands import bands_of
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.strategies import Auto, Decision, make_strategy, restore_strategy
from streamdp.strategies.auto import WATCH_SHARE
from streamdp.strategies.auto.drift import _OVER, Drift
from streamdp.strategies.auto.outlook import Next, longest_gap, next_release
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
            "auto", state=state, last=strategy.last, source=InsecureSeededSource(1), **arguments
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


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), records=st.integers(1, 4))
def test_one_user_moves_what_a_watch_asks_by_no_more_than_their_records(seed: int, records: int) -> None:
    asked: list[int] = []

    class Recorder:
        def above(self, query: int, threshold: int) -> bool:
            asked.append(query)
            return False

    generator = np.random.default_rng(seed)
    watch = Watch(bands_of(SHAPE), WATCH_SHARE, records, 200)
    watch._sparse_vector = Recorder()  # type: ignore[assignment]
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
    assert most_spent(decisions, None) == 1
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


def test_the_more_cries_the_less_answers_the_next() -> None:
    strategy = build(1, horizon=200)
    for _ in range(100):
        strategy.step(STILL)
    answers = []
    for cries in range(20):
        strategy._watch._ended = [100] * cries
        answers.append(strategy._answer())
        # As many as came in a hundred points may come in the hundred after them, and there are enough for all.
        assert answers[-1] * (1 + cries) <= strategy._left(100)
    assert answers == sorted(answers, reverse=True)
    assert answers[-1] < answers[0] / 2


def test_where_things_happen_a_horizon_saves() -> None:
    """Once there was a cry, a scheduled release takes no more than an answer would have."""
    strategy = build(2, epsilon="0.1", horizon=600)
    has_cried, scheduled, answer = False, 0, strategy.epsilon
    for counts in jumping([80, 90, 250], 599):
        most = strategy._wanted
        decision = strategy.step(10_000 * counts)
        if has_cried and decision.reason == "scheduled":
            scheduled += 1
            assert decision.epsilon <= most <= answer
        has_cried |= decision.reason == "above"
        if decision.fresh:
            answer = strategy._answer()
    assert scheduled > 3


@pytest.mark.parametrize("span", [{"horizon": 600}, {"window": 300}])
def test_a_cry_takes_no_earned_silence_away(span: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert (longest_gap(0, 0), longest_gap(5, 0), longest_gap(5, 10), longest_gap(5, 40)) == (3, 15, 15, 40)
    allowed: list[int] = []

    def recorded(bands: Any, estimate: Any, longest: int, *rest: Any) -> Next:
        allowed.append(longest)
        return next_release(bands, estimate, longest, *rest)

    monkeypatch.setattr(strategy_module, "next_release", recorded)
    strategy = build(2, epsilon="0.1", **span)
    cried = 0
    for counts in jumping([80, 90, 200], 250):
        last, due = strategy._last_release, strategy._due
        decision = strategy.step(10_000 * counts)
        if decision.reason == "above":
            cried += 1
            assert allowed[-1] == max(3 * (decision.time_point - last), due - last)
        elif decision.reason == "scheduled":
            assert allowed[-1] == 3 * (decision.time_point - last)
    assert cried >= 2


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


def test_with_a_horizon_what_made_a_watch_cry_is_no_trend() -> None:
    """After a jump the models of motion expect nothing else to move; a window takes it for what may go on."""
    moved = {}
    for span in ("horizon", "window"):
        strategy = build(2, epsilon="0.1", **{span: 600})
        for counts in jumping([80], 100):
            decision = strategy.step(10_000 * counts)
            if decision.reason == "above":
                motion = strategy._estimate.motion
                moved[span] = float(np.abs(motion.foreseen(20) - motion.foreseen(0)).sum())
                break
    assert moved["horizon"] < moved["window"] / 5


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


def test_a_jump_says_nothing_of_how_the_data_moves() -> None:
    """No model of motion is believed more, or less, for what a horizon takes for a jump."""
    strategy = build(2, epsilon="0.1", horizon=600)
    checked = 0
    for counts in jumping([80, 200], 250):
        motion = strategy._estimate.motion
        before = motion._evidence.copy(), motion._of_periods.copy()
        decision = strategy.step(10_000 * counts)
        if decision.reason in ("above", "scheduled") and decision.time_point > 5:
            after = motion._evidence, motion._of_periods
            is_same = all(np.allclose(one, other, rtol=1e-6) for one, other in zip(before, after, strict=True))
            assert is_same == (decision.reason == "above")
            checked += decision.reason == "above"
    assert checked == 2


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
