"""What the engine is told: frozen facts, never a record, never a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdp.population.moved import CountsMoved


@dataclass(frozen=True, slots=True)
class CountsLoaded:
    """The whole histogram as recovery found it; replaces what the engine held."""

    histogram: str
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PointClosed:
    """Time point `time_point`, the public interval [opened_ts, closed_ts), is over.

    `missed` says that nobody watched it (the daemon was down or asleep): nothing is asked of the data. It is how many
    points in a row, this one being the last. The interval is then that of all of them.
    """

    time_point: int
    opened_ts: int
    closed_ts: int
    missed: int = 0

    @property
    def first(self) -> int:
        """The first of a run of missed points; else the point itself."""
        return self.time_point - max(self.missed, 1) + 1


@dataclass(frozen=True, slots=True)
class JobRequested:
    """Somebody asks for a job; decided at the next boundary.

    `refusal` is what is wrong with the request by itself (then `kind` and `epsilon` may be missing). `by_level` says
    that each level of privacy pays its own amount, and `epsilon` is what the most liberal one pays.
    """

    job_id: str
    kind: str | None = None
    epsilon: Fraction | None = None
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    refusal: str | None = None
    by_level: bool = False


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody no longer wants a job; what it was charged stays spent."""

    job_id: str


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job's worker is done with it: `result` is what it gave back, or None when it failed, for whatever reason."""

    job_id: str
    result: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class BoundaryPassed:
    """A boundary of the public clock after the horizon's end, when no time point closes any more.

    `snapshot` tells whether the snapshot of the last time point is there to be read.
    """

    snapshot: bool


Event = CountsMoved | CountsLoaded | PointClosed | JobRequested | CancelRequested | JobFinished | BoundaryPassed

__all__ = [
    "BoundaryPassed",
    "CancelRequested",
    "CountsLoaded",
    "CountsMoved",
    "Event",
    "JobFinished",
    "JobRequested",
    "PointClosed",
]
