"""The pure core: events in, actions out."""

from streamdp.engine.actions import (
    Action,
    Checkpoint,
    Publish,
    SaveJob,
    SaveState,
    StartJob,
    StopJob,
    StoreRelease,
)
from streamdp.engine.engine import Engine, Plan
from streamdp.engine.events import (
    BoundaryPassed,
    CancelRequested,
    CountsLoaded,
    CountsMoved,
    Event,
    JobFinished,
    JobRequested,
    PointClosed,
)
from streamdp.engine.job_queue import JobQueue
from streamdp.engine.topics import Topics
from streamdp.privacy.ledger import Charge

__all__ = [
    "Action",
    "BoundaryPassed",
    "CancelRequested",
    "Charge",
    "Checkpoint",
    "CountsLoaded",
    "CountsMoved",
    "Engine",
    "Event",
    "JobFinished",
    "JobQueue",
    "JobRequested",
    "Plan",
    "PointClosed",
    "Publish",
    "SaveJob",
    "SaveState",
    "StartJob",
    "StopJob",
    "StoreRelease",
    "Topics",
]
