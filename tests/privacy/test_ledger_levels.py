"""The ledger knows persons: nobody's sum passes their own preference, whatever mix of spending runs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.privacy.ledger import BudgetExceeded, Charge, Ledger
from streamdp.privacy.levels import Level
from streamdp.privacy.terms import Terms

LEVELS = (Level("strict", Fraction(1, 20)), Level("normal", Fraction(3, 10)), Level("open", Fraction(1)))
AMOUNTS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))


def both() -> list[Ledger]:
    return [
        Ledger(Terms.finite_horizon(1, 10, levels=LEVELS)),
        Ledger(Terms.w_event(1, 10, levels=LEVELS)),
    ]


@dataclass
class Person:
    """Somebody, and everything ever spent on them: the model keeps people, where the ledger keeps levels."""

    preference: Fraction
    level: int
    reserved: Fraction = Fraction(0)
    paid: list[tuple[int, Fraction]] = field(default_factory=list)

    def heaviest(self, terms: Terms, more: list[tuple[int, Fraction]]) -> Fraction:
        paid = [*self.paid, *more]
        if terms.is_finite:
            return self.reserved + sum((epsilon for _, epsilon in paid), Fraction(0))
        last = max((point for point, _ in paid), default=1)
        windows = [range(start, start + terms.points) for start in range(2 - terms.points, last + 1)]
        return self.reserved + max(sum((e for p, e in paid if p in window), Fraction(0)) for window in windows)


epsilons = st.sampled_from(
    [Fraction(n, d) for n, d in [(1, 100), (1, 30), (1, 7), (1, 3), (1, 2), (1, 1), (1, 10**12)]]
)
levels = st.lists(epsilons, min_size=1, max_size=4, unique=True).map(
    lambda found: tuple(Level(f"level {place}", epsilon) for place, epsilon in enumerate(sorted(found)))
)
kinds = st.sampled_from(["reserve", "uniform", "by level", "in proportion", "lower", "restart"])
steps = st.lists(
    st.tuples(kinds, st.integers(1, 12), epsilons, st.lists(epsilons | st.just(Fraction(0)), min_size=4, max_size=4)),
    max_size=30,
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["finite_horizon", "w_event"]), st.integers(1, 6), levels, steps, st.randoms())
def test_nobody_pays_more_than_their_preference_and_nothing_that_fits_is_refused(kind, points, levels, steps, randoms):
    """Against a list of people. Some of them lower their preference on the way: since then they paid at most the new
    one, and in all at most the old one."""
    terms = Terms(kind, Fraction(1), points, levels=levels)
    ledger = Ledger(terms)
    people = [Person(level.epsilon, place) for place, level in enumerate(levels) for _ in range(2)]
    movers = [Person(levels[-1].epsilon, len(levels) - 1) for _ in range(2)]
    since_the_change: list[tuple[Person, Person]] = []
    for number, (action, time_point, asked, raw) in enumerate(steps):
        epsilon = asked
        everybody = [*people, *movers, *(after for _, after in since_the_change)]
        if action == "restart":
            ledger = Ledger.from_state(json.loads(json.dumps(ledger.state())))
            continue
        if action == "lower":
            person = randoms.choice(movers)
            person.level = randoms.randrange(person.level + 1)
            fresh = Person(levels[person.level].epsilon, person.level, person.reserved)
            since_the_change.append((person, fresh))
            continue
        if action == "reserve":
            fits = all(p.heaviest(terms, []) + epsilon <= p.preference for p in people)
            if attempt(partial(ledger.reserve, f"stream {number}", epsilon, "dsat"), ledger, fits):
                for person in everybody:
                    person.reserved += epsilon
            continue
        amounts = None
        if action == "by level":
            amounts = tuple(sorted(raw[: len(levels)]))
            epsilon = amounts[-1]
            if not epsilon:
                continue
        elif action == "in proportion":
            if levels[-1].epsilon == ledger.reserved:
                continue
            amounts = ledger.amounts(epsilon)
        pay = [epsilon] * len(levels) if amounts is None else list(amounts)
        fits = not (terms.is_finite and time_point > points) and all(
            p.heaviest(terms, [(time_point, pay[p.level])]) <= p.preference for p in people
        )
        if attempt(partial(ledger.charge, time_point, f"job {number}", epsilon, "p", amounts), ledger, fits):
            for person in everybody:
                person.paid.append((time_point, pay[person.level]))
    for person in [*people, *movers, *(after for _, after in since_the_change)]:
        assert person.heaviest(terms, []) <= person.preference


def attempt(book, ledger: Ledger, fits: bool) -> bool:
    before = ledger.state()
    if fits:
        book()
        return True
    with pytest.raises(BudgetExceeded) as refused:
        book()
    assert refused.value.asked > refused.value.left
    assert ledger.state() == before
    return False


@settings(max_examples=200, deadline=None)
@given(
    levels, st.lists(st.tuples(st.integers(1, 9), epsilons, st.booleans()), max_size=12), st.integers(1, 9), epsilons
)
def test_a_refused_charge_fits_at_the_point_that_the_refusal_names_and_at_none_before(
    levels, charges, time_point, asked
):
    ledger = Ledger(Terms.w_event(1, 4, levels=levels))
    for point, epsilon, alike in charges:
        with suppress(BudgetExceeded):
            ledger.charge(point, "x", epsilon, "p", None if alike else ledger.amounts(epsilon))
    amounts = ledger.amounts(asked)
    try:
        ledger.check_charge(time_point, "y", asked, amounts)
    except BudgetExceeded as refused:
        for candidate in range(time_point, refused.returns_at or time_point + 30):
            with pytest.raises(BudgetExceeded):
                ledger.check_charge(candidate, "y", asked, amounts)
        if refused.returns_at is not None:
            ledger.check_charge(refused.returns_at, "y", asked, amounts)


def test_a_refusal_names_the_level_and_what_is_left_of_it() -> None:
    for ledger in both():
        ledger.reserve("ages", "0.02", "dsat")
        ledger.charge(1, "job 1", AMOUNTS[-1], "p", AMOUNTS)
        with pytest.raises(
            BudgetExceeded, match=r"0\.02 of 0\.03 is left there to users of the level 'strict'"
        ) as refused:
            ledger.charge(1, "job 2", "0.03", "p")
        assert (refused.value.level, refused.value.left) == ("strict", Fraction(2, 100))
        assert [str(left) for left in ledger.left_by_level(1)] == ["1/50", "9/50", "12/25"]
        assert ledger.left(1) == Fraction(1, 50)


def test_a_reservation_is_everybodys_so_the_strictest_level_bounds_it() -> None:
    for ledger in both():
        with pytest.raises(BudgetExceeded, match=r"0\.05 of strict \(0\.05\) is free"):
            ledger.reserve("ages", "0.06", "dsat")
        ledger.reserve("ages", "0.05", "dsat")
        assert ledger.amounts("0.95") == (0, Fraction(1, 4), Fraction(95, 100))


def test_amounts_in_proportion_run_out_together() -> None:
    for ledger in both():
        ledger.reserve("ages", "0.01", "dsat")
        for number in range(3):
            ledger.charge(2, f"job {number}", "0.33", "p", ledger.amounts("0.33"))
        assert all(0 <= left < Fraction(1, 10**10) for left in ledger.left_by_level(2))
        shown = str(ledger.report(2)).splitlines()
        first = shown.index("by level, for each of its users:")
        assert [line.split()[0] for line in shown[first + 1 : first + 5]] == ["level", "strict", "normal", "open"]
        assert [row["level"] for row in ledger.report(2).rows()["levels"]] == ["strict", "normal", "open"]


@pytest.mark.parametrize(
    ("amounts", "epsilon"),
    [
        (AMOUNTS[:2], AMOUNTS[1]),
        (AMOUNTS[::-1], AMOUNTS[-1]),
        (AMOUNTS, Fraction(1)),
        ((Fraction(-1), Fraction(0), Fraction(1)), Fraction(1)),
    ],
)
def test_amounts_that_make_no_sense_are_not_booked(amounts, epsilon) -> None:
    for ledger in both():
        with pytest.raises(ValueError, match="amounts"):
            ledger.charge(1, "x", epsilon, "p", amounts)
        with pytest.raises(ValueError, match="amounts"):
            Ledger.restore(ledger.terms, [], [Charge(1, "x", epsilon, "p", amounts=amounts)])
    plain = Ledger.w_event(1, 10)
    with pytest.raises(ValueError, match="levels"):
        plain.charge(1, "x", "0.5", "p", AMOUNTS)


@pytest.mark.parametrize(
    "levels",
    [
        (Level("a", Fraction(0)),),
        (Level("a", Fraction(2)),),
        (Level("a", Fraction(1)), Level("b", Fraction(1))),
        (Level("a", Fraction(1)), Level("b", Fraction(1, 2))),
        (Level("a", Fraction(1, 2)), Level("a", Fraction(1))),
        tuple(Level(str(i), Fraction(i + 1, 1000)) for i in range(65)),
    ],
)
def test_levels_that_cannot_be_promised_are_no_terms(levels) -> None:
    with pytest.raises(ValueError, match="level"):
        Terms.w_event(1, 10, levels=levels)


def test_a_ledger_without_levels_is_written_as_ever() -> None:
    plain = Terms.w_event(1, 10)
    assert "levels" not in plain.state()
    assert Ledger(plain).state()["format"] == 1
    assert Ledger(Terms.w_event(1, 10, levels=LEVELS)).state()["format"] == 2
    assert Terms.from_state(Terms.w_event(1, 10, levels=LEVELS).state()).levels == LEVELS
