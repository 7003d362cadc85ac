"""The ledger for people: what was spent, by whom, what is left now, when budget comes back, and why it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from streamdp.privacy.balances import Shortage
from streamdp.privacy.entries import BudgetExceeded
from streamdp.privacy.exact import decimal_text, to_text
from streamdp.privacy.levels import Level
from streamdp.privacy.terms import Terms

if TYPE_CHECKING:
    from streamdp.privacy.ledger import Ledger

_MAX_RETURNS = 5


@dataclass(frozen=True, slots=True)
class OwnerSpending:
    """One owner's line: `reserved` and `left` are None for an owner who is charged as they go.

    `returns` is the first time point at which some of `spent` has left the window, and how much; None when none will.
    """

    owner: str
    purpose: str
    reserved: Fraction | None
    spent: Fraction
    left: Fraction | None = None
    returns: tuple[int, Fraction] | None = None

    def row(self) -> dict[str, Any]:
        """As JSON: epsilons are "p/q" texts."""
        returns = None
        if self.returns is not None:
            returns = {"time_point": self.returns[0], "epsilon": to_text(self.returns[1])}
        return {
            "owner": self.owner,
            "purpose": self.purpose,
            "reserved": None if self.reserved is None else to_text(self.reserved),
            "spent": to_text(self.spent),
            "left": None if self.left is None else to_text(self.left),
            "returns": returns,
        }

    def cells(self) -> tuple[str, ...]:
        """For people."""
        reserved, left = ("-" if value is None else decimal_text(value) for value in (self.reserved, self.left))
        returns = "-" if self.returns is None else f"{decimal_text(self.returns[1])} at {self.returns[0]}"
        return self.owner, self.purpose, reserved, decimal_text(self.spent), left, returns


@dataclass(frozen=True, slots=True)
class LevelSpending:
    """What a user of one level has spent, reservations in full, and has left to be charged."""

    level: Level
    spent: Fraction
    left: Fraction


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a ledger at one time point, seen from the window that ends there (or from the whole horizon).

    `returns` lists the next time points at which a charge may ask more than now, and how much, if nothing else is
    charged. With levels of privacy, `charged` is what the strictest pays, `left` and `returns` what may be asked of
    everybody alike, and `levels` says it level by level.
    """

    terms: Terms
    time_point: int
    reserved: Fraction
    charged: Fraction
    left: Fraction
    owners: tuple[OwnerSpending, ...]
    returns: tuple[tuple[int, Fraction], ...]
    written_off_until: int
    levels: tuple[LevelSpending, ...] = ()

    def rows(self) -> dict[str, Any]:
        """As JSON: epsilons are "p/q" texts."""
        rows: dict[str, Any] = {
            "terms": self.terms.state(),
            "time_point": self.time_point,
            "reserved": to_text(self.reserved),
            "charged": to_text(self.charged),
            "left": to_text(self.left),
            "owners": [owner.row() for owner in self.owners],
            "returns": [{"time_point": time_point, "left": to_text(left)} for time_point, left in self.returns],
            "written_off_until": self.written_off_until,
        }
        if self.levels:
            rows["levels"] = [
                {
                    "level": row.level.name,
                    "epsilon": to_text(row.level.epsilon),
                    "spent": to_text(row.spent),
                    "left": to_text(row.left),
                }
                for row in self.levels
            ]
        return rows

    def __str__(self) -> str:
        table = [("owner", "purpose", "reserved", "spent", "left", "returns"), *(row.cells() for row in self.owners)]
        lines = [
            f"epsilon {decimal_text(self.terms.epsilon_total)} for {self._span()}; at time point {self.time_point}: "
            f"{decimal_text(self.reserved)} reserved, {decimal_text(self.charged)} charged, "
            f"{decimal_text(self.left)} left" + (" to everybody alike" if self.levels else "")
        ]
        if len(table) > 1:
            lines += _aligned(table)
        if self.levels:
            cells = [(row.level.name, row.level.epsilon, row.spent, row.left) for row in self.levels]
            lines += ["by level, for each of its users:"]
            lines += _aligned(
                [("level", "epsilon", "spent", "left"), *((name, *map(decimal_text, rest)) for name, *rest in cells)]
            )
        if self.written_off_until:
            lines.append(f"everything up to time point {self.written_off_until} was written off")
        lines += [f"from time point {point} on {decimal_text(left)} is left" for point, left in self.returns]
        if self.terms.is_finite:
            lines.append("nothing comes back under a finite horizon")
        return "\n".join(lines)

    def _span(self) -> str:
        if self.terms.is_finite:
            return f"the horizon of {self.terms.points} time points"
        return f"every window of {self.terms.points} time points"


