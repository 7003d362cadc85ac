"""No run of a strategy spends more than it reserved: over the horizon, or in any window."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategy_settings import CELLS, SETTINGS, arguments, walk

from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import Decision, make_strategy

EPSILON = Fraction(3, 2)
seeds = st.integers(0, 2**32)
skips = st.lists(st.booleans(), min_size=20, max_size=20)


def spent_in(decisions: list[Decision], first: int, last: int) -> Fraction:
    """What the audit trail holds between two points."""
    costs = [charge for decision in decisions if first <= decision.time_point <= last for charge in decision.costs]
    return sum((charge.epsilon for charge in costs), Fraction(0))


def max_spent(decisions: list[Decision], window: int | None) -> Fraction:
    last = decisions[-1].time_point
    length = window or last
    return max(spent_in(decisions, first, first + length - 1) for first in range(1, last + 1))


def stretches(decisions: list[Decision]) -> list[tuple[int, int, Fraction]]:
    """First and last question of every sparse vector, and its charge."""
    found: list[tuple[int, int, Fraction]] = []
    for decision in decisions:
        for charge in decision.costs:
            if charge.purpose == "decisions":
                found.append((decision.time_point, decision.time_point, charge.epsilon))
        if decision.reason in ("above", "below") and found:
            first, _, epsilon = found[-1]
            found[-1] = (first, decision.time_point, epsilon)
    return found


def cost_of_window(decisions: list[Decision], first: int, last: int) -> Fraction:
    """Releases in the window, and every stretch that meets it, wherever the stretch began."""
    releases = sum((d.epsilon for d in decisions if first <= d.time_point <= last), Fraction(0))
    met = sum((epsilon for start, end, epsilon in stretches(decisions) if start <= last and end >= first), Fraction(0))
    return releases + met


@pytest.mark.parametrize("name", sorted(SETTINGS))
@settings(max_examples=25, deadline=None)
@given(seed=seeds, skipped=skips)
def test_the_audit_trail_stays_within_the_reservation(name: str, seed: int, skipped: list[bool]) -> None:
    strategy = make_strategy(**arguments(name), source=InsecureSeededSource(seed))
    series = walk(seed, 20)
    decisions = [
        strategy.skip() if skip else strategy.step(counts) for counts, skip in zip(series, skipped, strict=True)
    ]
    assert strategy.epsilon == EPSILON
    assert max_spent(decisions, strategy.window) <= EPSILON
    for decision, skip in zip(decisions, skipped, strict=True):
        assert decision.fresh == (decision.epsilon > 0) == (decision.scale is not None)
        assert not (skip and decision.costs)


@pytest.mark.parametrize("name", ["dsat_w", "dsat_w-once"])
@settings(max_examples=60, deadline=None)
@given(seed=seeds, skipped=skips)
def test_stretches_that_span_windows_are_paid_in_each_of_them(name: str, seed: int, skipped: list[bool]) -> None:
    strategy = make_strategy(**arguments(name), source=InsecureSeededSource(seed))
    decisions = [
        strategy.skip() if skip else strategy.step(counts)
        for counts, skip in zip(walk(seed, 60), skipped * 3, strict=True)
    ]
    assert strategy.window is not None
    for first in range(1, 61):
        assert cost_of_window(decisions, first, first + strategy.window - 1) <= EPSILON


@pytest.mark.parametrize("name", [name for name, (_, given) in SETTINGS.items() if "window" in given])
@settings(max_examples=25, deadline=None)
@given(seed=seeds, lost=st.integers(1, 12))
def test_a_new_strategy_a_window_after_a_lost_one_stays_within_the_reservation(name: str, seed: int, lost: int) -> None:
    """The journal is lost at some point and its outputs are written off: the next w - 1 points are skipped."""
    source = InsecureSeededSource(seed)
    before, after = (make_strategy(**arguments(name), source=source) for _ in range(2))
    series = walk(seed, lost + 20)
    assert after.window is not None
    decisions = [before.step(counts) for counts in series[:lost]]
    for number, counts in enumerate(series[lost:], start=1):
        decision = after.skip() if number < after.window else after.step(counts)
        decisions.append(replace(decision, time_point=lost + number))
    for first in range(1, lost + 21):
        assert cost_of_window(decisions, first, first + after.window - 1) <= EPSILON
        assert spent_in(decisions, first, first + after.window - 1) <= EPSILON


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_busy_data_uses_what_was_reserved(name: str) -> None:
    """The bound is not met by spending next to nothing."""
    strategy = make_strategy(**arguments(name), source=InsecureSeededSource(3))
    decisions = [strategy.step(counts) for counts in walk(3, 20, jump=3_000)]
    assert max_spent(decisions, strategy.window) >= EPSILON * Fraction(3, 5)


def test_epsilon_and_cells_must_make_sense() -> None:
    with pytest.raises(ConfigurationError, match="epsilon"):
        make_strategy("baseline", epsilon=0, cells=CELLS, horizon=3)
    with pytest.raises(ConfigurationError, match="shape"):
        make_strategy("baseline", epsilon=1, cells=CELLS, shape=(2, 2), horizon=3)
    with pytest.raises(ConfigurationError, match="not both"):
        make_strategy("baseline", epsilon=1, cells=CELLS, horizon=3, window=3)
