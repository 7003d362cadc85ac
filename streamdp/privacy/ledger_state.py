"""A ledger as JSON and back."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from streamdp.privacy.entries import Charge, Reservation
from streamdp.privacy.exact import as_fraction, to_text
from streamdp.privacy.terms import Terms

if TYPE_CHECKING:
    from streamdp.privacy.ledger import Ledger

FORMAT = 1
FORMAT_WITH_LEVELS = 2
"""An older version would take the total for everybody's, so it must not read a ledger with levels."""


def write(ledger: Ledger) -> dict[str, Any]:
    return {
        "format": FORMAT_WITH_LEVELS if ledger.terms.levels else FORMAT,
        "terms": ledger.terms.state(),
        "written_off_until": ledger.written_off_until,
        "settled_before": ledger.settled_before,
        "reservations": [[r.owner, to_text(r.epsilon), r.purpose] for r in ledger.reservations],
        "entries": [
            [e.time_point, e.owner, to_text(e.epsilon), e.purpose, e.counted, *by_level(e.amounts)]
            for e in ledger.entries
        ],
    }


def read(state: dict[str, Any]) -> dict[str, Any]:
    """What `Ledger.restore` takes."""
    terms = Terms.from_state(state["terms"])
    readable = FORMAT_WITH_LEVELS if terms.levels else FORMAT
    if state["format"] != readable:
        raise ValueError(f"a ledger of format {state['format']} is not readable; this version reads {readable}")
    return {
        "terms": terms,
        "reservations": [Reservation(owner, as_fraction(e), purpose) for owner, e, purpose in state["reservations"]],
        "entries": [
            Charge(time_point, owner, as_fraction(epsilon), purpose, bool(counted), amounts_of(*amounts))
            for time_point, owner, epsilon, purpose, counted, *amounts in state["entries"]
        ],
        "written_off_until": state["written_off_until"],
        "settled_before": state["settled_before"],
    }


def by_level(amounts: Sequence[Fraction] | None) -> list[list[str]]:
    """A last element for charges by level only, so that what others wrote stays as it was."""
    return [] if amounts is None else [[to_text(amount) for amount in amounts]]


def amounts_of(texts: Sequence[str] | None = None) -> tuple[Fraction, ...] | None:
    return None if texts is None else tuple(map(as_fraction, texts))
