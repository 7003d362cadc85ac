"""`auto`: its noise, its rules, and that it is worth having."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streamdp.privacy.mechanisms as mechanisms_module
import streamdp.strategies.auto.motion as motion_module
import streamdp.strategies.auto.strategy as strategy_module
from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.strategies import Auto, Decision, make_strategy, restore_strategy
from streamdp.strategies.auto.strategy import busy_share, first_share, largest_share, usual_share

CELLS = 64
SPANS: list[dict[str, int]] = [{"horizon": 60}, {"window": 20}]


def build(seed: int = 1, cells: int = CELLS, **settings: Any) -> Auto:
    strategy = make_strategy("auto", cells=cells, source=InsecureSeededSource(seed), **{"epsilon": 1, **settings})
    assert isinstance(strategy, Auto)
    return strategy


def moving(speed: float, points: int, seed: int = 3, users: int = 20_000) -> list[np.ndarray]:
    """Users of whom a part moves to a random cell in each point."""
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(users, generator.dirichlet(np.full(CELLS, 0.5)))
    series = []
    for _ in range(points):
        gone = generator.binomial(counts, speed)
        counts = counts - gone + generator.multinomial(gone.sum(), np.full(CELLS, 1 / CELLS))
        series.append(counts.astype(np.int64))
    return series


def check_noise(monkeypatch: pytest.MonkeyPatch, halved: bool) -> None:
    """What is drawn for every release has the variance its charge pays for, whatever becomes of it afterwards.

    So wide a histogram is measured at two scales, which share the charge.
    """
    drawn: list[tuple[Fraction, np.ndarray]] = []

    def recorded(scale: Fraction, *rest: Any) -> Any:
        noise = discrete_laplace(scale / 2 if halved else scale, *rest)
        drawn.append((scale, noise.copy()))
        return noise

    monkeypatch.setattr(mechanisms_module, "discrete_laplace", recorded)
    strategy = build(cells=20_000, sensitivity=2, horizon=30)
    decisions = [strategy.step(np.full(20_000, 1_000, dtype=np.int64)) for _ in range(30)]
    fresh = [decision for decision in decisions if decision.fresh]
    assert 2 * len(fresh) == len(drawn) >= 6
    for decision, (scale, noise), (of_groups, sums) in zip(fresh, drawn[::2], drawn[1::2], strict=True):
        assert decision.scale == scale
        assert 2 / scale + 2 / of_groups == decision.epsilon
        for found, of, room in ((noise, scale, 0.15), (sums, of_groups, 0.9)):
            ratio = np.exp(-1 / float(of))
            assert np.mean(found.astype(float) ** 2) == pytest.approx(2 * ratio / (1 - ratio) ** 2, rel=room)


def test_every_release_carries_the_noise_of_its_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    check_noise(monkeypatch, halved=False)


def test_half_the_noise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_noise(monkeypatch, halved=True)


@pytest.mark.parametrize("span", SPANS)
def test_points_that_are_not_watched_look_at_no_data(span: dict[str, int]) -> None:
    """The same noise on other data while it waits: the same decisions, because it does not look. So few can hide."""
    calm = [np.full(CELLS, 30, dtype=np.int64)] * 60
    one, other = build(**span), build(**span)
    for counts in calm:
        first = one.step(counts)
        second = other.step(counts if first.fresh else counts * 7)
        assert (first.fresh, first.epsilon, first.reason) == (second.fresh, second.epsilon, second.reason)


@pytest.mark.parametrize("span", SPANS)
def test_a_moving_histogram_is_released_more_often_than_a_still_one(span: dict[str, int]) -> None:
    def releases(speed: float) -> int:
        strategy = build(**span)
        return sum(strategy.step(counts).fresh for counts in moving(speed, 60, users=200_000))

    assert releases(0.3) > 2 * releases(0.0)


def test_a_horizon_is_spent_to_the_last_bit() -> None:
    strategy = build(horizon=60)
    decisions = [strategy.step(counts) for counts in moving(0.01, 60)]
    assert sum((charge.epsilon for decision in decisions for charge in decision.costs), Fraction(0)) == 1
    assert decisions[0].reason == "first"
    assert decisions[0].epsilon == first_share(Fraction(1), 60, False, (CELLS,))
    assert any(decision.fresh for decision in decisions[1:4])
    assert decisions[-1].reason == "final"


@pytest.mark.parametrize("returns", [False, True])
def test_the_first_share_is_larger_where_fewer_releases_pay(returns: bool) -> None:
    def share(epsilon: str, shape: tuple[int, ...], span: int = 400) -> float:
        return float(first_share(Fraction(epsilon), span, returns, shape) / Fraction(epsilon))

    plain = 1.5 / 20
    assert share("5", (16,)) == share("1", (16,)) == pytest.approx(plain, abs=1e-5)
    assert plain < share("1/10", (16,)) < share("1/10", (64, 64)) < share("1/100", (64, 64))
    assert 2 * plain < share("1", (64, 64)) < share("1", (48, 24, 24))
    assert share("1/10", (16,)) == pytest.approx(10 ** (0.3 if returns else 0.35) * plain, rel=0.01)
    assert share("1/1000", (64, 64), 4) == float(largest_share(Fraction(1), 4, returns)) == (0.7 if returns else 0.5)
    assert share("1/1000", (64, 64), 1) == 1


@pytest.mark.parametrize("span", [{"horizon": 200}, {"window": 200}])
def test_the_second_release_can_see_whether_anything_moved(span: dict[str, int]) -> None:
    """Whatever the schedule would give it. `check` counts on it when it says what is left for later ones."""
    strategy = build(**span, cells=4096)
    usual = usual_share(strategy.epsilon, 200, "window" in span)
    fresh = [decision for decision in (strategy.step(np.full(4096, 30)) for _ in range(6)) if decision.fresh]
    assert fresh[1].epsilon > usual / 4 - Fraction(1, strategy_module.FINEST)
    first, each = (share(strategy.epsilon, 200, "window" in span, (4096,)) for share in (first_share, busy_share))
    assert fresh[0].epsilon == first > usual
    assert first + usual / 4 + 198 * each == strategy.epsilon


def test_the_longer_it_is_quiet_the_less_a_horizon_spends_at_once() -> None:
    for seed in range(5):
        strategy = build(seed, horizon=300)
        left, most = strategy.epsilon, Fraction(0)
        for point in range(1, 300):
            decision = strategy.step(np.full(CELLS, 300, dtype=np.int64))
            if decision.fresh and point > 1:
                accrued = left * strategy._gap / (300 - point + strategy._gap)
                assert decision.epsilon <= max(left / 3, accrued) + Fraction(1, strategy_module.FINEST)
                most = max(most, decision.epsilon / left)
            left = strategy._left(point)
        assert most > Fraction(1, 4)


@pytest.mark.parametrize("power", [0.3, 2.0])
def test_there_is_something_left_for_every_jump(power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the first release was (nearly half, with the larger power), no later one takes what others need."""
    monkeypatch.setattr(strategy_module, "_SMALLER", power)
    jumps = [counts for seed in range(10) for counts in [moving(0, 1, seed, users=500_000)[0]] * 20]
    for seed in range(3):
        strategy = build(seed, horizon=200, epsilon="1/2")
        decisions = [strategy.step(counts) for counts in jumps]
        answers = [float(decision.epsilon) for decision in decisions if decision.reason == "above"]
        assert len(answers) >= 5
        assert min(answers) > max(answers) / 10
        assert min(answers) > 0.5 / 200


