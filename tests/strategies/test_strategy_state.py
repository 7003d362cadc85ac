import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategy_settings import SETTINGS, arguments, walk

from streamdp.errors import StreamdpError
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import Decision, StreamStrategy, make_strategy, restore_strategy

PRINTED = {
    f"{kind}-printed": (
        kind,
        {
            **({"window": 6} if kind == "dsat_w" else {"horizon": 20}),
            "parameters": {
                "releases": 3,
                "threshold_fraction": "1/5",
                "expected_users": 300,
                "calibration": "published",
            },
        },
    )
    for kind in ("dsft", "dsat", "dsat_w")
}
ALL = SETTINGS | PRINTED


@pytest.fixture(autouse=True)
def _with_printed_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, setting in PRINTED.items():
        monkeypatch.setitem(SETTINGS, name, setting)


def advance(strategy: StreamStrategy, point: int, counts: np.ndarray) -> Decision:
    return strategy.skip() if point in (4, 5, 13) else strategy.step(counts)


def same(one: Decision, other: Decision) -> bool:
    scalars = ("time_point", "fresh", "epsilon", "threshold", "scale", "reason", "costs")
    return all(getattr(one, name) == getattr(other, name) for name in scalars) and np.array_equal(
        one.counts, other.counts
    )


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("seed", [1, 2])
def test_a_strategy_restored_at_every_point_goes_on_as_if_nothing_happened(name: str, seed: int) -> None:
    series = walk(seed, 20)
    straight = make_strategy(**arguments(name), source=InsecureSeededSource(seed))
    expected = [advance(straight, point, counts) for point, counts in enumerate(series, start=1)]

    source = InsecureSeededSource(seed)
    strategy = make_strategy(**arguments(name), source=source)
    for point, counts in enumerate(series, start=1):
        text = json.dumps(strategy.state(), allow_nan=False)
        strategy = restore_strategy(**arguments(name), state=json.loads(text), last=strategy.released, source=source)
        assert json.dumps(strategy.state()) == text
        assert same(advance(strategy, point, counts), expected[point - 1])


def test_the_runs_above_released_and_repeated() -> None:
    for name in ALL:
        strategy = make_strategy(**arguments(name), source=InsecureSeededSource(1))
        reasons = {advance(strategy, i, counts).reason for i, counts in enumerate(walk(1, 20), start=1)}
        assert "skipped" in reasons
        if name.startswith(("ds", "b")) and not name.startswith("baseline"):
            assert len(reasons) >= 3, name


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_state_is_small_and_does_not_hold_the_released_counts(name: str) -> None:
    strategy = make_strategy(**(arguments(name) | {"cells": 30_000}), source=InsecureSeededSource(1))
    released = [strategy.step(np.full(30_000, 300, dtype=np.int64)).fresh for _ in range(5)]
    assert any(released)
    # The counts alone would be 150,000. What auto keeps is some numbers for each of at most 128 coefficients.
    assert len(json.dumps(strategy.state())) < (100_000 if strategy.kind == "auto" else 8_000)


def test_another_configuration_does_not_take_the_state_over() -> None:
    strategy = make_strategy(**arguments("dsft"), source=InsecureSeededSource(1))
    strategy.step(walk(1, 1)[0])
    with pytest.raises(StreamdpError, match="configured otherwise"):
        restore_strategy(**(arguments("dsft") | {"epsilon": 2}), state=strategy.state(), last=strategy.released)
    with pytest.raises(StreamdpError, match="no state of a strategy dsat in format 1; it is one of dsft in format 1"):
        restore_strategy(**arguments("dsat"), state=strategy.state(), last=strategy.released)
    with pytest.raises(StreamdpError, match="last released counts"):
        restore_strategy(**arguments("dsft"), state=strategy.state(), last=None)


def test_a_state_in_an_earlier_format_is_refused_with_its_reason() -> None:
    strategy = make_strategy(**arguments("auto"), source=InsecureSeededSource(1))
    strategy.step(walk(1, 1)[0])
    with pytest.raises(StreamdpError, match="auto in format 6; it is one of auto in format 5, for the streamdp that"):
        restore_strategy(**arguments("auto"), state=strategy.state() | {"version": 5}, last=strategy.released)


