"""What a ledger holds: reservations and charges, and what is said when one does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from streamdp.errors import StreamdpError


class BudgetExceeded(StreamdpError):
    """A charge, record or reservation does not fit; nothing was changed and no data may be touched.

    With levels of privacy, `asked` and `left` are those of `level`, the strictest one that cannot bear it.
    """

    def __init__(
        self,
        message: str,
        *,
        asked: Fraction,
        left: Fraction,
        time_point: int | None,
        returns_at: int | None,
        level: str | None = None,
    ) -> None:
        super().__init__(message)
        self.asked = asked
        self.left = left
        self.time_point = time_point
        self.returns_at = returns_at
        self.level = level


@dataclass(frozen=True, slots=True)
class Reservation:
    """A constant share of every window (or of the whole horizon), held for ever."""

    owner: str
    epsilon: Fraction
    purpose: str


@dataclass(frozen=True, slots=True)
class Charge:
    """One entry: `epsilon` spent on the snapshot of `time_point`.

    `counted` is false for the audit trail of an owner with a reservation, whose share is already set aside. `amounts`
    is what a user of each level pays, strictest level first, when that is not the same for all; `epsilon` is then the
    largest of them.
    """

    time_point: int
    owner: str
    epsilon: Fraction
    purpose: str
    counted: bool = True
    amounts: tuple[Fraction, ...] | None = None
