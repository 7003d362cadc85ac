"""Baseline and fixed sampling: when they release, and what each release costs."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import make_strategy

COUNTS = np.array([3, 4], dtype=np.int64)


@pytest.mark.parametrize("guarantee", [{"horizon": 4}, {"window": 4}])
def test_baseline_releases_every_point_with_an_equal_share(guarantee: dict[str, int]) -> None:
    strategy = make_strategy("baseline", epsilon="1/2", cells=2, source=InsecureSeededSource(1), **guarantee)  # type: ignore[arg-type]
    decisions = [strategy.step(COUNTS) for _ in range(4)]
    assert [decision.epsilon for decision in decisions] == [Fraction(1, 8)] * 4
    assert {decision.reason for decision in decisions} == {"scheduled"}


def test_fixed_releases_every_third_point_and_repeats_in_between() -> None:
    strategy = make_strategy(
        "fixed", epsilon=1, cells=2, horizon=10, parameters={"interval": 3}, source=InsecureSeededSource(1)
    )
    decisions = [strategy.step(COUNTS) for _ in range(10)]
    assert [decision.time_point for decision in decisions if decision.fresh] == [1, 4, 7, 10]
    assert {decision.epsilon for decision in decisions if decision.fresh} == {Fraction(1, 4)}
    for earlier, later in pairwise(decisions):
        assert later.fresh or later.counts is earlier.counts


def test_fixed_moves_its_schedule_when_a_release_is_missed() -> None:
    strategy = make_strategy(
        "fixed", epsilon=1, cells=2, window=6, parameters={"interval": 3}, source=InsecureSeededSource(1)
    )
    skipped = {1, 5, 8}
    decisions = [strategy.skip() if point in skipped else strategy.step(COUNTS) for point in range(1, 13)]
    assert decisions[0].counts is None
    assert [decision.time_point for decision in decisions if decision.fresh] == [2, 6, 9, 12]


def test_an_interval_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="interval"):
        make_strategy("fixed", epsilon=1, cells=2, horizon=10, parameters={"interval": 0})
