from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.privacy.exact import as_fraction
from streamdp.privacy.ledger import BudgetExceeded, Charge, Ledger
from streamdp.privacy.terms import Terms


def both(total: Any = 1, points: int = 10) -> list[Ledger]:
    return [Ledger.finite_horizon(total, points), Ledger.w_event(total, points)]


class Model:
    """The ledger by brute force: every window is summed anew from a list."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.reserved: dict[str, Fraction] = {}
        self.entries: list[tuple[int, str, Fraction, bool]] = []

    def windows(self, last: int) -> list[range]:
        size = self.terms.points
        if self.terms.is_finite:
            return [range(1, size + 1)]
        return [range(start, start + size) for start in range(2 - size, last + 1)]

    def fits(self, time_point: int, owner: str | None, epsilon: Fraction) -> bool:
        if self.terms.is_finite and time_point > self.terms.points:
            return False
        limit = self.reserved[owner] if owner else self.terms.epsilon_total - sum(self.reserved.values())
        mine = [(p, e) for p, o, e, counted in self.entries if (o == owner if owner else counted)]
        held = [window for window in self.windows(time_point) if time_point in window]
        return all(sum(e for p, e in mine if p in window) + epsilon <= limit for window in held)

    def fits_reservation(self, epsilon: Fraction) -> bool:
        last = max((p for p, *_ in self.entries), default=1)
        limit = self.terms.epsilon_total - sum(self.reserved.values()) - epsilon
        return all(
            sum(e for p, _, e, counted in self.entries if counted and p in window) <= limit
            for window in self.windows(last)
        )

    def returns(self, epsilon: Fraction, time_point: int) -> int | None:
        last = max((p for p, *_ in self.entries), default=1) + self.terms.points + 1
        for candidate in range(time_point, max(last, time_point) + 1):
            if self.fits(candidate, None, epsilon):
                return candidate
        return None


terms = st.builds(
    Terms,
    st.sampled_from(["finite_horizon", "w_event"]),
    st.sampled_from([Fraction(1), Fraction(2, 3), Fraction(5)]),
    st.integers(1, 7),
)
epsilons = st.sampled_from([Fraction(n, d) for n, d in [(1, 10), (1, 3), (1, 7), (1, 2), (1, 1), (1, 10**12)]])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.just(1), st.sampled_from("AB"), epsilons),
        st.tuples(st.just("charge"), st.integers(1, 16), st.sampled_from("xyz"), epsilons),
        st.tuples(st.just("record"), st.integers(1, 16), st.sampled_from("AB"), epsilons),
        st.tuples(st.just("restart"), st.just(1), st.just(""), st.just(Fraction(1))),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(terms, steps)
def test_agrees_with_brute_force(agreed: Terms, sequence: list[tuple[str, int, str, Fraction]]) -> None:
    ledger, model = Ledger(agreed), Model(agreed)
    for action, time_point, owner, epsilon in sequence:
        if action == "restart":
            ledger = Ledger.from_state(json.loads(json.dumps(ledger.state())))
        elif action == "reserve" and owner not in model.reserved:
            fits = model.fits_reservation(epsilon)
            check(partial(ledger.reserve, owner, epsilon, "strategy"), ledger, fits)
            if fits:
                model.reserved[owner] = epsilon
        elif action == "charge" or (action == "record" and owner in model.reserved):
            counted = action == "charge"
            fits = model.fits(time_point, None if counted else owner, epsilon)
            book = ledger.charge if counted else ledger.record
            check(partial(book, time_point, owner, epsilon, "purpose"), ledger, fits)
            if fits:
                model.entries.append((time_point, owner, epsilon, counted))
        left = ledger.left(time_point)
        assert left == 0 or model.fits(time_point, None, left)
        assert not model.fits(time_point, None, left + Fraction(1, 10**15))
        assert ledger.returns(epsilon, time_point) == model.returns(epsilon, time_point)
    assert [(e.time_point, e.owner, e.epsilon, e.counted) for e in ledger.entries] == model.entries
    assert {r.owner: r.epsilon for r in ledger.reservations} == model.reserved


def check(book: Callable[[], object], ledger: Ledger, fits: bool) -> None:
    before = ledger.state()
    if fits:
        book()
    else:
        with pytest.raises(BudgetExceeded):
            book()
        assert ledger.state() == before


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 4), epsilons), max_size=40))
def test_settling_never_lets_more_through(window: int, sequence: list[tuple[int, int, Fraction]]) -> None:
    settled, whole = Ledger.w_event(1, window), Ledger.w_event(1, window)
    before = 3
    for passed, ahead, epsilon in sequence:
        before += passed
        time_point = before + ahead
        settled.settle(before)
        assert settled.left(time_point) == (whole.left(time_point) if ahead >= 0 else 0)
        if epsilon <= settled.left(time_point):
            settled.charge(time_point, "x", epsilon, "p")
            whole.charge(time_point, "x", epsilon, "p")
    settled.settle(before + 1)
    assert all(entry.time_point > before + 1 - window for entry in settled.entries)


def test_settling_keeps_what_a_later_charge_can_still_meet() -> None:
    ledger = Ledger.w_event(1, 4)
    ledger.charge(5, "x", "0.7", "p")
    ledger.settle(8)
    assert [ledger.left(time_point) for time_point in (7, 8, 9)] == [0, Fraction(3, 10), 1]
    ledger.settle(9)
    assert not ledger.entries


@pytest.mark.parametrize("make", [lambda: Ledger.finite_horizon("1", 10), lambda: Ledger.w_event(1.0, 10)])
@pytest.mark.parametrize("thousandth", [0.001, "0.001", "1e-3", Fraction(1, 1000)])
def test_a_thousand_charges_of_a_thousandth_fit_and_no_more(make: Callable[[], Ledger], thousandth: Any) -> None:
    ledger = make()
    for number in range(1000):
        ledger.charge(1 + number % 10, "x", thousandth, "p")
    assert ledger.left(10) == 0
    for more in (1e-12, "1e-12"):
        with pytest.raises(BudgetExceeded) as refused:
            ledger.charge(10, "x", more, "p")
        assert refused.value.asked == as_fraction("1e-12")
        assert refused.value.left == 0


@pytest.mark.parametrize("epsilon", [0, -1, "-0.1", Fraction(0), 0.0])
def test_nothing_is_free_and_nothing_is_given_back(epsilon: Any) -> None:
    for ledger in both():
        ledger.reserve("A", Fraction(1, 2), "p")
        for book, owner in ((ledger.charge, "x"), (ledger.record, "A")):
            with pytest.raises(ValueError, match="greater than zero"):
                book(1, owner, epsilon, "p")
        with pytest.raises(ValueError, match="greater than zero"):
            ledger.reserve("B", epsilon, "p")


@pytest.mark.parametrize("time_point", [0, -1, True, 1.0])
def test_time_points_are_integers_from_one(time_point: Any) -> None:
    for ledger in both():
        with pytest.raises(ValueError, match="time point"):
            ledger.charge(time_point, "x", 1, "p")


def test_the_horizon_ends() -> None:
    ledger = Ledger.finite_horizon(1, 10)
    with pytest.raises(BudgetExceeded, match="horizon ends with time point 10") as refused:
        ledger.charge(11, "x", "0.1", "p")
    assert refused.value.returns_at is None
    assert ledger.left(11) == 0
    ledger.charge(10, "x", 1, "p")


def test_the_refusal_says_how_much_is_left_and_when_more_comes_back() -> None:
    ledger = Ledger.w_event(1, 5)
    ledger.charge(3, "x", "0.75", "p")
    with pytest.raises(
        BudgetExceeded, match=r"0\.5 for 'y' at time point 4 .* 0\.25 of 1 .* fits at time point 8"
    ) as no:
        ledger.charge(4, "y", "0.5", "p")
    assert (no.value.left, no.value.time_point, no.value.returns_at) == (Fraction(1, 4), 4, 8)
    with pytest.raises(BudgetExceeded, match="never fits: at most 1"):
        ledger.charge(4, "y", 2, "p")


def test_a_charge_at_a_past_point_meets_later_ones() -> None:
    ledger = Ledger.w_event(1, 3)
    ledger.charge(5, "x", "0.6", "p")
    assert ledger.left(3) == ledger.left(7) == Fraction(2, 5)
    assert ledger.left(2) == ledger.left(8) == 1
    with pytest.raises(BudgetExceeded):
        ledger.charge(3, "y", "0.5", "p")


def test_records_are_held_against_their_own_reservation_and_cost_others_nothing() -> None:
    for ledger in both():
        ledger.reserve("A", "0.5", "dsat")
        ledger.record(1, "A", "0.3", "release")
        ledger.record(2, "A", "0.2", "decisions")
        assert ledger.left(2) == Fraction(1, 2)
        assert ledger.left(2, "A") == 0
        with pytest.raises(BudgetExceeded):
            ledger.record(3, "A", "1e-9", "release")
        assert ledger.spent(2, "A") == Fraction(1, 2)
        assert ledger.spent(2) == Fraction(1, 2)


def test_owners_are_either_reserved_or_charged() -> None:
    for ledger in both():
        ledger.reserve("A", "0.5", "p")
        ledger.charge(1, "x", "0.1", "p")
        for wrong in (
            partial(ledger.reserve, "A", "0.1", "p"),
            partial(ledger.reserve, "x", "0.1", "p"),
            partial(ledger.charge, 1, "A", "0.1", "p"),
            partial(ledger.record, 1, "x", "0.1", "p"),
        ):
            with pytest.raises(ValueError, match="reserv"):
                wrong()
        assert ledger.owners == ("A", "x")


def test_checks_change_nothing() -> None:
    for ledger in both():
        ledger.reserve("A", "0.5", "p")
        before = ledger.state()
        ledger.check_charge(1, "x", "0.5")
        ledger.check_record(1, "A", "0.5")
        ledger.check_reserve("B", "0.5")
        assert ledger.state() == before


def test_booking_several_is_all_or_nothing() -> None:
    for ledger in both():
        ledger.reserve("A", "0.5", "p")
        ledger.charge(1, "x", "0.1", "p")
        before = ledger.state()
        with pytest.raises(BudgetExceeded):
            ledger.book(
                [
                    Charge(1, "x", Fraction(1, 5), "p"),
                    Charge(1, "A", Fraction(1, 5), "p", counted=False),
                    Charge(1, "x", Fraction(1, 2), "p"),
                ]
            )
        assert ledger.state() == before
        assert ledger.left(1) == Fraction(2, 5)
        with pytest.raises(KeyError), ledger.all_or_nothing():
            ledger.reserve("B", "0.1", "p")
            ledger.record(1, "B", "0.1", "p")
            raise KeyError
        assert ledger.state() == before


def test_a_write_off_consumes_every_window_that_holds_it() -> None:
    ledger = Ledger.w_event(1, 5)
    ledger.reserve("A", "0.5", "p")
    ledger.write_off(20)
    assert ledger.resumes_at == 25
    for time_point in (1, 20, 24):
        assert ledger.left(time_point) == ledger.left(time_point, "A") == 0
        for book, owner in ((ledger.charge, "x"), (ledger.record, "A")):
            with pytest.raises(BudgetExceeded, match="up to time point 20 was written off") as refused:
                book(time_point, owner, "0.5", "p")
            assert refused.value.returns_at == 25
    ledger.record(25, "A", "0.5", "p")
    ledger.charge(25, "x", "0.5", "p")
    ledger.write_off(3)
    assert ledger.resumes_at == 25
    assert Ledger.from_state(ledger.state()).state() == ledger.state()


def test_a_write_off_ends_a_finite_horizon() -> None:
    ledger = Ledger.finite_horizon(1, 30)
    ledger.reserve("A", "0.5", "p")
    ledger.write_off(20)
    assert ledger.resumes_at is None
    assert ledger.left(25) == 0
    for book, owner in ((ledger.charge, "x"), (ledger.record, "A")):
        with pytest.raises(BudgetExceeded, match="written off"):
            book(25, owner, "0.1", "p")


def test_a_state_that_does_not_fit_its_terms_is_refused() -> None:
    for ledger in both():
        ledger.reserve("A", "0.5", "p")
        ledger.charge(1, "x", "0.4", "p")
        ledger.record(2, "A", "0.4", "p")
        for spoil in (
            {"entries": [[1, "x", "2/3", "p", True]]},
            {"entries": [[1, "A", "2/3", "p", False]]},
            {"entries": [[1, "A", "1/3", "p", True]]},
            {"entries": [[1, "x", "1/3", "p", False]]},
            {"entries": [[1, "x", "-1/3", "p", True]]},
            {"entries": [[0, "x", "1/3", "p", True]]},
            {"reservations": [["A", "2/1", "p"]]},
            {"format": 2},
        ):
            with pytest.raises(ValueError):
                Ledger.from_state({**ledger.state(), **spoil})
    with pytest.raises(ValueError):
        Ledger.from_state({**both()[0].state(), "entries": [[11, "x", "1/3", "p", True]]})


def test_terms_come_back_from_their_state() -> None:
    terms = Terms.w_event("0.5", 10, 2, "field:account")
    assert Terms.from_state(json.loads(json.dumps(terms.state()))) == terms
    assert Terms.w_event(Fraction(1, 3), 10) != Terms.w_event(Fraction(3333333, 10**7), 10)


@pytest.mark.parametrize("points", [0, -1, True, 2.5])
def test_terms_are_sensible(points: Any) -> None:
    with pytest.raises(ValueError):
        Terms.w_event(1, points)
    with pytest.raises(ValueError):
        Terms.finite_horizon(0, 10)
    with pytest.raises(ValueError):
        Terms("forever", Fraction(1), 10)  # type: ignore[arg-type]


def test_the_report_says_who_spent_what_is_left_and_when_it_returns() -> None:
    ledger = Ledger.w_event(2, 10)
    ledger.reserve("ages", "0.5", "dsat_w")
    ledger.record(4, "ages", "0.125", "release")
    ledger.charge(3, "job 1", "0.25", "k-means")
    ledger.charge(4, "job 2", "0.5", "copula")
    report = ledger.report(5)
    assert report.left == Fraction(3, 4)
    assert report.returns == ((13, Fraction(1)), (14, Fraction(3, 2)))
    assert {row.owner: (row.reserved, row.spent, row.left, row.returns) for row in report.owners} == {
        "ages": (Fraction(1, 2), Fraction(1, 8), Fraction(3, 8), (14, Fraction(1, 8))),
        "job 1": (None, Fraction(1, 4), None, (13, Fraction(1, 4))),
        "job 2": (None, Fraction(1, 2), None, (14, Fraction(1, 2))),
    }
    assert str(report).splitlines() == [
        "epsilon 2 for every window of 10 time points; at time point 5: 0.5 reserved, 0.75 charged, 0.75 left",
        "owner  purpose  reserved  spent  left   returns",
        "ages   dsat_w   0.5       0.125  0.375  0.125 at 14",
        "job 1  k-means  -         0.25   -      0.25 at 13",
        "job 2  copula   -         0.5    -      0.5 at 14",
        "from time point 13 on 1 is left",
        "from time point 14 on 1.5 is left",
    ]
    rows = json.loads(json.dumps(report.rows()))
    assert rows["left"] == "3/4"
    assert rows["owners"][0] == {
        "owner": "ages",
        "purpose": "dsat_w",
        "reserved": "1/2",
        "spent": "1/8",
        "left": "3/8",
        "returns": {"time_point": 14, "epsilon": "1/8"},
    }
    assert ledger.report(14).owners[0].returns is None
    assert ledger.report(14).left == Fraction(3, 2)
    assert [row.owner for row in ledger.report(14).owners] == ["ages"]


def test_the_report_of_a_finite_horizon_and_of_a_write_off() -> None:
    finite, endless = both()
    finite.charge(2, "x", "0.25", "p")
    assert "nothing comes back" in str(finite.report(5))
    endless.write_off(5)
    assert endless.report(6).returns == ((15, Fraction(1)),)
    assert "everything up to time point 5 was written off" in str(endless.report(6))


def test_a_trial_booking_raises_as_the_real_one_and_changes_nothing():
    ledger = Ledger.w_event(1, 10)
    first, second = Charge(3, "a", Fraction(3, 5), "job"), Charge(3, "b", Fraction(3, 5), "job")
    ledger.check_book([first])
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.check_book([first, second])
    assert (refusal.value.left, refusal.value.returns_at) == (Fraction(2, 5), 13)
    assert (ledger.entries, ledger.left(3)) == ((), 1)
