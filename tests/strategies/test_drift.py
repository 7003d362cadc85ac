"""What `auto` believes of speed."""

from typing import Any

import numpy as np
import pytest

from streamdp.arrays import Floats
from streamdp.histograms.bands import bands_of
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import make_strategy
from streamdp.strategies.auto.drift import Drift
from streamdp.strategies.auto.motion import Motion
from streamdp.strategies.auto.strategy import Auto

BANDS = bands_of((16,))
NOISE = np.full(BANDS.number, 100.0)
ENERGY = float(BANDS.energy.sum())


def believed(*squares: float, power: float = 1e9) -> Drift:
    """After releases ten points apart, with so much news in every coefficient."""
    drift = Drift(BANDS, 100.0, 300, power)
    for square in squares:
        drift.observe(np.full(BANDS.number, square), NOISE, 10, power)
    return drift


def test_speed_is_learnt() -> None:
    for speed in (1e2, 1e4):
        drift = believed(*[100 + 10 * speed] * 8)
        assert np.exp(np.log(drift.bands / speed).mean()) == pytest.approx(1, abs=0.6)
        assert drift.moved == pytest.approx(drift.bands, rel=0.5)


def test_a_silence_may_show_less_than_the_speed() -> None:
    """What moves together may happen to stay: the estimate then holds still, and the speed is not forgotten."""
    fast = believed(*[1e6] * 8)
    calm = believed(*[1e6] * 8, 5e4)
    # Twenty times less was shown; more than half of that is put down to chance.
    assert calm.moved.mean() < fast.moved.mean() / 10
    assert calm.total > fast.total / 8
    assert calm.moved.mean() < calm.bands.mean() / 2
    # That it shows as much more is not to be put down to chance.
    burst = believed(*[1e6] * 8, 2e7)
    assert burst.total / fast.total > 1.5 * fast.total / calm.total


def test_rest_is_not_for_ever_where_there_was_none() -> None:
    """A part of what is planned for is the speed of long ago."""
    drift = believed(*[1e6] * 20, *[100.0] * 3)
    assert drift.total < 1e3
    speeds = drift.scenarios(7)
    assert (speeds > 1e4).sum() >= 2
    assert (believed(*[1e6] * 20, *[100.0] * 60).scenarios(7) > 1e4).sum() <= 1


def test_data_that_grows_may_move_by_more() -> None:
    """The fastest speed that can be believed is not that of the first release, which may have been of nothing."""
    drift = Drift(BANDS, 100.0, 300, 0.0)
    top = float(drift._grid[-1])
    drift.observe(np.full(BANDS.number, 100.0), NOISE, 1, 0.0)
    history = drift._history
    drift.observe(np.full(BANDS.number, 1e8), NOISE, 1, 1e9 * ENERGY)
    assert drift._grid[-1] > 1e7 > top
    assert drift._grid[-1] < 1e8
    assert drift.moved.mean() > 1e6
    assert drift._weights.sum() == pytest.approx(1)
    assert drift._history[: history.size] == pytest.approx(0.9 * history + 0.1 * drift._weights[: history.size])
    size = drift._weights.size
    drift.observe(np.full(BANDS.number, 1e8), NOISE, 1, 1.0)
    assert drift._weights.size == size, "it may grow again"
    drift.jumped()
    again = Drift.from_state(BANDS, drift.state())
    assert again.scenarios(7) == pytest.approx(drift.scenarios(7))
    assert again.bands == pytest.approx(drift.bands)


def test_a_release_is_followed_as_far_as_it_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as far as the data moves otherwise."""
    followed = []

    def recorded(motion: Motion, noisy: Floats, noise: Floats, speeds: Floats, *rest: Any) -> None:
        followed.append(speeds)
        correct(motion, noisy, noise, speeds, *rest)

    correct = Motion.correct
    monkeypatch.setattr(Motion, "correct", recorded)
    strategy = make_strategy("auto", epsilon="1", cells=16, horizon=200, source=InsecureSeededSource(1))
    assert isinstance(strategy, Auto)
    told = 0
    for point in range(1, 100):
        decision = strategy.step(np.full(16, 1000 + 500 * (point % 7 // 5)))
        if decision.reason == "scheduled":
            drift = strategy._estimate.drift
            assert drift is not None
            assert followed[-1] is drift.moved
            told += not np.array_equal(drift.moved, drift.bands)
    assert told > 3


def test_a_service_that_begins_with_nobody_is_followed() -> None:
    strategy = make_strategy("auto", epsilon="1", cells=16, horizon=200, source=InsecureSeededSource(1))
    crowd = 20_000 * np.arange(1, 17)
    for _ in range(60):
        strategy.step(np.zeros(16, np.int64))
    off = []
    for _ in range(139):
        decision = strategy.step(crowd)
        assert decision.counts is not None
        off.append(float(np.abs(decision.counts - crowd).sum() / crowd.sum()))
        if decision.fresh and len(off) > 1:
            assert off[-1] < 0.05
    assert off[-1] < 0.05
