"""The plan: its figures against what the strategies and the noise really do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from streamdp.config import parse
from streamdp.config.plan import expected_error, expected_sum_error, plan
from streamdp.config.report import as_json, as_text, duration_words, promise
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace

HEAD = """
[stream]
name = "s"
[domain.age]
type = "integer"
low = 0
high = 9
[time]
length = "1m"
[input]
topics = ["in"]
[[histogram]]
name = "h"
attributes = ["age"]
share = "0.8"
"""
DISTANCE = '[histogram.parameters]\nthreshold = 1\ndecision_ratio = "1/4"\nreleases = {}\n'
WINDOW = '[privacy]\nepsilon = "1"\nwindow = 24\n'
HORIZON = '[privacy]\nepsilon = "1"\nhorizon = 24\nrecords_per_user = 3\n'
CONFIGURATIONS = {
    "baseline": 'strategy = "baseline"\n' + WINDOW,
    "fixed": 'strategy = "fixed"\nparameters = { interval = 5 }\n' + WINDOW,
    "dsat_w": 'strategy = "dsat_w"\n' + DISTANCE.format(4) + WINDOW,
    "dsat_w one release": 'strategy = "dsat_w"\n' + DISTANCE.format(1) + WINDOW,
    "bd": 'strategy = "bd"\n' + WINDOW,
    "bd short": 'strategy = "bd"\n' + WINDOW.replace("24", "4"),
    "ba": 'strategy = "ba"\n' + WINDOW,
    "dsft": 'strategy = "dsft"\n' + DISTANCE.format(4) + HORIZON.replace("records_per_user = 3\n", ""),
    "dsft one release": 'strategy = "dsft"\n' + DISTANCE.format(1) + HORIZON.replace("records_per_user = 3\n", ""),
    "dsat": 'strategy = "dsat"\n' + DISTANCE.format(4) + HORIZON.replace("records_per_user = 3\n", ""),
}


def configured(name):
    return parse(HEAD + CONFIGURATIONS[name])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_what_is_planned_is_what_a_stream_that_always_changes_spends(name):
    config = configured(name)
    planned = plan(config).histograms[0]
    view = config.build_views()[0]
    strategy = config.build_strategy(config.histogram[0], view, InsecureSeededSource(7))
    far = 10**9
    charges = []
    for point in range(plan(config).span):
        decision = strategy.step(np.full(view.cells, far * (point % 2), dtype=np.int64))
        charges += [cost.epsilon for cost in decision.costs if cost.purpose == "release"]
    assert len(charges) == (planned.outline.releases if planned.strategy != "ba" else len(charges))
    assert len(charges) <= planned.outline.releases
    assert min(charges) == planned.worst.epsilon
    assert max(charges) <= planned.best.epsilon
    if planned.strategy != "ba":
        assert max(charges) == planned.best.epsilon
    assert planned.outline.decisions + sum(charges) <= planned.epsilon


def test_a_quiet_window_gives_absorption_its_best():
    config = configured("ba")
    view = config.build_views()[0]
    strategy = config.build_strategy(config.histogram[0], view, InsecureSeededSource(7))
    strategy.step(np.zeros(view.cells, dtype=np.int64))
    for _ in range(config.window):
        strategy.skip()
    assert strategy.step(np.full(view.cells, 10**9)).epsilon == plan(config).histograms[0].best.epsilon


def test_scale_grows_with_the_records_of_a_user():
    text = HEAD.replace("topics", 'record_id = "r"\ntopics') + 'strategy = "baseline"\n' + HORIZON
    planned = plan(parse(text)).histograms[0]
    assert planned.best.epsilon == Fraction(8, 10) / 24
    assert planned.best.scale == 3 / planned.best.epsilon


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5), Fraction(22)])
def test_expected_errors_are_those_of_the_noise(scale):
    draws = np.abs(discrete_laplace(scale, 400_000, InsecureSeededSource(3)))
    # Six standard errors; the standard deviation of |X| is at most that of X.
    assert expected_error(scale) == pytest.approx(draws.mean(), abs=6 * draws.std() / sqrt(draws.size))
    sums = np.abs(discrete_laplace(scale, 400_000, InsecureSeededSource(4)).reshape(-1, 40).sum(axis=1))
    assert expected_sum_error(scale, 40) == pytest.approx(sums.mean(), rel=0.05)


def test_a_huge_epsilon_means_no_error():
    assert expected_error(Fraction(1, 10**6)) == 0
    assert expected_sum_error(Fraction(1, 10**6), 10) == 0


def test_jobs_get_what_the_histograms_leave():
    assert plan(configured("bd")).epsilon_left == Fraction(1, 5)
    assert "epsilon 0.2 in every window of 24 points (20 % of the whole)" in as_text(plan(configured("bd")))
    whole = parse(HEAD.replace('share = "0.8"\n', "") + CONFIGURATIONS["bd"])
    assert "Nothing: the histograms take all of epsilon" in as_text(plan(whole))


def unwrapped(config):
    return " ".join(as_text(plan(config)).split())


def test_w_event_says_what_it_hides_and_what_not():
    text = unwrapped(configured("bd"))
    assert "what was true of a user during up to 24 consecutive time points (24 minutes)" in text
    assert "does not hide lasting facts, nor that somebody is a member" in text
    assert "ceil(L / 24) * 1" in text
    assert "k keys gets k times the epsilon" in text
    assert "NO GUARANTEE" not in text


def test_a_message_that_expires_has_an_epsilon_of_its_own():
    expiring = parse(HEAD.replace('"1m"', '"1m"\nexpire_after = 49') + CONFIGURATIONS["bd"])
    assert "a single message is protected at epsilon = 3." in unwrapped(expiring)


@pytest.mark.parametrize(("length", "wait"), [("1m", "15 seconds"), ("1d", "30 seconds"), ("1s", "250 milliseconds")])
def test_a_release_leaves_at_a_public_moment(length, wait):
    config = parse(HEAD.replace('"1m"', f'"{length}"') + CONFIGURATIONS["bd"])
    assert f"A release leaves {wait} after its point closes, whatever there was to read" in unwrapped(config)
    at_once = parse(HEAD.replace('"1m"', f'"{length}"\npublish_after = 0') + CONFIGURATIONS["bd"])
    assert "The moment a release leaves is outside the guarantee" in unwrapped(at_once)


def test_a_horizon_covers_lasting_facts_and_ends():
    text = unwrapped(configured("dsft"))
    assert "the whole series of 24 time points (24 minutes) is protected at epsilon = 1, lasting facts" in text
    assert "After point 24 nothing more is released" in text
    assert "w-event" not in text


def test_the_promise_names_the_unit_the_epsilon_and_the_span():
    assert promise(configured("bd")) == (
        "One user (one key of the input) is protected at epsilon = 1 over any 24 consecutive time points (24 minutes),"
        " for ever. This does not hide lasting facts or membership."
    )
    assert promise(configured("dsft")) == (
        "One user (one key of the input) is protected at epsilon = 1 over all 24 time points (24 minutes) together."
        " This covers lasting facts and membership."
    )


def test_an_event_clock_has_no_guarantee():
    config = parse(HEAD.replace('"1m"', '"1m"\nclock = "event"') + CONFIGURATIONS["bd"])
    assert "NO GUARANTEE" in unwrapped(config)
    assert "for replay" in unwrapped(config)
    assert as_json(plan(config))["guarantee"] == "none"
    assert as_json(plan(configured("bd")))["guarantee"] == "w-event"
    assert as_json(plan(configured("dsat")))["guarantee"] == "finite horizon"


def test_no_noise_is_guessed_for_a_method_that_is_not_laplace():
    planned = plan(configured("bd"))
    other = replace(planned, histograms=(replace(planned.histograms[0], method="psd"),))
    assert "The noise of a release is that of the method psd" in " ".join(as_text(other).split())
    assert set(as_json(other)["histograms"][0]["best_release"]) == {"epsilon"}


def test_durations_in_words():
    assert duration_words(6_000_000) == "1 hour 40 minutes"
    assert duration_words(86_400_000) == "1 day"
    assert duration_words(1) == "1 millisecond"
