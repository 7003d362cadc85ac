"""One job, as the engine decides on it and the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

State = Literal["admitted", "done", "failed", "cancelled", "refused"]

FAILED = "failed"
"""The one reason of every failure: error, time, memory. Which of them it was may depend on the data."""


@dataclass(frozen=True, slots=True)
class Job:
    """A request and what became of it.

    `time_point` is that of the snapshot it reads, at which it is charged; None when it was refused. An admitted job is
    charged, and runs until it has a result, fails or is cancelled. `result` is what the worker gave back, until it
    is published at the boundary `published_at`. `amounts` is what each level of privacy pays, strictest first, when the
    job is personalised; `epsilon` is the largest of them.
    """

    job_id: str
    kind: str
    epsilon: Fraction
    params: Mapping[str, Any] = field(repr=False)
    state: State
    time_point: int | None = None
    reason: str | None = None
    result: bytes | None = field(default=None, repr=False)
    published_at: int | None = None
    amounts: tuple[Fraction, ...] | None = None

    @property
    def owner(self) -> str:
        """Who the ledger says was charged."""
        return owner_of(self.job_id)

    @property
    def is_open(self) -> bool:
        return self.state == "admitted"


def owner_of(job_id: str) -> str:
    return f"job:{job_id}"
