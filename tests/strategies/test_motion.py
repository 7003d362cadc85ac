"""The ways to move that `auto` knows, each on a coefficient that moves so."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

import streamdp.strategies.auto.motion as motion_module
from streamdp.arrays import Floats
from streamdp.histograms.bands import bands_of
from streamdp.strategies.auto.motion import Motion

BANDS = bands_of((16,))
NOISE = 4.0
SPEED = np.full(BANDS.number, 25.0)
GAP = 3


def wandering(generator: np.random.Generator) -> Iterator[Floats]:
    level = np.zeros(16)
    while True:
        level = level + 5 * np.sqrt(GAP) * generator.standard_normal(16)
        yield level


def returning(generator: np.random.Generator) -> Iterator[Floats]:
    mean, around = 1_000 * generator.standard_normal(16), np.zeros(16)
    while True:
        around = 0.2 * around + 6 * generator.standard_normal(16)
        yield mean + around


def heading(generator: np.random.Generator) -> Iterator[Floats]:
    level, velocity = np.zeros(16), 8 * generator.standard_normal(16)
    while True:
        level = level + velocity
        yield level


def turning(generator: np.random.Generator) -> Iterator[Floats]:
    amplitude, mean, begin = 90 * generator.standard_normal(16), 1_000.0, 0
    while True:
        yield mean + amplitude * np.sin(2 * np.pi * begin / 24)
        begin += GAP


def working(generator: np.random.Generator) -> Iterator[Floats]:
    """Five days, and two that are otherwise."""
    amplitude, begin = 90 * generator.standard_normal(16), 0
    while True:
        yield 1_000.0 + amplitude * (begin % 7 > 4)
        begin += GAP


WAYS = {"turning": turning, "working": working, "wandering": wandering, "returning": returning, "heading": heading}


def misses(way: str, seed: int = 1, releases: int = 60) -> float:
    """The mean square of what was not foreseen, once there was something to learn from."""
    generator = np.random.default_rng(seed)
    motion, squares = Motion(BANDS), []
    for number, truth in zip(range(releases), WAYS[way](generator), strict=False):
        noisy = truth[motion.coarse] + 2 * generator.standard_normal(16)
        if number == 0:
            motion.begin(noisy, np.full(BANDS.number, NOISE), SPEED)
            continue
        if number > 10:
            squares.append(np.mean((motion.foreseen(GAP) - truth[motion.coarse]) ** 2))
        motion.correct(noisy, np.full(BANDS.number, NOISE), SPEED, GAP)
    return float(np.mean(squares))


@pytest.mark.parametrize(
    ("way", "most"),
    [("wandering", 1.1), ("returning", 0.75), ("heading", 0.5), ("turning", 0.1), ("working", 0.1)],
)
def test_each_way_is_recognised(way: str, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a filter that knows wandering only."""
    bank = misses(way)
    monkeypatch.setattr(motion_module, "_BEFORE", (1.0, 1e-300, 1e-300, 1e-300))
    assert bank < most * misses(way)


def test_a_working_week_is_no_sine(monkeypatch: pytest.MonkeyPatch) -> None:
    several = misses("working")
    monkeypatch.setattr(motion_module, "_SHARES", motion_module._SHARES * [1, 1e-9, 1e-9])
    assert several < 0.3 * misses("working")


def test_wandering_alone_is_the_filter_of_the_textbook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(motion_module, "_BEFORE", (1.0, 1e-300, 1e-300, 1e-300))
    motion, level, variance = Motion(BANDS), np.zeros(16), NOISE
    motion.begin(level, np.full(BANDS.number, NOISE), SPEED)
    for gap in (1, 4, 2):
        noisy = np.arange(16.0) * gap
        motion.correct(noisy, np.full(BANDS.number, NOISE), SPEED, gap)
        variance += gap * 25.0
        gain = variance / (variance + NOISE)
        level, variance = level + gain * (noisy - level), (1 - gain) * variance
        assert np.allclose(motion.foreseen(7), level, atol=1e-5)
        assert np.allclose(motion.doubt(0, 5), 0, atol=1e-9)
        assert np.allclose(motion.moved(0, 5), 0, atol=1e-9)
        assert np.allclose(motion.slopes(), 0, atol=1e-9)


def test_a_rhythm_faster_than_the_releases_is_not_made_up() -> None:
    """Releases 15 points apart cannot tell a period of 12 from one of 60; they may of 48 and more."""
    motion = Motion(BANDS)
    generator = np.random.default_rng(2)
    motion.begin(np.zeros(16), np.full(BANDS.number, NOISE), SPEED)
    for number in range(1, 40):
        truth = 300 * np.sin(2 * np.pi * 15 * number / 12) + 2 * generator.standard_normal(16)
        motion.correct(truth, np.full(BANDS.number, NOISE), SPEED, 15)
    weights = motion._weights()[motion_module._RHYTHM].sum(axis=1)
    assert not weights[motion_module._PERIODS < 30].any()


def test_what_is_foreseen_moves_on_with_a_trend_and_is_doubted_the_more_the_further_it_is() -> None:
    motion = Motion(BANDS)
    motion.begin(np.zeros(16), np.full(BANDS.number, NOISE), SPEED)
    for number in range(1, 30):
        motion.correct(np.full(16, 20.0 * number), np.full(BANDS.number, NOISE), SPEED, 2)
    assert np.allclose(motion.foreseen(2), 600, atol=10)
    assert np.allclose(np.sqrt(motion.moved(0, 4)), 40, atol=8)
    assert (motion.doubt(20, 40) > motion.doubt(0, 5)).all()
    assert np.allclose(np.sqrt(motion.slopes()), 10, atol=2)


def test_it_goes_on_to_the_bit_after_a_restart_and_leaves_fine_bands_alone() -> None:
    bands = bands_of((64, 64))
    generator = np.random.default_rng(3)
    motion = Motion(bands)
    noise, speeds = np.full(bands.number, NOISE), np.full(bands.number, 1.0)
    assert motion.coarse.size <= 128
    motion.begin(generator.normal(0, 50, motion.coarse.size), noise, speeds)
    for gap in (1, 3, 5):
        motion.correct(generator.normal(0, 50, motion.coarse.size), noise, speeds, gap)
        again = Motion(bands)
        again.resume(json.loads(json.dumps(motion.state())))
        assert np.array_equal(again.foreseen(4), motion.foreseen(4))
        assert np.array_equal(again.doubt(0, 4), motion.doubt(0, 4))
        assert np.array_equal(again._covariances, motion._covariances)
        motion = again
    fine = np.setdiff1d(np.arange(bands.number), bands.band_of(motion.coarse))
    assert fine.size and not motion.doubt(0, 4)[fine].any() and not motion.slopes()[fine].any()