@pytest.mark.parametrize("span", [1, 2, 3])
@pytest.mark.parametrize("kind", ["horizon", "window"])
@pytest.mark.parametrize("cells", [1, 4])
def test_short_spans_and_few_cells(span: int, kind: str, cells: int) -> None:
    strategy = build(cells=cells, **{kind: span})
    decisions = [strategy.step(np.full(cells, 10, dtype=np.int64)) for _ in range(span)]
    assert sum((decision.epsilon for decision in decisions), Fraction(0)) <= 1
    assert decisions[0].fresh


def test_a_silence_is_at_most_three_times_the_one_before() -> None:
    strategy = build(horizon=200)
    released = [number for number in range(200) if strategy.step(np.full(CELLS, 300, dtype=np.int64)).fresh]
    gaps = np.diff(released)
    assert all(later <= max(3, 3 * earlier) for earlier, later in zip([0, *gaps], gaps, strict=False))
    assert gaps.max() > 10


def mean_error(strategy: Any, series: list[np.ndarray]) -> float:
    """Of all ranges that begin with the first cell."""
    errors = []
    for truth in series:
        decision = strategy.step(truth)
        errors.append(np.abs(np.cumsum(decision.counts - truth)).mean())
    return float(np.mean(errors))


@pytest.mark.parametrize("span", [{"horizon": 120}, {"window": 20}])
@pytest.mark.parametrize("speed", [0.002, 0.05, 0.5])
def test_it_is_near_the_best_interval_in_hindsight_and_far_from_the_worst(span: dict[str, int], speed: float) -> None:
    """The one property that matters, at a fixed seed and with room: benchmarks measure how near."""
    series = moving(speed, 120)
    most = next(iter(span.values()))
    fixed = [
        mean_error(
            make_strategy(
                "fixed",
                epsilon=1,
                cells=CELLS,
                parameters={"interval": interval},
                source=InsecureSeededSource(5),
                **span,
            ),
            series,
        )
        for interval in (1, 2, 3, 5, 8, 12, 20, 40, 60)
        if interval <= most
    ]
    auto = mean_error(build(5, **span), series)
    assert auto < 2 * min(fixed)
    assert auto < max(fixed) / 1.5


