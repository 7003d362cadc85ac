"""The life of a job, decided at the boundaries of time points.

A request is refused, or admitted: charged at the snapshot of the point that just closed, in the transaction of that
point. An admitted job runs until it is done, failed or cancelled; what became of it leaves at a boundary too, so that
the moment a result leaves says little about how long it took.

Privacy: a job costs the epsilon it asked for, charged once, whatever becomes of it. Every decision here follows from
requests, the ledger and the public clock; that a job failed is an output of its mechanism, paid for by its charge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

from streamdp import result_messages
from streamdp.engine.actions import Action, Publish, SaveJob, StartJob, StopJob
from streamdp.engine.events import CancelRequested, JobFinished, JobRequested
from streamdp.engine.job import FAILED, Job, owner_of
from streamdp.engine.topics import Topics
from streamdp.privacy import ledger
from streamdp.privacy.exact import decimal_text, to_text


class Budget(Protocol):
    """What is asked of the ledger before a job is admitted."""

    def check_book(self, entries: Iterable[ledger.Charge]) -> None: ...

    def amounts(self, epsilon: Fraction) -> tuple[Fraction, ...]: ...


class JobQueue:
    """Every job of one stream that may still cause something.

    `known` are the ids of all jobs ever admitted: an id is charged once, and "." and "_" are the same in it. `jobs` are
    those that are open, or have an outcome that was not published yet, as the journal holds them.
    """

    def __init__(
        self,
        *,
        stream: str,
        topics: Topics,
        budget: Budget,
        max_waiting: int,
        known: Iterable[str] = (),
        jobs: Iterable[Job] = (),
    ) -> None:
        self._stream = stream
        self._topics = topics
        self._budget = budget
        self._max_waiting = max_waiting
        self._known = {_topic_key(job_id) for job_id in known}
        self._asked: list[JobRequested | CancelRequested] = []
        self._open: dict[str, Job] = {}
        self._finished: list[Job] = []
        for job in jobs:
            if job.is_open:
                self._open[job.job_id] = job
            else:
                self._finished.append(job)

    @property
    def open_jobs(self) -> tuple[Job, ...]:
        """Admitted, and without an outcome."""
        return tuple(self._open.values())

    def handle(self, event: JobRequested | CancelRequested | JobFinished) -> list[Action]:
        """Requests wait for a boundary; an outcome is stored at once and leaves at a boundary."""
        if not isinstance(event, JobFinished):
            self._asked.append(event)
            return []
        job = self._open.pop(event.job_id, None)
        if job is None:
            return []
        if event.result is None:
            return [self._finish(replace(job, state="failed", reason=FAILED))]
        return [self._finish(replace(job, state="done", result=event.result))]

    def boundary(self, time_point: int, snapshot: bool = True) -> list[Action]:
        """Decides on what was asked, reading the snapshot of `time_point`, and lets outcomes leave."""
        actions: list[Action] = []
        asked, self._asked = self._asked, []
        pending: list[ledger.Charge] = []
        for event in asked:
            if isinstance(event, CancelRequested):
                actions += self._cancel(event.job_id)
            else:
                actions += self._decide(event, time_point, snapshot, pending)
        return actions + self.results(time_point)

    def results(self, time_point: int) -> list[Action]:
        """Lets outcomes leave at the boundary of `time_point`."""
        actions: list[Action] = []
        for job in self._finished:
            text, rows = (None, []) if job.result is None else result_messages.unpack(job.result)
            header = self._header(time_point, job.job_id, job.kind, job.state)
            header |= {"epsilon": to_text(job.epsilon), "time_point": job.time_point}
            if job.amounts is not None:
                header["epsilon_by_level"] = [to_text(amount) for amount in job.amounts]
            if job.reason is not None:
                header["reason"] = job.reason
            if rows:
                header["rows"] = {"topic": self._topics.rows(job.job_id), "parts": len(rows)}
            actions += [Publish(time_point, self._topics.rows(job.job_id), job.job_id.encode(), part) for part in rows]
            actions += self._publish(time_point, header, text)
            # The bytes live on as messages.
            actions.append(SaveJob(replace(job, result=None, published_at=time_point)))
        self._finished = []
        return actions

    def _decide(
        self, event: JobRequested, time_point: int, snapshot: bool, pending: list[ledger.Charge]
    ) -> list[Action]:
        if event.refusal is not None or event.kind is None or event.epsilon is None:
            return self._refuse(event, time_point, event.refusal or "the request is not complete", keep=False)
        if _topic_key(event.job_id) in self._known:
            return self._refuse(event, time_point, "this id was used before; choose another", keep=False)
        if len(self._open) >= self._max_waiting:
            return self._refuse(event, time_point, f"{self._max_waiting} jobs are open already; ask again later")
        if not snapshot:
            return self._refuse(event, time_point, "the snapshot of the last time point is gone")
        try:
            amounts = self._budget.amounts(event.epsilon) if event.by_level else None
            charge = ledger.Charge(time_point, owner_of(event.job_id), event.epsilon, event.kind, amounts=amounts)
            self._budget.check_book([*pending, charge])
        except ledger.BudgetExceeded as error:
            return self._refuse(event, time_point, *_why(error))
        pending.append(charge)
        job = Job(event.job_id, event.kind, event.epsilon, event.params, "admitted", time_point, amounts=amounts)
        self._known.add(_topic_key(job.job_id))
        self._open[job.job_id] = job
        booked = ledger.Charge(time_point, job.owner, job.epsilon, job.kind, amounts=amounts)
        return [booked, SaveJob(job), StartJob(job)]

    def _refuse(
        self,
        event: JobRequested,
        time_point: int,
        reason: str,
        details: dict[str, Any] | None = None,
        *,
        keep: bool = True,
    ) -> list[Action]:
        """An answer; remembered (`keep`) when the request was right by itself and its id is free."""
        header = self._header(time_point, event.job_id, event.kind, "refused")
        header |= {"epsilon": "0/1", "time_point": None, "reason": reason, **(details or {})}
        actions = self._publish(time_point, header, None)
        if keep:
            assert event.kind is not None and event.epsilon is not None  # it is right by itself
            job = Job(
                event.job_id,
                event.kind,
                event.epsilon,
                event.params,
                "refused",
                reason=reason,
                published_at=time_point,
            )
            actions.append(SaveJob(job))
        return actions

    def _cancel(self, job_id: str) -> list[Action]:
        job = self._open.pop(job_id, None)
        if job is None:
            return []
        return [self._finish(replace(job, state="cancelled", reason="cancelled")), StopJob(job_id)]

    def _finish(self, job: Job) -> SaveJob:
        self._finished.append(job)
        return SaveJob(job)

    def _header(self, published_at: int, job_id: str, kind: str | None, state: str) -> dict[str, Any]:
        return {
            "kind": "result",
            "stream": self._stream,
            "id": job_id,
            "job": kind,
            "state": state,
            "published_at": published_at,
        }

    def _publish(self, time_point: int, header: dict[str, Any], text: str | None) -> list[Action]:
        key = str(header["id"]).encode()
        parts = result_messages.encode_result(header, text)
        return [Publish(time_point, self._topics.results, key, part) for part in parts]


def _topic_key(job_id: str) -> str:
    """Rows have a topic named after their job, and Kafka refuses one that differs from another in "." and "_" only: the
    result could never leave."""
    return job_id.replace(".", "_")


def _why(error: ledger.BudgetExceeded) -> tuple[str, dict[str, Any]]:
    returns = "it never will" if error.returns_at is None else f"it fits from time point {error.returns_at} on"
    whose = "" if error.level is None else f" to users of the level {error.level!r}"
    reason = f"epsilon {decimal_text(error.asked)} does not fit: {decimal_text(error.left)} is left{whose}; {returns}"
    details = {"epsilon_left": to_text(error.left), "returns_at": error.returns_at}
    return reason, details if error.level is None else details | {"level": error.level}