def test_released_counts_cannot_be_changed_afterwards() -> None:
    strategy = make_strategy(**arguments("baseline"), source=InsecureSeededSource(1))
    counts = strategy.step(walk(1, 1)[0]).counts
    assert counts is not None
    with pytest.raises(ValueError, match="read-only"):
        counts[0] = 0


def after(name: str, runs: list[int], begin: int, series: list[np.ndarray]) -> tuple[str, list[Decision]]:
    """The state after some points and a run of skipped ones, in those pieces, and all that is decided after it."""
    strategy = make_strategy(**arguments(name), source=InsecureSeededSource(7))
    for counts in series[:begin]:
        strategy.step(counts)
    for points in runs:
        decision = strategy.skip(points)
        assert (decision.time_point, decision.reason, decision.costs) == (strategy.time_point, "skipped", ())
        assert decision.kind == "repeat"
    return json.dumps(strategy.state()), [strategy.step(counts) for counts in series[begin + sum(runs) :]]


@settings(max_examples=20, deadline=None)
@given(name=st.sampled_from(sorted(ALL)), begin=st.integers(0, 8), run=st.integers(1, 10), data=st.data())
def test_a_run_is_skipped_as_its_points_are_one_by_one_and_in_any_pieces(
    name: str, begin: int, run: int, data: st.DataObject
) -> None:
    series = walk(begin, 20)
    first = data.draw(st.integers(1, run))
    state, decided = after(name, [run], begin, series)
    for pieces in ([1] * run, [first, run - first] if run > first else [first]):
        other, later = after(name, pieces, begin, series)
        assert other == state
        assert all(map(same, decided, later)) and len(decided) == len(later)


@pytest.mark.parametrize("name", sorted(name for name, (_, given) in ALL.items() if "window" in given))
def test_thirty_days_are_skipped_at_once_and_the_strategy_goes_on(name: str) -> None:
    month = 25_920_000
    strategy = make_strategy(**arguments(name), source=InsecureSeededSource(1))
    series = walk(1, 20)
    for counts in series[:10]:
        strategy.step(counts)
    size = len(json.dumps(strategy.state()))
    assert strategy.skip(month).time_point == month + 10
    assert len(json.dumps(strategy.state())) < size + 40
    assert sum(strategy.step(counts).fresh for counts in series[10:])


@pytest.mark.parametrize("name", sorted(name for name, (_, given) in ALL.items() if "horizon" in given))
def test_a_run_ends_with_the_horizon_at_the_latest(name: str) -> None:
    strategy = make_strategy(**arguments(name), source=InsecureSeededSource(1))
    strategy.step(walk(1, 1)[0])
    before = json.dumps(strategy.state())
    with pytest.raises(StreamdpError, match="over"):
        strategy.skip(20)
    with pytest.raises(StreamdpError, match="points must be at least 1"):
        strategy.skip(0)
    assert json.dumps(strategy.state()) == before
    assert strategy.skip(19).time_point == 20
    assert strategy.ended


def test_the_horizon_ends() -> None:
    strategy = make_strategy(**(arguments("baseline") | {"horizon": 2}), source=InsecureSeededSource(1))
    series = walk(1, 3)
    strategy.step(series[0])
    assert not strategy.ended
    strategy.skip()
    assert strategy.ended
    with pytest.raises(StreamdpError, match="over"):
        strategy.step(series[2])
    with pytest.raises(StreamdpError, match="over"):
        strategy.skip()


def test_counts_of_the_wrong_kind_are_refused_before_time_moves() -> None:
    strategy = make_strategy(**arguments("baseline"), source=InsecureSeededSource(1))
    for wrong in (np.zeros(5, dtype=np.int64), np.zeros(6), np.zeros((2, 3), dtype=np.int64)):
        with pytest.raises(ValueError, match="flat array of integers"):
            strategy.step(wrong)
    assert strategy.time_point == 0
