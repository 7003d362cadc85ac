"""The traces of benchmarks/strategies_random.py, and what is measured on them."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # after what is installed: one of them is called kafka

from strategies_random import Draw, Setting, measure


def test_a_number_is_a_trace():
    drawn = [Draw(number) for number in range(40)]
    assert {feature for draw in drawn for feature in draw.features} == {"wander", "rhythm", "jumps", "trend", "days"}
    assert len({draw.shape for draw in drawn}) > 5
    for draw in drawn[:8]:
        counts = draw.truth.counts
        assert counts.shape == (draw.points, np.prod(draw.shape))
        assert counts.min() >= 0 and counts.sum(axis=1).max() < 1.5 * draw.users
        assert np.abs(np.diff(counts, axis=0)).sum() > 0
    assert np.array_equal(Draw(3).truth.counts, Draw(3).truth.counts)
    assert not np.array_equal(Draw(3).truth.counts[:100, :8], Draw(4).truth.counts[:100, :8])


def test_auto_is_measured_against_the_best_fixed():
    ratio, interval, about = measure((0, Setting(20, "1"), 1))
    assert 0.3 < ratio < 3
    assert 1 <= interval <= 20
    assert "users" in about
