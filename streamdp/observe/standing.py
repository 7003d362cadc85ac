"""What the ledger says at a time point, for metrics and page: public once that point is published."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streamdp.engine.job import Job
from streamdp.privacy import Ledger


@dataclass(frozen=True)
class Standing:
    """What follows from the decisions up to a time point; public once that point is published."""

    time_point: int
    values: dict[tuple[str, tuple[str, ...]], float]
    jobs: tuple[Job, ...] = ()
    budget: dict[str, Any] = field(default_factory=dict)


def ledger_standing(
    ledger: Ledger, histograms: Iterable[str], time_point: int, length: float, jobs: tuple[Job, ...] = ()
) -> Standing:
    """Budgets at `time_point` (0: before the first), of points that last `length` seconds."""
    at, values = max(1, time_point), dict[tuple[str, tuple[str, ...]], float]()
    reserved = {reservation.owner: reservation.epsilon for reservation in ledger.reservations}
    shares = []
    for name in histograms:
        spent = ledger.spent(at, name)
        values["streamdp_epsilon_spent", (name,)] = float(spent)
        values["streamdp_epsilon_left", (name,)] = float(ledger.left(at, name))
        values["streamdp_epsilon_returns_seconds", (name,)] = length * returns_in(ledger, name, at)
        shares.append({"name": name, "reserved": float(reserved[name]), "spent": float(spent)})
    charged, left = ledger.spent(at) - ledger.reserved, ledger.left(at)
    values["streamdp_jobs_epsilon_limit", ()] = float(ledger.chargeable)
    values["streamdp_jobs_epsilon_spent", ()] = float(charged)
    values["streamdp_jobs_epsilon_left", ()] = float(left)
    values["streamdp_jobs_epsilon_returns_seconds", ()] = length * _more_for_jobs_in(ledger, at)
    budget = {
        "histograms": shares,
        "jobs": {"limit": float(ledger.chargeable), "spent": float(charged), "left": float(left)},
    }
    return Standing(time_point, values, jobs, budget)


def ledger_at(ledger: Ledger, time_point: int) -> Ledger:
    """The ledger as it stood when `time_point` had closed."""
    entries = [entry for entry in ledger.entries if entry.time_point <= time_point]
    return Ledger.restore(ledger.terms, ledger.reservations, entries, written_off_until=ledger.written_off_until)


def returns_in(ledger: Ledger, owner: str, time_point: int) -> float:
    """After how many points some of an owner's reservation comes back: 0 when none is spent, inf when none will."""
    if not ledger.spent(time_point, owner):
        return 0
    if ledger.terms.is_finite:
        return math.inf
    window = ledger.terms.points
    mine = (entry.time_point for entry in ledger.entries if entry.owner == owner)
    return next((point + window - time_point for point in mine if point > time_point - window), 0)


def _more_for_jobs_in(ledger: Ledger, time_point: int) -> float:
    if ledger.terms.is_finite:
        return math.inf if ledger.spent(time_point) > ledger.reserved else 0
    window = ledger.terms.points
    charged = (entry.time_point for entry in ledger.entries if entry.counted)
    return next((point + window - time_point for point in charged if point > time_point - window), 0)
