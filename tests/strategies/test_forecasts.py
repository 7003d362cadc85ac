"""What `auto` publishes between releases: what earlier ones let expect, for nothing."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streamdp.strategies.auto.estimate as estimate_module
import streamdp.strategies.base as base_module
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import Auto, Decision, make_strategy, restore_strategy

SHAPE = (8, 8)
POINTS = 240
SETTINGS: dict[str, Any] = {"epsilon": 1, "cells": 64, "shape": SHAPE, "horizon": POINTS}


def tides(points: int = POINTS) -> list[np.ndarray]:
    """Some of 8,000 people are on one side by day and on the other by night."""
    across = np.repeat(np.linspace(-1, 1, 8), 8)
    return [np.rint(125 * (1 + 0.6 * across * np.sin(2 * np.pi * at / 24))).astype(np.int64) for at in range(points)]


def build(seed: int = 1, **settings: Any) -> Auto:
    strategy = make_strategy("auto", source=InsecureSeededSource(seed), **(SETTINGS | settings))
    assert isinstance(strategy, Auto)
    return strategy


def off_by(decisions: list[Decision], series: list[np.ndarray]) -> float:
    """Of the sums over columns, from the third day on."""
    off = [
        np.abs((decision.counts - counts).reshape(SHAPE).sum(axis=1)).mean()  # type: ignore[operator]
        for decision, counts in zip(decisions, series, strict=True)
    ]
    return float(np.mean(off[72:]))


def test_a_forecast_costs_nothing_and_is_told_apart() -> None:
    strategy = build()
    decisions = [strategy.step(counts) for counts in tides()]
    forecasts = [decision for decision in decisions if decision.kind == "forecast"]
    assert len(forecasts) > 30
    for decision in forecasts:
        assert not decision.fresh and not decision.epsilon and decision.scale is None
        assert all(charge.purpose == "decisions" for charge in decision.costs)
        assert decision.reason in ("waiting", "below", "cut_off") and decision.variance is not None
    assert sum(charge.epsilon for decision in decisions for charge in decision.costs) <= 1


def test_it_is_nearer_to_the_truth_than_what_was_released_last(monkeypatch: pytest.MonkeyPatch) -> None:
    series = tides()
    foreseeing = [build(seed) for seed in range(3)]
    moved = np.mean([off_by([strategy.step(counts) for counts in series], series) for strategy in foreseeing])
    monkeypatch.setattr(estimate_module, "_NOTABLE", np.inf)
    holding = [build(seed) for seed in range(3)]
    held = np.mean([off_by([strategy.step(counts) for counts in series], series) for strategy in holding])
    assert moved < 0.7 * held


def test_where_nothing_moves_there_is_no_forecast() -> None:
    strategy = build()
    decisions = [strategy.step(np.full(64, 300)) for _ in range(POINTS)]
    assert sum(decision.kind == "forecast" for decision in decisions) < 5


def test_it_depends_on_released_data_alone() -> None:
    """At points without a release, and without a watch, the data may be anything: nobody looks at it."""
    strategy, blind = build(), build()
    for counts in tides():
        decision = strategy.step(counts)
        other = blind.step(counts if decision.fresh else np.full(64, 10**6))
        assert not blind._watch.sees
        assert np.array_equal(decision.counts, other.counts)  # type: ignore[arg-type]
        assert (decision.kind, decision.reason) == (other.kind, other.reason)


@pytest.mark.parametrize("post", [(), ("consistent_total",)])
@pytest.mark.parametrize("span", [{}, {"horizon": None, "window": 60}])
def test_a_restart_changes_nothing_of_it(span: dict[str, Any], post: tuple[str, ...]) -> None:
    sources = [InsecureSeededSource(3), InsecureSeededSource(3)]
    arguments = SETTINGS | span | {"post": post}
    whole, parted = (make_strategy("auto", source=source, **arguments) for source in sources)
    stood = 0
    for counts in tides(150):
        one, other = whole.step(counts), parted.step(counts)
        assert (one.kind, one.reason) == (other.kind, other.reason)
        assert np.array_equal(one.counts, other.counts)  # type: ignore[arg-type]
        text = json.dumps(parted.state())
        parted = restore_strategy("auto", state=json.loads(text), last=parted.released, source=sources[1], **arguments)
        assert json.dumps(parted.state()) == text
        assert parted.forecast_at == whole.forecast_at
        stood += parted.forecast_at is not None
    assert stood > 20


def test_a_release_takes_its_place() -> None:
    strategy = build()
    for counts in tides():
        decision = strategy.step(counts)
        if decision.fresh:
            assert strategy.forecast_at is None and strategy.last is strategy.released is decision.counts
        elif decision.kind == "forecast":
            assert strategy.forecast_at == decision.time_point and strategy.last is decision.counts


def test_it_is_made_from_the_release_and_leaves_what_is_known_of_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the forecast before: what rounding and cutting take from one would be missing in all that follow."""
    corrected, processed = [], []
    correct, process = estimate_module.Estimate.correct, base_module.post_process

    def recorded(estimate: Any, released: np.ndarray, *rest: Any, **more: Any) -> Any:
        corrected.append(released)
        return correct(estimate, released, *rest, **more)

    def counted(counts: np.ndarray, options: Any) -> np.ndarray:
        processed.append(options)
        return process(counts, options)

    monkeypatch.setattr(estimate_module.Estimate, "correct", recorded)
    monkeypatch.setattr(base_module, "post_process", counted)
    # So many cells that not all coefficients have models of motion.
    strategy = build(post=("nonnegative",), cells=256, shape=(16, 16))
    published, left = 0, None
    for counts in tides():
        released = strategy.released
        decision = strategy.step(np.kron(counts.reshape(SHAPE), np.ones((2, 2), np.int64)).reshape(-1))
        if decision.fresh:
            assert released is None or corrected[-1] is released
            left = strategy._estimate.left.copy()
        if decision.kind == "forecast":
            forecasts = strategy._estimate.forecast(strategy.released, strategy._age)  # type: ignore[arg-type]
            assert np.array_equal(decision.counts, forecasts)  # type: ignore[arg-type]
            assert np.array_equal(strategy._estimate.left, left)  # type: ignore[arg-type]
        published += decision.kind != "repeat"
    assert processed == [("nonnegative",)] * published


