"""DSFT, DSAT and DSAT-w: when they ask, when they release, and that they follow the data."""

from fractions import Fraction

import numpy as np
import pytest

from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import Decision, StreamStrategy, make_strategy

HERE = np.array([100, 100], dtype=np.int64)
FAR = np.array([90_000, 100], dtype=np.int64)


COMMON = ("epsilon", "cells", "horizon", "window", "sensitivity", "method", "source")


def made(kind: str, **settings: object) -> StreamStrategy:
    common = {name: value for name, value in settings.items() if name in COMMON}
    parameters = {name: value for name, value in settings.items() if name not in COMMON}
    return make_strategy(kind, parameters=parameters, **common)  # type: ignore[arg-type]


def dsft(horizon: int = 8, releases: int = 3, **more: object) -> StreamStrategy:
    settings = {"threshold": 5_000, "source": InsecureSeededSource(4), "horizon": horizon} | more
    return made("dsft", epsilon=4, cells=2, releases=releases, **settings)


def reasons(strategy: StreamStrategy, series: list[np.ndarray | None]) -> list[str]:
    return [decision.reason for decision in run(strategy, series)]


def run(strategy: StreamStrategy, series: list[np.ndarray | None]) -> list[Decision]:
    return [strategy.skip() if counts is None else strategy.step(counts) for counts in series]


def test_the_first_point_is_released_unasked_and_the_last_spends_what_is_left() -> None:
    decisions = run(dsft(horizon=6), [HERE, HERE, FAR, FAR, FAR, FAR])
    assert [decision.reason for decision in decisions] == ["first", "below", "above", "below", "below", "final"]
    e1, e2 = Fraction(4, 11), Fraction(40, 11)
    assert [decision.costs for decision in decisions] == [
        ((e2 / 3, "release"),),
        ((e1, "decisions"),),
        ((e2 / 3, "release"),),
        (),
        (),
        ((e2 / 3, "release"),),
    ]
    assert [decision.threshold for decision in decisions] == [None, 5_000, 5_000, 5_000, 5_000, None]


def test_the_last_point_takes_all_unused_releases() -> None:
    decisions = run(dsft(horizon=4), [HERE] * 4)
    assert decisions[-1].epsilon == Fraction(40, 11) * 2 / 3
    assert decisions[-1].scale == 1 / decisions[-1].epsilon


def test_after_the_last_release_nothing_is_asked() -> None:
    assert reasons(dsft(), [HERE, FAR, HERE, FAR, HERE, FAR, FAR, FAR]) == [
        "first",
        "above",
        "above",
        "cut_off",
        "cut_off",
        "cut_off",
        "cut_off",
        "cut_off",
    ]


def test_a_single_release_takes_everything_and_decides_nothing() -> None:
    decisions = run(dsft(releases=1), [HERE, FAR, FAR])
    assert [decision.reason for decision in decisions] == ["first", "cut_off", "cut_off"]
    assert decisions[0].epsilon == 4


def test_when_the_first_points_are_missed_the_first_seen_is_released() -> None:
    assert reasons(dsft(), [None, None, HERE, HERE]) == ["skipped", "skipped", "first", "below"]


def test_a_horizon_seen_only_at_its_end_gets_all_of_the_releases_budget() -> None:
    decisions = run(dsft(horizon=3), [None, None, HERE])
    assert decisions[-1].reason == "final"
    assert decisions[-1].epsilon == Fraction(40, 11)


def test_a_missed_last_point_leaves_its_budget_unused() -> None:
    strategy = dsft(horizon=2, releases=2)
    assert reasons(strategy, [HERE, None]) == ["first", "skipped"]
    assert strategy.ended


def test_the_threshold_may_be_a_fraction_of_expected_users() -> None:
    strategy = dsft(threshold=None, threshold_fraction="1/4", expected_users=1_001)
    assert run(strategy, [HERE, HERE])[1].threshold == 251


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": None},
        {"threshold_fraction": "1/4", "expected_users": 10},
        {"threshold": None, "threshold_fraction": "1/4"},
        {"threshold": -1},
        {"releases": 9},
        {"decision_ratio": 0},
        {"groups": 3},
        {"horizon": None, "window": 8},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        dsft(**wrong)  # type: ignore[arg-type]


def test_dsat_waits_for_its_burn_in() -> None:
    strategy = made(
        "dsat", epsilon=4, cells=2, horizon=9, releases=3, threshold=5_000, burn_in=4, source=InsecureSeededSource(1)
    )
    assert reasons(strategy, [HERE, FAR, FAR, FAR, FAR]) == ["first", "burn_in", "burn_in", "burn_in", "above"]


def test_dsat_w_repeats_without_looking_while_the_window_is_full() -> None:
    strategy = made(
        "dsat_w", epsilon=8, cells=2, window=4, releases=2, threshold=5_000, scale=0, source=InsecureSeededSource(1)
    )
    series: list[np.ndarray | None] = [HERE, FAR, HERE, HERE, HERE, FAR, HERE, FAR, FAR]
    assert reasons(strategy, series) == [
        "first",
        "above",
        "cut_off",
        "cut_off",
        "above",  # point 1 has left the window of four
        "above",
        "cut_off",
        "cut_off",
        "below",
    ]


def test_dsat_w_goes_on_for_ever_and_releases_again_after_a_long_pause() -> None:
    strategy = made("dsat_w", epsilon=8, cells=2, window=3, releases=1, threshold=5_000, source=InsecureSeededSource(1))
    series: list[np.ndarray | None] = [HERE, *[None] * 50, FAR]
    assert reasons(strategy, series)[-1] == "above"


@pytest.mark.parametrize("kind", ["dsat", "dsat_w"])
def test_adaptive_sampling_follows_bursts(kind: str) -> None:
    """Long calm, three sudden moves: a release comes at or right after each of them, and few come elsewhere."""
    generator = np.random.default_rng(8)
    cells, moves = 50, (50, 90, 133)
    level = generator.integers(500, 1_500, cells)
    series: list[np.ndarray | None] = []
    for point in range(1, 161):
        if point in moves:
            level = generator.permutation(level)
        series.append((level + generator.integers(-2, 3, cells)).astype(np.int64))
    settings = {"epsilon": 2, "cells": cells, "releases": 8, "threshold": 4_000, "threshold_low": 1_500}
    settings["source"] = InsecureSeededSource(2)  # type: ignore[assignment]
    strategy: StreamStrategy = (
        made(kind, horizon=160, **settings) if kind == "dsat" else made(kind, window=160, **settings)
    )
    decisions = run(strategy, series)
    fresh = {decision.time_point for decision in decisions if decision.fresh}
    for move in moves:
        assert fresh & {move, move + 1, move + 2}
    assert len(fresh) <= 8

    def error(counts: list[np.ndarray | None]) -> float:
        return float(np.mean([np.abs(a - b).mean() for a, b in zip(series, counts, strict=True)]))  # type: ignore[operator]

    never_updated = [decisions[0].counts] * 160
    fixed = made("fixed", epsilon=2, cells=cells, horizon=160, interval=20, source=InsecureSeededSource(2))
    adaptive_error = error([decision.counts for decision in decisions])
    assert adaptive_error < 0.25 * error(never_updated)
    assert adaptive_error < 0.5 * error([decision.counts for decision in run(fixed, series)])
