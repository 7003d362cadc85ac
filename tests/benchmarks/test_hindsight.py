"""benchmarks/hindsight.py: the bound, and the traces it is measured on."""

import sys
from math import e
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # after what is installed: one of them is called kafka

from hindsight import USERS, least_with_averages, quiet_error, trace


def test_the_only_release_takes_what_the_ratio_lets_it() -> None:
    assert quiet_error(2.0, 1.0, np.empty(0)) == pytest.approx(2.0)
    assert quiet_error(4.0, 1.0, np.empty(0)) == pytest.approx(4 / 3)


def test_a_second_release_is_averaged_with_the_first() -> None:
    # Half of epsilon at first, a quarter half-way: 2, and then 1 over the root of 1/4 + 1/16.
    assert quiet_error(2.0, 1.0, np.array([0.5])) == pytest.approx((2 + (5 / 16) ** -0.5) / 2)


def test_averages_promise_less_than_anything_could() -> None:
    assert e / (e - 1) < least_with_averages(1.0) == pytest.approx(1.933, abs=0.003)


def test_a_trace_is_quiet_until_it_jumps() -> None:
    truth = trace(100, 50, 5)
    moved = np.abs(np.diff(truth.counts, axis=0)).sum(axis=1)
    assert list(np.flatnonzero(moved > USERS / 5) + 1) == [50, 60, 70, 80, 90]
    assert moved[:49].max() <= 2
    assert (truth.counts.sum(axis=1) >= USERS).all()
