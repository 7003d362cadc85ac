"""What follows a cry of the watch of `auto`: how much answers it, and what is believed afterwards."""

from typing import Any

import numpy as np
import pytest
from watched import SHAPE, STILL, build, jumping

import streamdp.strategies.auto.strategy as strategy_module
from streamdp.histograms.bands import bands_of
from streamdp.strategies.auto.drift import _OVER, Drift
from streamdp.strategies.auto.outlook import Next, longest_gap, next_release


def test_the_more_cries_the_less_answers_the_next() -> None:
    strategy = build(1, horizon=200)
    for _ in range(100):
        strategy.step(STILL)
    answers = []
    for cries in range(20):
        strategy._watch._confirmed = [100] * cries
        answers.append(strategy._answer())
        # As many as came in a hundred points may come in the hundred after them, and there are enough for all.
        assert answers[-1] * (1 + cries) <= strategy._left(100)
    assert answers == sorted(answers, reverse=True)
    assert answers[-1] < answers[0] / 2


def test_releases_that_are_scheduled_leave_less_for_an_answer() -> None:
    """With a horizon what is spent is gone; a window gets it back."""
    answers = {}
    for span in ("horizon", "window"):
        strategy = build(1, **{span: 200})
        for _ in range(100):
            strategy.step(STILL)
        for interval in (1, 50):
            strategy._interval = interval
            answers[span, interval] = strategy._answer()
    assert answers["horizon", 1] < answers["horizon", 50] * 2 / 3
    assert answers["window", 1] == answers["window", 50]


def test_where_things_happen_a_horizon_saves() -> None:
    """Once there was a cry, a scheduled release takes no more than an answer would have."""
    strategy = build(2, epsilon="0.1", horizon=600)
    has_cried, scheduled, answer = False, 0, strategy.epsilon
    for counts in jumping([80, 90, 250], 599):
        most, interval = strategy._wanted, strategy._interval
        decision = strategy.step(10_000 * counts)
        if has_cried and decision.reason == "scheduled":
            scheduled += 1
            assert decision.epsilon <= most <= answer
        has_cried |= decision.reason == "above"
        if decision.fresh:
            # What would have answered a cry when this release was planned from.
            planned, strategy._interval = strategy._interval, interval
            answer = strategy._answer()
            strategy._interval = planned
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
        drift.observe(still, noise, 10, 1e9)
    slow, before = drift.total, drift._history
    drift.observe(np.full(bands.number, 1e7), noise, 10, 1e9)
    fast, after = drift.total, drift._history
    drift.jumped()
    assert drift._history == pytest.approx(_OVER * before + (1 - _OVER) * after)
    assert slow < drift.total < fast**0.5 * slow**0.5
    drift.observe(still, noise, 10, 1e9)
    assert drift.total < 10 * slow


@pytest.mark.parametrize("span", [{"horizon": 300}, {"window": 300}])
def test_a_cry_for_nothing_is_no_jump(span: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The release that answers it is worse than what was known, and is no reason to forget that."""
    strategy = build(4, **span)
    cried = strategy._watch.cries

    def startled(counts: Any, published: Any, slack: Any, time_point: int) -> bool:
        if time_point != 150:
            return cried(counts, published, slack, time_point)
        strategy._watch._sparse_vector = None
        strategy._watch._ended = [150]
        return True

    monkeypatch.setattr(strategy._watch, "cries", startled)
    off = []
    for _ in range(200):
        decision = strategy.step(STILL)
        off.append(np.abs((decision.counts - STILL).reshape(SHAPE).sum(axis=1)).mean())  # type: ignore[operator]
        if decision.time_point == 150:
            assert decision.reason == "above" and not strategy._jumps() and strategy._cries()
    assert off[149] < 1.5 * off[148]


@pytest.mark.parametrize("moved", [False, True])
def test_a_noisy_answer_confirms_nothing_by_its_noise(moved: bool) -> None:
    strategy = build(2, horizon=600)
    strategy.step(10 * STILL)
    watch, bands = strategy._watch, bands_of(SHAPE)
    deviation = watch.threshold / 16
    noisy = 10 * STILL + np.rint(np.random.default_rng(3).normal(0, deviation, STILL.size)).astype(np.int64)
    if moved:
        noisy[:32] += watch.threshold // 8
        noisy[32:] -= watch.threshold // 8
    variances, slack = np.full(bands.number, deviation**2), watch.slack(np.zeros(bands.number))
    by_noise = np.abs(watch._distance.grouped(noisy - 10 * STILL)).sum()
    assert by_noise > 2 * watch.threshold
    assert watch.confirm(noisy, 10 * STILL, slack, variances, 2) == moved


def test_a_jump_is_confirmed_and_a_restart_remembers_it() -> None:
    strategy = build(2, epsilon="0.1", horizon=600)
    for counts in jumping([80], 100):
        strategy.step(10_000 * counts)
    assert strategy._jumps() == 1
    again = build(2, epsilon="0.1", horizon=600)
    again._watch.resume(strategy._watch.state(), None)
    again.time_point = strategy.time_point
    assert again._jumps() == 1


def test_only_a_cry_is_a_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    jumped: list[float] = []
    monkeypatch.setattr(Drift, "jumped", lambda drift: jumped.append(drift.total))
    strategy = build(2, epsilon="0.1", horizon=600)
    decisions = [strategy.step(10_000 * counts) for counts in jumping([80, 200, 320], 599)]
    assert len(jumped) == sum(decision.reason == "above" for decision in decisions) >= 2
    assert len(jumped) < sum(decision.fresh for decision in decisions)


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
