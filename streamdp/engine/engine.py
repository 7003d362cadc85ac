"""The state machine between a dataset that moves and releases that leave.

Events in, actions out. It does no I/O, knows no clock and never sees a record: a recorded trace is a list of events,
and a replay is a loop over `handle`. What it returns for a point is committed as one transaction, then published.

Privacy: the engine adds nothing to what its strategies spend. It calls `step` once per histogram and watched point,
and `skip`, which looks at no data, for the others. A run of missed points is one event, and one message for each
histogram, however long it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamdp import messages
from streamdp.domain import View
from streamdp.engine.actions import Action, Checkpoint, Publish, SaveState, StoreRelease
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
from streamdp.engine.job import Job
from streamdp.engine.job_queue import JobQueue
from streamdp.engine.topics import Topics
from streamdp.privacy.exact import to_text
from streamdp.privacy.ledger import Charge
from streamdp.strategies import Decision, Strategy


class Budget(Protocol):
    """What the engine reads of the ledger, to tell subscribers what is left."""

    def left(self, time_point: int, owner: str) -> Fraction: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """One histogram of the stream: what is counted, who decides, how it is written."""

    view: View
    kind: str
    strategy: Strategy
    method: str
    encoding: messages.Encoding = "auto"

    @property
    def name(self) -> str:
        return self.view.name


class Engine:
    """One decision per histogram per closed point, and one message: a release, a forecast or a repeat.

    `last_point` is the last point already done, `release_ids` what subscribers hold of each histogram (a release or a
    forecast), both as the journal knows them. Before `resumes_at` (None: never again) the budget is the operator's
    loss, written off: points are repeated without a look at the data. `jobs` decides on jobs; a replay has none.
    """

    def __init__(
        self,
        *,
        stream: str,
        journal_id: str,
        plans: Sequence[Plan],
        budget: Budget,
        topics: Topics,
        horizon: int | None = None,
        checkpoint_every: int = 100,
        last_point: int = 0,
        release_ids: Mapping[str, str | None] | None = None,
        resumes_at: int | None = 1,
        jobs: JobQueue | None = None,
    ) -> None:
        self.stream = stream
        self.journal_id = journal_id
        self.plans = {plan.name: plan for plan in plans}
        self.topics = topics
        self.horizon = horizon
        self.last_point = last_point
        self._budget = budget
        self._checkpoint_every = checkpoint_every
        self._resumes_at = resumes_at
        self._jobs = jobs
        self._release_ids: dict[str, str | None] = {plan.name: (release_ids or {}).get(plan.name) for plan in plans}
        self._counts: dict[str, NDArray[np.int64]] = {
            plan.name: np.zeros(plan.view.cells, dtype=np.int64) for plan in plans
        }

    @property
    def open_jobs(self) -> tuple[Job, ...]:
        """Jobs that are charged and have no outcome yet."""
        return () if self._jobs is None else self._jobs.open_jobs

    @property
    def ended(self) -> bool:
        """True once the finite horizon's last point is done; nothing is asked or published any more."""
        return self.horizon is not None and self.last_point >= self.horizon

    def handle(self, event: Event) -> list[Action]:
        """Takes one event; returns what it causes, in the order it must happen."""
        match event:
            case CountsMoved(histogram, cells, changes):
                np.add.at(self._counts[histogram], cells, changes)
                return []
            case CountsLoaded(histogram, counts):
                self._counts[histogram] = counts.astype(np.int64, copy=True)
                return []
            case PointClosed():
                return self._close(event)
            case JobRequested() | CancelRequested() | JobFinished():
                return [] if self._jobs is None else self._jobs.handle(event)
            case BoundaryPassed(snapshot):
                return [] if self._jobs is None else self._jobs.boundary(self.last_point, snapshot)

    def _close(self, event: PointClosed) -> list[Action]:
        if self.ended:
            return []
        if event.first != self.last_point + 1:
            raise ValueError(f"time point {event.first} does not follow {self.last_point}")
        actions: list[Action] = []
        for plan in self.plans.values():
            actions += self._histogram(plan, event)
        self.last_point = event.time_point
        if self._jobs is not None:
            actions += self._jobs.results(event.time_point) if event.missed else self._jobs.boundary(event.time_point)
        if self.ended:
            actions += [self._ended(plan, event) for plan in self.plans.values()]
        actions.append(self._head(event))
        if event.time_point % self._checkpoint_every == 0:
            actions.append(Checkpoint(event.time_point))
        return actions

    def _histogram(self, plan: Plan, event: PointClosed) -> list[Action]:
        written_off = self._resumes_at is None or event.time_point < self._resumes_at
        if event.missed or written_off:
            decision = plan.strategy.skip(max(event.missed, 1))
            reason = "missed" if event.missed else "written off"
        else:
            decision = plan.strategy.step(self._counts[plan.name])
            reason = decision.reason
        actions: list[Action] = [
            Charge(event.time_point, plan.name, epsilon, purpose, counted=False) for epsilon, purpose in decision.costs
        ]
        is_new = decision.kind != "repeat"
        if is_new:
            self._release_ids[plan.name] = f"{self.journal_id[:12]}.{plan.name}.{event.time_point}"
        release_id = self._release_ids[plan.name]
        # With its id, because a strategy counts its own points, which need not begin with the stream's.
        actions.append(SaveState(plan.name, {**plan.strategy.state(), "release_id": release_id}))
        header = self._header(plan, event, decision, reason)
        if not is_new:
            header = {"kind": "repeat", **header, "release_id": release_id}
            return [*actions, self._publish(event, self.topics.releases, plan.name, messages.encode(header))]
        assert release_id is not None  # it was just made
        assert decision.counts is not None  # only a repeat may have none
        if decision.fresh:
            # A forecast is no release: it follows from the last one, which the journal goes on holding.
            actions.append(StoreRelease(release_id, plan.name, event.time_point, decision.counts, reason))
        header = {"kind": decision.kind, **header, "release_id": release_id, **self._describe(plan, decision)}
        parts = messages.encode_release(header, decision.counts, plan.encoding)
        actions += [self._publish(event, self.topics.releases, plan.name, part) for part in parts]
        actions += [
            self._publish(event, self.topics.latest, f"{plan.name}/{number}", part)
            for number, part in enumerate(parts, start=1)
        ]
        return actions

    def _header(self, plan: Plan, event: PointClosed, decision: Decision, reason: str) -> dict[str, Any]:
        spent = sum((epsilon for epsilon, _ in decision.costs), Fraction(0))
        return {
            "stream": self.stream,
            "histogram": plan.name,
            "time_point": event.time_point,
            **_run(event),
            "opened": event.opened_ts,
            "closed": event.closed_ts,
            "strategy": plan.kind,
            "reason": reason,
            "guarantee": plan.strategy.guarantee,
            "threshold": None if decision.threshold is None else to_text(Fraction(decision.threshold)),
            "charges": [[to_text(epsilon), purpose] for epsilon, purpose in decision.costs],
            "epsilon_left": to_text(self._budget.left(event.time_point, plan.name) - spent),
        }

    def _describe(self, plan: Plan, decision: Decision) -> dict[str, Any]:
        return {
            "epsilon": to_text(decision.epsilon),
            "mechanism": "discrete Laplace",
            "method": plan.method,
            "noise_scale": None if decision.scale is None or decision.combined else to_text(decision.scale),
            "variance": None if decision.variance is None else decision.variance.to_json(),
            "domain": plan.view.domain.fingerprint,
            "view": plan.view.describe(),
        }

    def _ended(self, plan: Plan, event: PointClosed) -> Publish:
        header = {
            "kind": "ended",
            "stream": self.stream,
            "histogram": plan.name,
            "time_point": event.time_point,
            "closed": event.closed_ts,
            "release_id": self._release_ids[plan.name],
        }
        return self._publish(event, self.topics.releases, plan.name, messages.encode(header))

    def _head(self, event: PointClosed) -> Publish:
        header = {
            "kind": "head",
            "stream": self.stream,
            "time_point": event.time_point,
            **_run(event),
            "closed": event.closed_ts,
            "journal_id": self.journal_id,
            "ended": self.ended,
        }
        return self._publish(event, self.topics.head, self.stream, messages.encode(header))

    @staticmethod
    def _publish(event: PointClosed, topic: str, key: str, value: bytes) -> Publish:
        return Publish(event.time_point, topic, key.encode(), value)


def _run(event: PointClosed) -> dict[str, int]:
    """Where a run of missed points begins; it ends with the message's time point."""
    return {"first_missed": event.first} if event.missed else {}