def steady(points: int, pace: int) -> list[np.ndarray]:
    """Every point the same number of users goes from the first half of the cells to the second."""
    half = np.repeat([-pace, pace], CELLS // 2)
    return [np.full(CELLS, 5_000) + point * half for point in range(points)]


def tides(points: int, height: int) -> list[np.ndarray]:
    """Users come to either half of the cells and go again, at random, and are seldom far from the mean for long."""
    generator = np.random.default_rng(4)
    half = np.repeat([-1, 1], CELLS // 2)
    level, series = 0.0, []
    for _ in range(points):
        level = 0.6 * level + 0.8 * height * generator.standard_normal()
        series.append(np.full(CELLS, 5_000) + round(level) * half)
    return series


def days(points: int, height: int) -> list[np.ndarray]:
    """Every day of 24 points users go to the second half of the cells and come back."""
    half = np.repeat([-1, 1], CELLS // 2)
    return [np.full(CELLS, 5_000) + round(height * np.sin(2 * np.pi * point / 24)) * half for point in range(points)]


@pytest.mark.parametrize(
    "series", [steady(100, pace=40), tides(200, height=400), days(200, height=1_000)], ids=["steady", "tides", "days"]
)
def test_trends_and_rhythms_are_followed_and_deviations_not(
    series: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def error() -> float:
        return sum(mean_error(build(seed, window=20, epsilon="1/10"), series) for seed in range(4))

    following = error()
    monkeypatch.setattr(motion_module, "_BEFORE", (1.0, 1e-300, 1e-300, 1e-300))
    assert following < 0.95 * error()


@pytest.mark.parametrize("epsilon", ["1/1000000000000000000000", "1000"])
def test_an_epsilon_out_of_all_proportion_is_no_error(epsilon: str) -> None:
    strategy = build(window=8, epsilon=epsilon)
    with np.errstate(all="raise", under="ignore"):
        for counts in moving(0.1, 40):
            decision = strategy.step(counts)
            assert decision.counts.min() >= 0
            if decision.fresh:
                assert decision.variance is not None
                assert np.isfinite(decision.variance.standard_error([slice(0, 3)], 5))


def error_after_a_jump(seed: int, window: int = 60) -> float:
    """Right after a release everybody is elsewhere; the mean error from a third of a window later to a whole one."""
    still, jumped = np.full(CELLS, 200), np.roll(np.repeat([0, 400], CELLS // 2), 3)
    strategy = build(seed, window=window)
    jump, errors = 0, []
    for point in range(1, 15 * window):
        decision = strategy.step(jumped if jump else still)
        assert not decision.fresh or decision.epsilon >= strategy.epsilon / window / 16, "that would be noise"
        if jump:
            assert decision.counts is not None
            errors.append(np.abs(decision.counts - jumped).mean())
        elif decision.fresh and point > 12 * window:
            jump = point
    return float(np.mean(errors[window // 3 : window]))


def test_a_jump_right_after_a_release_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Still data gets large releases, but not so large that there is nothing left for half a window."""
    guarded = [error_after_a_jump(seed) for seed in range(5)]
    assert max(guarded) < 12
    monkeypatch.setattr(strategy_module, "_SMALL", Fraction(1))
    assert np.mean(guarded) < 0.4 * np.mean([error_after_a_jump(seed) for seed in range(5)])


def test_no_release_takes_nearly_all_that_a_window_has_left() -> None:
    strategy = build(2, window=40)
    bound = 0
    for point, counts in enumerate(moving(0.02, 300), 1):
        left, last = strategy._left(point), strategy.last
        strategy._wanted, strategy._interval = strategy.epsilon, 40
        decision = strategy.step(counts)
        if decision.fresh and last is not None:
            most = min(left, max(left * Fraction(7, 10), strategy.epsilon / 3))
            assert decision.epsilon <= most
            bound += decision.epsilon > most - Fraction(1, 2**19) > 0
    assert bound > 5


def test_a_release_that_would_be_noise_waits() -> None:
    strategy = build(3, window=60)
    strategy.step(np.full(CELLS, 200))
    everything = strategy._for_releases
    strategy._due, strategy._wanted, strategy._interval = 0, Fraction(1, 2), 60
    strategy._spent = [(1, everything - Fraction(1, 64))]
    assert strategy.step(np.full(CELLS, 200)).reason == "cut_off"
    strategy._spent = [(1, everything - Fraction(3, 64))]
    assert strategy.step(np.full(CELLS, 200)).reason == "scheduled"


def test_the_state_is_small_and_json_whatever_the_histogram() -> None:
    strategy = make_strategy("auto", epsilon=1, cells=2**16, shape=(2,) * 16, window=50, source=InsecureSeededSource(2))
    for _ in range(4):
        strategy.step(np.zeros(2**16, dtype=np.int64))
    assert len(json.dumps(strategy.state(), allow_nan=False)) < 50_000


@pytest.mark.parametrize("post", [(), ("nonnegative",), ("consistent_total",)])
def test_it_goes_on_to_the_bit_after_a_restart(post: tuple[str, ...]) -> None:
    arguments: dict[str, Any] = {"epsilon": 1, "cells": CELLS, "window": 10, "post": post}
    series = moving(0.1, 40)
    source = InsecureSeededSource(9)
    whole = make_strategy("auto", source=source, **arguments)
    again_source = InsecureSeededSource(9)
    parted = make_strategy("auto", source=again_source, **arguments)
    for counts in series:
        one, other = whole.step(counts), parted.step(counts)
        assert_same(one, other)
        parted = restore_strategy(
            "auto",
            state=json.loads(json.dumps(parted.state())),
            last=parted.released,
            source=again_source,
            **arguments,
        )


def assert_same(one: Decision, other: Decision) -> None:
    assert (one.fresh, one.epsilon, one.reason) == (other.fresh, other.epsilon, other.reason)
    assert one.counts is not None and other.counts is not None
    assert np.array_equal(one.counts, other.counts)


def test_other_methods_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="laplace"):
        make_strategy("auto", epsilon=1, cells=4, horizon=5, method="efpa")