def _aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(widths[i]) for i, cell in enumerate(line)).rstrip() for line in table]


def report(ledger: Ledger, time_point: int) -> Report:
    purposes = {entry.owner: entry.purpose for entry in ledger.entries}
    reservations = {reservation.owner: reservation for reservation in ledger.reservations}
    rows = []
    for owner in ledger.owners:
        spent, returns = ledger.spent(time_point, owner), _first_return(ledger, time_point, owner)
        if owner in reservations:
            held, left = reservations[owner], ledger.left(time_point, owner)
            rows.append(OwnerSpending(owner, held.purpose, held.epsilon, spent, left, returns))
        elif spent:
            rows.append(OwnerSpending(owner, purposes[owner], None, spent, returns=returns))
    return Report(
        terms=ledger.terms,
        time_point=time_point,
        reserved=ledger.reserved,
        charged=ledger.spent(time_point) - ledger.reserved,
        left=ledger.left(time_point),
        owners=tuple(rows),
        returns=tuple(_returns(ledger, time_point)),
        written_off_until=ledger.written_off_until,
        levels=tuple(
            map(LevelSpending, ledger.terms.levels, ledger.spent_by_level(time_point), ledger.left_by_level(time_point))
        ),
    )


def _first_return(ledger: Ledger, time_point: int, owner: str) -> tuple[int, Fraction] | None:
    """When the oldest point of the window leaves it at which `owner` spent, and what was spent there."""
    if ledger.terms.is_finite:
        return None
    window = ledger.terms.points
    mine = [e for e in ledger.entries if e.owner == owner and time_point - window < e.time_point <= time_point]
    if not mine:
        return None
    oldest = min(entry.time_point for entry in mine)
    back = sum((entry.epsilon for entry in mine if entry.time_point == oldest), Fraction(0))
    return oldest + window, back


def _returns(ledger: Ledger, time_point: int) -> list[tuple[int, Fraction]]:
    """The first rises of what is left after `time_point`: budget comes back when a charged point leaves the window."""
    terms = ledger.terms
    if terms.is_finite:
        return []
    candidates = {entry.time_point + terms.points for entry in ledger.entries if entry.counted}
    if ledger.resumes_at is not None:
        candidates.add(ledger.resumes_at)
    found: list[tuple[int, Fraction]] = []
    best = ledger.left(time_point)
    for candidate in sorted(point for point in candidates if point > time_point):
        left = ledger.left(candidate)
        if left > best:
            found.append((candidate, left))
            best = left
        if best == ledger.chargeable or len(found) == _MAX_RETURNS:
            break
    return found


def refusal(ledger: Ledger, owner: str, time_point: int, short: Shortage, returns_at: int | None) -> BudgetExceeded:
    """Why a charge or a record does not fit, and when it will."""
    whom = "" if short.level is None else f" to users of the level {short.level.name!r}"
    when = f"it fits at time point {returns_at}" if returns_at is not None else _never(short)
    return BudgetExceeded(
        f"epsilon {decimal_text(short.asked)} for {owner!r} at time point {time_point} does not fit: "
        f"{decimal_text(short.left)} of {decimal_text(short.limit)} is left there{whom}{_reason(ledger, time_point)}; "
        + when,
        asked=short.asked,
        left=short.left,
        time_point=time_point,
        returns_at=returns_at,
        level=None if short.level is None else short.level.name,
    )


def _reason(ledger: Ledger, time_point: int) -> str:
    if ledger.terms.is_finite and time_point > ledger.terms.points:
        return f" (the horizon ends with time point {ledger.terms.points})"
    if ledger.resumes_at is None or time_point < ledger.resumes_at:
        return f" (everything up to time point {ledger.written_off_until} was written off)"
    if time_point < ledger.settled_before:
        return f" (time points before {ledger.settled_before} are settled)"
    return ""


def _never(short: Shortage) -> str:
    if short.asked > short.limit:
        return f"it never fits: at most {decimal_text(short.limit)} can be asked"
    return "nothing comes back under a finite horizon"
