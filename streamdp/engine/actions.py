"""What the engine wants done, in this order, in one transaction; publishing follows the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdp.engine.job import Job
from streamdp.privacy.ledger import Charge


@dataclass(frozen=True, slots=True)
class StoreRelease:
    """Released (public) counts, kept because the next decision is measured against them."""

    release_id: str
    histogram: str
    time_point: int
    counts: NDArray[np.int64]
    reason: str


@dataclass(frozen=True, slots=True)
class SaveState:
    """A strategy's state after the point, secrets (the threshold noise) included, with what subscribers hold.

    That is its `release_id`: of a release or of a forecast.
    """

    histogram: str
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Publish:
    """Exact bytes for an output topic; stored before they leave, and never made again."""

    time_point: int
    topic: str
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The population should be checkpointed at this point's cut, once the point is committed."""

    time_point: int


@dataclass(frozen=True, slots=True)
class SaveJob:
    """What became of a job."""

    job: Job


@dataclass(frozen=True, slots=True)
class StartJob:
    """Run the job, once its charge is committed; the snapshot it reads has to be on disk before that."""

    job: Job


@dataclass(frozen=True, slots=True)
class StopJob:
    """The job was cancelled: its worker may go."""

    job_id: str


Action = Charge | StoreRelease | SaveState | Publish | Checkpoint | SaveJob | StartJob | StopJob
