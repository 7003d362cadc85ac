"""How the tests open a journal, and points to commit to it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from streamdp.journal import Journal, JournalReader, PointCommit, Release
from streamdp.privacy.ledger import Charge
from streamdp.privacy.terms import Terms
from streamdp.transport.base import Message, TopicPartition

SETTINGS: dict[str, Any] = {
    "input_identity": "cluster-1/records",
    "output_identity": "cluster-2",
    "terms": Terms.w_event(1, 10),
    "settings": {"stream.name": "visits", "time.length": "1s", "time.expire_after": 20},
    "may_shorten": {"time.expire_after"},
}


def open_journal(path: Path, **changed: Any) -> Journal:
    """As a start does, which keeps the settings when nothing was refused."""
    given = {**SETTINGS, **changed}
    journal = Journal.create_or_open(path, **given)
    journal.keep_settings(given["settings"])
    return journal


def fresh_point(time_point: int, cells: int = 4, epsilon: Fraction = Fraction(1, 20), **changed: Any) -> PointCommit:
    """A point at which the histogram "ages" releases counts that follow from the time point."""
    settings: dict[str, Any] = {
        "time_point": time_point,
        "opened_ts": 1000 * time_point,
        "closed_ts": 1000 * time_point + 999,
        "cut": {TopicPartition("records", 0): 10 * time_point, TopicPartition("records", 1): 20 * time_point},
        "charges": (Charge(time_point, "ages", epsilon, "release", counted=False),),
        "engine_state": {"ages": {"time_point": time_point, "rho": 17}},
        "releases": (Release(f"r{time_point}", "ages", np.arange(cells) * time_point - 2, "scheduled"),),
        "messages": (
            Message("visits.releases", f"release {time_point}".encode(), b"ages", headers=(("kind", b"release"),)),
            Message("visits.head", f"head {time_point}".encode(), b"head", timestamp=time_point, partition=0),
        ),
    }
    return PointCommit(**{**settings, **changed})


def missed_points(first: int, last: int) -> PointCommit:
    """A run of points that nobody watched."""
    return PointCommit(
        last, 1000 * first, 1000 * last + 999, None, "missed", first=first, messages=fresh_point(last).messages
    )


def contents(journal: JournalReader) -> list[Any]:
    """Every row of every table."""
    tables = [name for (name,) in journal.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [journal.rows(f"SELECT * FROM {table}") for table in tables]
