"""Budget Distribution and Budget Absorption: the budgets of Kellaris et al. by hand."""

from fractions import Fraction

import numpy as np
import pytest

from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import Decision, StreamStrategy, make_strategy

HERE = np.array([100, 100, 100, 100], dtype=np.int64)
FAR = np.array([10**8, 100, 100, 100], dtype=np.int64)
EPSILON = Fraction(2)


def bd(window: int) -> StreamStrategy:
    return make_strategy("bd", epsilon=EPSILON, cells=4, window=window, source=InsecureSeededSource(3))


def ba(window: int) -> StreamStrategy:
    return make_strategy("ba", epsilon=EPSILON, cells=4, window=window, source=InsecureSeededSource(3))


def released(decisions: list[Decision]) -> list[tuple[int, Fraction]]:
    return [(decision.time_point, decision.epsilon) for decision in decisions if decision.fresh]


def test_bd_gives_each_release_half_of_what_its_window_has_left() -> None:
    strategy = bd(window=3)
    decisions = [strategy.step(counts) for counts in (HERE, FAR, HERE, FAR, HERE)]
    # Left before each: 1, 1/2, 1/4, then 1 - (1/4 + 1/8) = 5/8, and 1 - (1/8 + 5/16) = 9/16.
    assert released(decisions) == [
        (1, Fraction(1, 2)),
        (2, Fraction(1, 4)),
        (3, Fraction(1, 8)),
        (4, Fraction(5, 16)),
        (5, Fraction(9, 32)),
    ]


def test_bd_repeats_while_the_distance_is_below_the_error_of_a_release() -> None:
    strategy = bd(window=4)
    first = strategy.step(HERE)
    assert first.counts is not None
    exact = first.counts.copy()
    decisions = [strategy.step(exact) for _ in range(3)]
    # A release would get 1/4 and carry 4 cells * 4: "exceeds 16" is "at least 17".
    assert {decision.reason for decision in decisions} == {"below"}
    assert {decision.threshold for decision in decisions} == {17}
    assert {decision.costs[0] for decision in decisions} == {(Fraction(1, 4), "dissimilarity")}


def test_bd_stops_when_the_window_has_next_to_nothing_left_and_its_rationals_stay_small() -> None:
    strategy = bd(window=60)
    decisions = [strategy.step(FAR if point % 2 else HERE) for point in range(200)]
    assert decisions[30].reason == "cut_off"
    assert decisions[30].costs == ()
    assert {decision.epsilon.denominator <= 2**20 for decision in decisions} == {True}
    assert any(decision.fresh for decision in decisions[60:])


def test_ba_absorbs_unused_shares_and_nullifies_as_many_points() -> None:
    strategy = ba(window=10)
    first = strategy.step(HERE)
    share = EPSILON / 20
    decisions = [first, *(strategy.skip() for _ in range(3)), *(strategy.step(FAR) for _ in range(4))]
    # Point 5 takes its own share and those of 2, 3 and 4, so 6, 7 and 8 are nullified.
    assert released(decisions) == [(1, share), (5, 4 * share)]
    assert [decision.reason for decision in decisions[5:]] == ["nullified"] * 3
    assert [decision.costs for decision in decisions[5:]] == [()] * 3
    assert released([strategy.step(HERE)]) == [(9, share)]


def test_ba_absorbs_at_most_a_windows_shares() -> None:
    strategy = ba(window=4)
    for _ in range(20):
        strategy.skip()
    first = strategy.step(HERE)
    assert (first.reason, first.epsilon) == ("first", EPSILON / 2)
    assert [strategy.step(FAR).reason for _ in range(4)] == ["nullified", "nullified", "nullified", "above"]


@pytest.mark.parametrize("kind", ["bd", "ba"])
def test_both_are_for_windows_only(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="window"):
        make_strategy(kind, epsilon=1, cells=4, horizon=5)