def test_models_that_differ_make_it_less_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = build()
    known = strategy.step(tides()[0]).variance
    bands = strategy._bands.number
    monkeypatch.setattr(strategy._estimate.motion, "doubt", lambda begin, end: np.full(bands, 1e6))
    doubted = strategy._estimate.variance(0)
    assert known is not None
    selection = [slice(0, 3), slice(0, 8)]
    assert doubted.standard_error(selection, 0) > known.standard_error(selection, 0) + 1_000


def test_a_point_that_nobody_asked_foresees_nothing() -> None:
    strategy = build()
    for counts in tides(120):
        strategy.step(counts)
    decisions = [strategy.skip() for _ in range(12)]
    assert not any(decision.kind == "forecast" for decision in decisions)
    assert "forecast" in (strategy.step(tides()[132]).kind, strategy.step(tides()[133]).kind)


def test_the_older_the_release_the_less_is_known() -> None:
    strategy = build()
    selection = [slice(0, 3), slice(0, 8)]
    released, grown = 0.0, 0
    for counts in tides():
        decision = strategy.step(counts)
        if decision.variance is None:
            continue
        error = decision.variance.standard_error(selection, 0)
        if decision.fresh:
            released = error
        else:
            assert error > released
            grown += 1
    assert grown > 30


def test_the_price_of_a_watch_may_stand_beside_it() -> None:
    """Among many there is a watch, and its question at such a point is about the forecast for it."""
    strategy = build(horizon=None, window=100)
    decisions = [strategy.step(1_000 * counts) for counts in tides()]
    asked = [decision for decision in decisions if decision.kind == "forecast" and decision.reason == "below"]
    assert asked
    assert all(decision.epsilon == Fraction(0) for decision in asked)
