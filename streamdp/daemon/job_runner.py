"""The daemon's part in the life of a job: requests in, snapshots on disk, workers started and heard.

It decides nothing: the engine does, at boundaries. The order is always the same: the snapshot is on disk, the charge
and the request's offset are committed, the worker starts, its result is stored, the result leaves at a boundary.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from streamdp.config import StreamConfig
from streamdp.daemon import steps
from streamdp.daemon.preferences import PreferenceTable
from streamdp.engine import (
    Action,
    CancelRequested,
    Engine,
    JobFinished,
    JobRequested,
    SaveJob,
    StartJob,
    StopJob,
    Topics,
)
from streamdp.engine.job import Job
from streamdp.jobs import worker
from streamdp.jobs.catalogue import KINDS
from streamdp.jobs.executor import JobFailed, JobFuture, Limits, SpawnExecutor
from streamdp.jobs.request import Rules, read_request
from streamdp.journal import JobsCommit, Journal
from streamdp.population import Population, relevel, write_snapshot
from streamdp.transport.base import TopicPartition, Transport, Unreachable

log = logging.getLogger("streamdp.jobs")

# A boundary decides on so many requests at most, so that a flood of them does not delay the next close. As many that
# are wrong by themselves are answered; more of those are dropped, so that they delay no other.
REQUESTS_AT_ONCE = 100
REQUEST_BYTES_AT_ONCE = 1 << 20
# How long a turn of the loop may read requests. Reading one takes some ten microseconds.
READ_SECONDS = 0.05


class JobRunner:
    """Requests, snapshots and workers of one stream. Jobs that a crash interrupted start again with `resume`."""

    def __init__(
        self,
        config: StreamConfig,
        journal: Journal,
        target: Transport,
        engine: Engine,
        preferences: PreferenceTable | None = None,
    ) -> None:
        self._journal, self._engine, self._preferences = journal, engine, preferences
        self._directory = config.snapshot_path
        self._ledger = journal.ledger
        self._rules = rules_of(config)
        self._requests = TopicPartition(Topics.of(config.output_prefix).jobs, 0)
        self._unread: deque[tuple[int, bytes | None]] = deque()
        self._asked: list[JobRequested | CancelRequested] = []
        self._wrong = 0  # of those asked
        self._dropped = 0
        self._running: dict[str, JobFuture] = {}
        self._told: dict[str, tuple[int, int] | None] = {}
        megabyte = 1 << 20
        self._pool = SpawnExecutor(
            config.jobs.workers, Limits(config.jobs.time_limit_seconds, config.jobs.memory_mb * megabyte)
        )
        self._committed = self._read_to = self._position(target)
        self._reader = target.reader({self._requests: self._committed})

    def _position(self, target: Transport) -> int:
        """Where to read on. A new journal begins at the end: what was asked before was asked of another."""
        topic, position = self._requests.topic, self._journal.jobs_position()
        begin, end = target.begin_offsets([topic])[self._requests], target.end_offsets([topic])[self._requests]
        if position is None:
            self._journal.commit_jobs(JobsCommit(self._journal.last_time_point, jobs_position=end))
            return end
        # Beyond the end: the topic was made anew. Ids that were admitted before are refused.
        return begin if position > end else max(position, begin)

    def resume(self) -> None:
        """Runs again what was admitted and has no outcome: on its own snapshot, for the charge it has paid."""
        self._tidy_up()
        for job in self._engine.open_jobs:
            self._run(job)

    # Every turn of the daemon's loop

    def look(self) -> int:
        """Takes requests in, and stores what workers gave back. Returns how many requests were dropped."""
        self._read_requests()
        finished = [job_id for job_id, future in self._running.items() if future.done()]
        for job_id in finished:
            self._finish(job_id, self._running.pop(job_id))
        self._tell_progress()
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _read_requests(self) -> None:
        """No more than the next boundary decides on: the rest waits in its topic. What is malformed leaves nothing."""
        deadline = time.monotonic() + READ_SECONDS
        while self._decidable < REQUESTS_AT_ONCE and time.monotonic() < deadline and (self._unread or self._poll()):
            offset, value = self._unread.popleft()
            event = read_request(value, self._rules)
            self._read_to = offset + 1
            if event is None or not self._has_room(event):
                self._dropped += 1
            else:
                self._asked.append(event)
                self._wrong += _is_wrong(event)

    def _poll(self) -> bool:
        with suppress(Unreachable):  # an output that is away must not stop the points
            for batch in self._reader.poll(max_bytes=REQUEST_BYTES_AT_ONCE):
                self._unread.extend(zip(batch.offsets.tolist(), batch.values, strict=True))
        return bool(self._unread)

    @property
    def _decidable(self) -> int:
        return len(self._asked) - self._wrong

    def _has_room(self, event: JobRequested | CancelRequested) -> bool:
        """Not for more wrong requests than a boundary answers, nor for a cancel that cancels nothing."""
        if isinstance(event, JobRequested):
            return not _is_wrong(event) or self._wrong < REQUESTS_AT_ONCE
        ids = {asked.job_id for asked in self._asked if isinstance(asked, JobRequested)}
        return event not in self._asked and event.job_id in ids.union(job.job_id for job in self._engine.open_jobs)

    def _finish(self, job_id: str, future: JobFuture) -> None:
        # Not logged here: the moment a job ends depends on the data. Boundaries log what becomes of it.
        try:
            result = future.result()
        except JobFailed:
            result = None
        self._store(self._engine.handle(JobFinished(job_id, result)))

    def _store(self, actions: Sequence[Action]) -> None:
        if saved := [action.job for action in actions if isinstance(action, SaveJob)]:
            steps.reach("result.before")
            self._journal.commit_jobs(JobsCommit(self._journal.last_time_point, jobs=saved))
            steps.reach("result.stored")

    # At a boundary

    def bring_requests(self) -> int | None:
        """Hands what was asked to the engine; returns the position to commit with what it decides, if it has moved."""
        for event in self._asked:
            self._engine.handle(event)
        self._asked.clear()
        self._wrong = 0
        if self._read_to == self._committed:
            return None
        self._committed = self._read_to
        return self._committed

    def freeze(self, actions: Iterable[Action], population: Population, time_point: int) -> None:
        """Before the commit: the snapshot that the admitted jobs read, and the last one, for jobs to come."""
        wanted = any(isinstance(action, StartJob) for action in actions)
        last = self._engine.ended and max(self._ledger.left_by_level(time_point)) > 0
        if wanted or last:
            steps.reach("admit.before")
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            levels = None if self._preferences is None else self._preferences.current()
            write_snapshot(
                population,
                self._directory,
                time_point,
                # Whose level changes after the horizon's end is found in the last snapshot by their digest.
                with_users=last and levels is not None,
                levels=levels,
                level_count=len(self._ledger.terms.levels),
            )
            steps.reach("admit.frozen")

    def relevel(self, actions: Iterable[Action], time_point: int) -> None:
        """After the horizon's end, before the commit: gives the last snapshot the levels that users have by now."""
        if self._preferences is not None and any(isinstance(action, StartJob) for action in actions):
            relevel(self._snapshot(time_point), self._preferences.current(), len(self._ledger.terms.levels))

    def carry_out(self, actions: Iterable[Action]) -> None:
        """After the commit: starts and stops workers."""
        for action in actions:
            match action:
                case SaveJob(job) if job.published_at is not None:
                    # Not how it ended: that is not public yet.
                    log.info("job over", extra={"fields": {"job": job.job_id, "kind": job.kind}})
                case StartJob(job):
                    steps.reach("admit.after")
                    self._run(job)
                    steps.reach("job.started")
                case StopJob(job_id):
                    if (future := self._running.pop(job_id, None)) is not None:
                        future.stop()
        self._tidy_up()

    @property
    def in_workers(self) -> set[str]:
        """The ids of the jobs that run now."""
        return {job_id for job_id, future in self._running.items() if future.running()}

    def has_snapshot(self, time_point: int) -> bool:
        return self._snapshot(time_point).exists()

    def close(self) -> None:
        """Ends the workers. Their jobs run again at the next start, as after a crash."""
        self._pool.shutdown(cancel_futures=True)
        self._reader.close()
        if self._preferences is not None:
            self._preferences.close()
        self._progress_file.unlink(missing_ok=True)

    # Inside

    def _run(self, job: Job) -> None:
        assert job.time_point is not None  # it was admitted
        log.info("job started", extra={"fields": {"job": job.job_id, "kind": job.kind, "time_point": job.time_point}})
        self._running[job.job_id] = self._pool.submit(
            worker.run, job.kind, job.epsilon, dict(job.params), self._snapshot(job.time_point), job.amounts
        )

    def _snapshot(self, time_point: int) -> Path:
        return self._directory / f"snapshot-{time_point:012d}.columns"

    def _tidy_up(self) -> None:
        """Deletes the snapshots that no job reads any more."""
        kept = {self._snapshot(job.time_point) for job in self._engine.open_jobs if job.time_point is not None}
        if self._engine.ended:
            kept.add(self._snapshot(self._engine.last_point))
        for path in self._directory.glob("snapshot-*"):
            if path not in kept:
                path.unlink()

    @property
    def _progress_file(self) -> Path:
        return self._directory / "progress.json"

    def _tell_progress(self) -> None:
        """For `streamdp job show`; public quantities only, but beside the journal and as private."""
        told = {job_id: future.progress for job_id, future in self._running.items() if future.running()}
        if told == self._told:
            return
        self._told = told
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._progress_file.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(told, file)
        fresh.replace(self._progress_file)


def _is_wrong(event: JobRequested | CancelRequested) -> bool:
    return isinstance(event, JobRequested) and event.refusal is not None


def rules_of(config: StreamConfig) -> Rules:
    """What jobs of this stream may ask."""
    kinds = tuple(KINDS) if config.jobs.kinds is None else tuple(config.jobs.kinds)
    levels = len(config.levels)
    return Rules(config.build_domain(), config.records_per_user, kinds, config.jobs.max_epsilon, levels)


def read_progress(config: StreamConfig) -> dict[str, tuple[int, int] | None]:
    """How far the running jobs are, by id; empty when no daemon runs."""
    try:
        found: dict[str, tuple[int, int] | None] = json.loads((config.snapshot_path / "progress.json").read_text())
    except (OSError, ValueError):
        return {}
    return found
