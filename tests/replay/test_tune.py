"""Tuning in hindsight: the search finds what theory says, over parameters and never over noise."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, exp

import numpy as np
import pytest
from replay_samples import close, config, line, write

from streamdp.errors import ConfigurationError
from streamdp.replay.candidates import fitting
from streamdp.replay.compare import compare
from streamdp.replay.play import open_trace
from streamdp.replay.truth import Truth, truths
from streamdp.replay.tune import tune
from streamdp.replay.tune.search import REPORTING, Effort, Search
from streamdp.replay.tune.trials import Trial, Trials, run_trial
from streamdp.strategies import STRATEGIES, Conditions

DSAT_W = 'strategy = "dsat_w"\nparameters = { releases = 2, threshold = 40 }'


def truth_of(counts, shape=None):
    counts = np.asarray(counts, np.int64)
    return Truth(counts, shape or counts.shape[1:], np.zeros(len(counts), bool), 100)


def arguments(kind, truth, epsilon="1", **guarantee):
    both = {"horizon": None, "window": None} | guarantee
    return {
        "kind": kind,
        "epsilon": Fraction(epsilon),
        "cells": truth.cells,
        "shape": truth.shape,
        "sensitivity": 1,
        **both,
    }


def best(truth, common, effort=None, also=None, trials=Trials):
    with trials(truth) as running:
        search = Search(running, common, effort or Effort(choosing=8, reporting=8, seed=1))
        conditions = Conditions(common["epsilon"], truth.shape, common["horizon"], common["window"])
        return search.best(STRATEGIES[common["kind"]].tuning_space(conditions, truth), also)


@pytest.fixture
def path(tmp_path):
    lines = []
    for point in range(1, 25):
        ward = ["north", "south", "east"][point // 4 % 3]
        lines += [line(f"u{i}", 60_000 * (point - 1) + i, ward) for i in range(0, 200, point)] + [close(point)]
    return write(tmp_path / "t", lines)


def run(path, stream, **options):
    with open_trace(path, stream) as trace:
        return tune(stream, trace, **options)


@pytest.mark.parametrize("drift, low, high", [(2, 4, 20), (20, 2, 5)])
def test_fixed_finds_the_interval_that_theory_gives_under_steady_drift(drift, low, high):
    window, points = 64, 640
    truth = truth_of(drift * np.arange(points)[:, None])

    def theory(interval):
        """Of one cell: the mean of |drift so far + Laplace noise| while a release is held."""
        scale = ceil(window / interval)
        held = [drift * age for age in range(interval)]
        return sum(bias + scale * exp(-bias / scale) for bias in held) / interval

    least = min(theory(interval) for interval in range(1, window + 1))
    found = best(truth, arguments("fixed", truth, window=window))
    interval = found.parameters["interval"]
    assert low <= interval <= high
    assert theory(interval) <= 1.05 * least
    # The figures are real errors too, not only an order: theory and measurement agree.
    assert np.mean([outcome.absolute for outcome in found.reporting]) == pytest.approx(theory(interval), rel=0.15)
    assert {outcome.releases for outcome in found.reporting} == {ceil(points / interval)}


def test_data_that_never_changes_is_released_once_and_fast_data_at_every_point():
    still = truth_of(np.full((60, 4), 500))
    assert best(still, arguments("fixed", still, horizon=60)).parameters == {"interval": 60}
    fast = truth_of(np.random.default_rng(1).integers(0, 100_000, (60, 4)))
    assert best(fast, arguments("fixed", fast, horizon=60)).parameters == {"interval": 1}


def test_a_distance_strategy_finds_two_releases_for_one_jump_and_beats_every_interval():
    counts = np.full((200, 8), 1_000)
    counts[113:, :4] += 3_000
    truth = truth_of(counts)
    found = best(truth, arguments("dsft", truth, epsilon="0.2", horizon=200))
    assert np.mean([outcome.releases for outcome in found.reporting]) < 6
    fixed = best(truth, arguments("fixed", truth, epsilon="0.2", horizon=200))
    error, other = (np.mean([outcome.absolute for outcome in one.reporting]) for one in (found, fixed))
    assert error < 0.7 * other


class Recording(Trials):
    seen: list[Trial]

    def run(self, trials, on_done=None):
        trials = list(trials)
        self.__dict__.setdefault("seen", []).extend(trials)
        Recording.last = self
        return super().run(trials, on_done)


def test_parameters_are_chosen_and_reported_on_different_draws():
    truth = truth_of(np.random.default_rng(1).integers(0, 100, (30, 4)))
    best(truth, arguments("fixed", truth, window=10), Effort(choosing=5, reporting=7, seed=4), trials=Recording)
    draws = {trial.draw for trial in Recording.last.seen}
    assert {draw for draw in draws if draw < REPORTING} == set(range(5))
    assert {draw for draw in draws if draw >= REPORTING} == set(range(REPORTING, REPORTING + 7))
    reported = [trial for trial in Recording.last.seen if trial.draw >= REPORTING]
    assert len({str(trial.arguments) for trial in reported}) == 1


def test_the_winner_is_never_behind_the_defaults_on_the_draws_that_chose(path):
    settings = config(strategy=DSAT_W)
    tuning = run(path, settings, runs=4, seed=2)
    assert {tuned.strategy for tuned in tuning.standings} == set(fitting(settings))
    searched = [tuned for tuned in tuning.standings if tuned.chosen is not None]
    assert {tuned.strategy for tuned in searched} == {"fixed", "dsat_w"}
    for tuned in searched:
        assert tuned.chosen <= tuned.default_chosen
        assert tuned.tried > 1
    # Some wards empty and fill between any two points four apart, so the configured threshold can be beaten.
    assert any(tuned.chosen < tuned.default_chosen for tuned in searched)


def test_ratios_are_to_the_best_strategy(path):
    tuning = run(path, config(privacy='epsilon = "0.5"\nhorizon = 24'), runs=3, seed=2)
    first, *others = tuning.of("wards")
    assert first.ratio == 1
    for tuned in others:
        assert tuned.ratio == pytest.approx(tuned.absolute / first.absolute)
        assert tuned.default_ratio == pytest.approx(tuned.default_absolute / first.absolute)
    assert {"auto", "dsft", "dsat", "fixed", "baseline"} == {tuned.strategy for tuned in tuning.standings}
    assert tuning.time_points == 24


def test_a_trial_measures_what_compare_measures(path):
    settings = config(strategy=DSAT_W)
    with open_trace(path, settings) as trace:
        comparison = compare(settings, trace, strategies=["ba"], runs=2, seed=3, queries=50)
    with open_trace(path, settings) as trace:
        (truth,) = truths(settings, trace, queries=50).values()
    common = arguments("ba", truth, window=4)
    errors = [run_trial(truth, Trial(common, 3, draw)).absolute for draw in range(2)]
    assert comparison.standings[0].absolute == pytest.approx(np.mean(errors))


def test_missed_points_are_skipped():
    counts = np.full((6, 4), 100)
    truth = Truth(counts, (4,), np.array([True, True, False, False, True, False]), 10)
    assert run_trial(truth, Trial(arguments("baseline", truth, horizon=6), 1, 0)).releases == 3


def test_a_run_of_missed_points_is_skipped_at_once():
    truth = Truth(np.full((3, 4), 100), (4,), np.array([0, 25_919_999, 0]), 10)
    # At the last point of the horizon dsft spends what is left.
    trial = Trial(arguments("dsft", truth, horizon=25_920_001, parameters={"releases": 3, "threshold": 1_000}), 1, 0)
    assert run_trial(truth, trial).releases == 2


def test_processes_find_what_one_finds(path):
    settings = config(strategy=DSAT_W)
    parts: list[float] = []
    one = run(path, settings, strategies=["fixed", "bd"], runs=2, seed=5)
    two = run(
        path,
        settings,
        strategies=["fixed", "bd"],
        runs=2,
        seed=5,
        processes=2,
        on_trial=lambda trying: parts.append(trying.part),
    )
    assert one.to_json() == two.to_json()
    assert parts == sorted(parts)
    assert parts[0] > 0 and 0.5 < parts[-1] <= 1


def test_a_strategy_that_does_not_fit_is_refused_before_the_trace_is_read(path):
    points: list[int] = []
    with pytest.raises(ConfigurationError, match="does not go with"):
        run(path, config(strategy=DSAT_W), strategies=["dsat"], on_point=points.append)
    assert not points
