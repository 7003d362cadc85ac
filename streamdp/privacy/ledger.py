"""One ledger for everything that is computed from the data.

**Guarantee.** While every computation is booked here before it touches data, the whole output is `epsilon_total`-
differentially private: over the series of time points 1..N (finite horizon), or over every `w` consecutive time points
for ever (w-event privacy; Kellaris, Papadopoulos, Xiao and Papadias, PVLDB 7(12), 2014). Both rest on sequential
composition: costs add up. Arithmetic is exact, in rationals: a sum that is a hair too small is a broken promise.

A stream strategy holds a **reservation**, constant in every window, and its own entries are an audit trail: they are
checked against the reservation and not added to what others spend (a stretch of decisions spans windows, and booking it
at one point would hide it from the others). Everyone else is **charged** at the time point of the snapshot that is
read, and every window that holds the point has to bear it.

With **levels** of privacy (`terms.levels`) the promise is personal: the output is differentially private for each user
at the epsilon of their own level (Jorgensen, Yu and Cormode, ICDE 2015). Every level has a balance. A reservation or a
uniform charge debits all of them, a charge by level each its own amount, and what any level cannot bear is refused.

The ledger is pure: it reads no clock and writes no file. The journal keeps its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import floor
from typing import Any

from streamdp.privacy import ledger_state
from streamdp.privacy.balances import Balances, Shortage
from streamdp.privacy.entries import BudgetExceeded, Charge, Reservation
from streamdp.privacy.exact import decimal_text
from streamdp.privacy.ledger_report import Report, refusal, report
from streamdp.privacy.spending import Spending
from streamdp.privacy.terms import Terms, positive

__all__ = ["AMOUNT_UNIT", "BudgetExceeded", "Charge", "Ledger", "Reservation"]

AMOUNT_UNIT = Fraction(1, 10**12)
"""Amounts are rounded down to whole numbers of it: sums keep a small common denominator."""


class _Undone(Exception):
    """Ends a trial: what was booked is taken back."""


class Ledger:
    """Who spent what, and what is left; see the module's docstring for the guarantee.

    >>> ledger = Ledger.w_event(1, window=10)
    >>> _ = ledger.reserve("ages", "0.6", "dsat_w")
    >>> _ = ledger.charge(3, "job 1", 0.4, "k-means")
    >>> ledger.left(5), ledger.returns("0.4", 5)
    (Fraction(0, 1), 13)
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.written_off_until = 0
        self.settled_before = 1
        self._reservations: dict[str, Reservation] = {}
        self._entries: list[Charge] = []
        self._charged = Balances(terms)
        self._recorded: dict[str, Spending] = {}

    @classmethod
    def finite_horizon(cls, total: Any, horizon: int) -> Ledger:
        """`total` for the whole series of time points 1..`horizon`."""
        return cls(Terms.finite_horizon(total, horizon))

    @classmethod
    def w_event(cls, total: Any, window: int) -> Ledger:
        """`total` for every `window` consecutive time points, for ever."""
        return cls(Terms.w_event(total, window))

    # What is in it

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(self._reservations.values())

    @property
    def entries(self) -> tuple[Charge, ...]:
        """Every charge and record that is not settled, in the order booked."""
        return tuple(self._entries)

    @property
    def owners(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self._reservations, *(entry.owner for entry in self._entries)]))

    @property
    def reserved(self) -> Fraction:
        return sum((reservation.epsilon for reservation in self._reservations.values()), Fraction(0))

    @property
    def chargeable(self) -> Fraction:
        """What the reservations leave of every window, to be charged to everybody alike."""
        return min(self._charged.limits(self.reserved))

    @property
    def resumes_at(self) -> int | None:
        """The first time point at which anything may be asked of the data; None when a write-off consumed it all."""
        if not self.written_off_until:
            return 1
        return None if self.terms.is_finite else self.written_off_until + self.terms.points

    def spent(self, time_point: int, owner: str | None = None) -> Fraction:
        """Spent over the horizon, or in the window that ends at `time_point`; by `owner`, or by all.

        Of all: reservations count in full, whatever their owners' own entries say. With levels: of a user of the
        strictest, whose limit is `chargeable`; `spent_by_level` has the others.
        """
        if owner in self._recorded:
            return self._seen(self._recorded[owner], time_point)
        if owner is None:
            return self.reserved + self._charged.seen(time_point)[0]
        first = 1 if self.terms.is_finite else time_point - self.terms.points + 1
        last = self.terms.points if self.terms.is_finite else time_point
        mine = (entry.epsilon for entry in self._entries if entry.owner == owner and first <= entry.time_point <= last)
        return sum(mine, Fraction(0))

    def left(self, time_point: int, owner: str | None = None) -> Fraction:
        """The most that a charge at `time_point` may ask of everybody, or a record of the reservation's `owner`."""
        if owner is None:
            return min(self.left_by_level(time_point))
        self._require_point(time_point)
        if not self._open(time_point):
            return Fraction(0)
        return self._reservation(owner).epsilon - self._heaviest(self._recorded[owner], time_point)

    def left_by_level(self, time_point: int) -> list[Fraction]:
        """The most that a new charge at `time_point` may ask of each level; without levels, of everybody."""
        self._require_point(time_point)
        left = self._charged.left(time_point, self.reserved)
        return left if self._open(time_point) else [Fraction(0)] * len(left)

    def spent_by_level(self, time_point: int) -> list[Fraction]:
        """What a user of each level has spent, reservations in full."""
        return [self.reserved + charged for charged in self._charged.seen(time_point)]

    def amounts(self, epsilon: Any) -> tuple[Fraction, ...]:
        """What each level pays when the one with the most to spend pays `epsilon`: in proportion to what reservations
        leave it, rounded down, so that all levels run out together."""
        asked = positive(epsilon)
        limits = self._charged.limits(self.reserved)
        if limits[-1] <= 0:
            raise BudgetExceeded(
                "the reservations leave no level anything",
                asked=asked,
                left=Fraction(0),
                time_point=None,
                returns_at=None,
            )
        parts = (asked * limit / limits[-1] for limit in limits[:-1])
        return (*(floor(part / AMOUNT_UNIT) * AMOUNT_UNIT for part in parts), asked)

    def returns(self, epsilon: Any, time_point: int) -> int | None:
        """The first time point, from `time_point` on, at which a charge of `epsilon` to everybody fits if nothing else
        is charged.

        None when it never will: a finite horizon gives nothing back.
        """
        self._require_point(time_point)
        return self._returns(Charge(time_point, "", positive(epsilon), ""))

    def report(self, time_point: int) -> Report:
        """What was spent, by whom, what is left at `time_point` and when more comes back; `str()` of it is a table."""
        return report(self, time_point)

    # Booking

    def check_reserve(self, owner: str, epsilon: Any) -> None:
        """Raise as `reserve` would; change nothing."""
        asked = positive(epsilon)
        if owner in self._reservations:
            raise ValueError(f"{owner!r} already holds a reservation; a reservation does not change")
        if any(entry.owner == owner for entry in self._entries):
            raise ValueError(f"{owner!r} was charged before; a reservation needs an owner of its own")
        left = self._charged.free(self.reserved)
        if asked > left:
            raise BudgetExceeded(
                f"reserving epsilon {decimal_text(asked)} for {owner!r} does not fit: {decimal_text(left)} of "
                f"{self._least()} is free in every window; reserve less",
                asked=asked,
                left=left,
                time_point=None,
                returns_at=None,
            )

    def reserve(self, owner: str, epsilon: Any, purpose: str) -> Reservation:
        """Set `epsilon` aside in every window, or for the whole horizon, for `owner`'s own records."""
        self.check_reserve(owner, epsilon)
        reservation = Reservation(owner, positive(epsilon), purpose)
        self._reservations[owner] = reservation
        self._recorded[owner] = Spending(self.terms.points)
        return reservation

    def check_charge(
        self, time_point: int, owner: str, epsilon: Any, amounts: Sequence[Fraction] | None = None
    ) -> None:
        """Raise as `charge` would; change nothing."""
        if owner in self._reservations:
            raise ValueError(f"{owner!r} holds a reservation: record its spending, do not charge it")
        self._check_charge(self._charge(time_point, owner, epsilon, "", amounts))

    def charge(
        self, time_point: int, owner: str, epsilon: Any, purpose: str, amounts: Sequence[Fraction] | None = None
    ) -> Charge:
        """Book `epsilon` on the snapshot of `time_point` beside all reservations, in every window that holds it.

        `amounts` is what each level pays, none more than `epsilon`; when left out, everybody pays `epsilon`.
        """
        self.check_charge(time_point, owner, epsilon, amounts)
        return self._book(self._charge(time_point, owner, epsilon, purpose, amounts))

    def check_record(self, time_point: int, owner: str, epsilon: Any) -> None:
        """Raise as `record` would; change nothing."""
        limit = self._reservation(owner).epsilon
        self._check(self._recorded[owner], limit, time_point, owner, positive(epsilon))

    def record(self, time_point: int, owner: str, epsilon: Any, purpose: str) -> Charge:
        """Enter what a reservation's owner spent: the audit trail, held against the reservation in every window."""
        self.check_record(time_point, owner, epsilon)
        return self._book(Charge(time_point, owner, positive(epsilon), purpose, counted=False))

    def check_book(self, entries: Iterable[Charge]) -> None:
        """Raise as `book` would; change nothing."""
        with suppress(_Undone), self.all_or_nothing():
            self.book(entries)
            raise _Undone

    def book(self, entries: Iterable[Charge]) -> None:
        """Charge or record all of `entries`, or none of them."""
        with self.all_or_nothing():
            for entry in entries:
                if entry.counted:
                    self.charge(entry.time_point, entry.owner, entry.epsilon, entry.purpose, entry.amounts)
                else:
                    self.record(entry.time_point, entry.owner, entry.epsilon, entry.purpose)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Take back what the block booked when it raises: for a caller whose own store has to succeed as well."""
        entries, reservations = len(self._entries), len(self._reservations)
        try:
            yield
        except BaseException:
            for entry in self._entries[entries:]:
                self._unbook(entry)
            del self._entries[entries:]
            for owner in list(self._reservations)[reservations:]:
                del self._reservations[owner], self._recorded[owner]
            raise

    def write_off(self, until: int) -> None:
        """Regard everything up to time point `until` as spent to the last: it is not known what was.

        Nothing fits any more in a window that holds such a point: for `window` - 1 further points, and under a finite
        horizon never again.
        """
        self._require_point(until)
        self.written_off_until = max(self.written_off_until, until)

    def settle(self, before: int) -> None:
        """Refuse charges at points before `before` from now on, and forget the entries that no later charge can meet.

        Keeps the memory of an endless series bounded. A finite horizon remembers all of it and is not settled.
        """
        if self.terms.is_finite or before <= self.settled_before:
            return
        self.settled_before = before
        first = before - self.terms.points + 1
        for entry in self._entries:
            if entry.time_point < first:
                self._unbook(entry)
        self._entries = [entry for entry in self._entries if entry.time_point >= first]

    # State

    def state(self) -> dict[str, Any]:
        return ledger_state.write(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Ledger:
        """The ledger that `state` describes; ValueError when what it holds does not fit its own terms."""
        return cls.restore(**ledger_state.read(state))

    @classmethod
    def restore(
        cls,
        terms: Terms,
        reservations: Iterable[Reservation],
        entries: Iterable[Charge],
        *,
        written_off_until: int = 0,
        settled_before: int = 1,
    ) -> Ledger:
        """A ledger with these entries, checked together in one pass; ValueError when they do not fit the terms."""
        ledger = cls(terms)
        try:
            for reservation in reservations:
                ledger.reserve(reservation.owner, reservation.epsilon, reservation.purpose)
        except BudgetExceeded as error:
            raise ValueError(f"the ledger's reservations pass its total: {error}") from error
        for entry in entries:
            ledger._require_point(entry.time_point)
            beyond = terms.is_finite and entry.time_point > terms.points
            if beyond or entry.epsilon <= 0 or entry.counted == (entry.owner in ledger._reservations):
                raise ValueError(f"the ledger's entry of {entry.owner!r} at time point {entry.time_point} is not valid")
            if entry.amounts is not None:
                ledger._charged.check_amounts(entry.amounts, entry.epsilon)
            ledger._book(entry)
        if ledger._charged.free(ledger.reserved) < 0:
            raise ValueError("the ledger's charges pass its total in some window")
        for owner, spending in ledger._recorded.items():
            if spending.heaviest_of_all() > ledger._reservations[owner].epsilon:
                raise ValueError(f"the ledger's records of {owner!r} pass its reservation in some window")
        ledger.written_off_until = written_off_until
        ledger.settled_before = settled_before
        return ledger

    # Inside

    def _charge(
        self, time_point: int, owner: str, epsilon: Any, purpose: str, amounts: Sequence[Fraction] | None
    ) -> Charge:
        if amounts is not None:
            self._charged.check_amounts(amounts, positive(epsilon))
        by_level = None if amounts is None else tuple(amounts)
        return Charge(time_point, owner, positive(epsilon), purpose, counted=True, amounts=by_level)

    def _book(self, entry: Charge) -> Charge:
        if entry.counted:
            self._charged.add(entry)
        else:
            self._recorded[entry.owner].add(entry.time_point, entry.epsilon)
        self._entries.append(entry)
        return entry

    def _unbook(self, entry: Charge) -> None:
        if entry.counted:
            self._charged.remove(entry)
        else:
            self._recorded[entry.owner].remove(entry.time_point, entry.epsilon)

    def _reservation(self, owner: str) -> Reservation:
        if owner not in self._reservations:
            raise ValueError(f"{owner!r} holds no reservation; reserve before recording")
        return self._reservations[owner]

    def _require_point(self, time_point: int) -> None:
        if isinstance(time_point, bool) or not isinstance(time_point, int) or time_point < 1:
            raise ValueError("a time point is an integer from 1 on")

    def _open(self, time_point: int) -> bool:
        if self.resumes_at is None or time_point < self.resumes_at or time_point < self.settled_before:
            return False
        return not self.terms.is_finite or time_point <= self.terms.points

    def _heaviest(self, spending: Spending, time_point: int) -> Fraction:
        return spending.total if self.terms.is_finite else spending.heaviest(time_point)

    def _least(self) -> str:
        levels = self.terms.levels
        return str(levels[0]) if levels else decimal_text(self.terms.epsilon_total)

    def _seen(self, spending: Spending, time_point: int) -> Fraction:
        return spending.total if self.terms.is_finite else spending.in_window(time_point)

    def _check_charge(self, charge: Charge) -> None:
        """Every level has to bear what it would pay."""
        time_point = charge.time_point
        self._require_point(time_point)
        short = self._charged.shortage(
            self._charged.amounts(charge), time_point, self.reserved, is_open=self._open(time_point)
        )
        if short is not None:
            raise refusal(self, charge.owner, time_point, short, self._returns(charge))

    def _returns(self, charge: Charge) -> int | None:
        if self.resumes_at is None:
            return None
        start = charge.time_point
        if not self.terms.is_finite:
            start = max(start, self.resumes_at, self.settled_before)
        return self._charged.first_fit(self._charged.amounts(charge), start, self.reserved)

    def _check(self, spending: Spending, limit: Fraction, time_point: int, owner: str, asked: Fraction) -> None:
        self._require_point(time_point)
        left = limit - self._heaviest(spending, time_point) if self._open(time_point) else Fraction(0)
        if asked <= left:
            return
        short = Shortage(None, asked, left, limit)
        raise refusal(self, owner, time_point, short, self._first_fit(spending, limit, asked, time_point))

    def _first_fit(self, spending: Spending, limit: Fraction, asked: Fraction, time_point: int) -> int | None:
        if asked > limit or self.resumes_at is None:
            return None
        if self.terms.is_finite:
            return time_point if time_point <= self.terms.points and asked <= limit - spending.total else None
        return spending.first_fit(max(time_point, self.resumes_at, self.settled_before), limit - asked)
