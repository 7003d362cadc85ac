"""Shows what the daemon does: metrics on two listeners, health, and the status page.

Public values move only when the messages they come from are published. What follows from a decision before that (the
ledger, the controllers) waits in a queue until its time point has left.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from prometheus_client import ProcessCollector

from streamdp import __version__, messages
from streamdp.client import Release, latest
from streamdp.config import StreamConfig
from streamdp.config.report import promise
from streamdp.config.transports import open_input, open_output
from streamdp.engine import Action, Plan, StartJob, Topics
from streamdp.engine.job import Job
from streamdp.ingest import Decoded
from streamdp.ingest.decoded import Reason
from streamdp.jobs.catalogue import KINDS
from streamdp.journal import Journal, StoredMessage, last_backup
from streamdp.observe.board import MAX_JOBS, MAX_POINTS, Board
from streamdp.observe.health import Health
from streamdp.observe.metrics import Metrics
from streamdp.observe.observer import Observer, Work
from streamdp.observe.page import page_routes
from streamdp.observe.server import Answer, Listener, Query, metrics_route
from streamdp.observe.standing import Standing, ledger_at, ledger_standing
from streamdp.population import Population
from streamdp.privacy import Ledger
from streamdp.transport.base import TopicPartition, Transport
from streamdp.transport.tail import tail

OUTCOMES = ("done", "failed", "cancelled", "refused")
OTHER_KIND = "other"
"""A refused request may name anything as its kind; no such text becomes a label."""


class Watch(Observer):
    """The observer of a daemon whose configuration names a listener. Use it as a context: it listens inside."""

    def __init__(self, config: StreamConfig) -> None:
        self._config = config
        self._topics = Topics.of(config.output_prefix)
        self._public, self._operator = Metrics("public", config.name), Metrics("operator", config.name)
        ProcessCollector(registry=self._operator.registry)
        self._board = Board(_about(config), config.build_views())
        self._health = Health()
        self._standings: deque[Standing] = deque()
        self._queued: dict[int, StoredMessage] = {}
        self._job_began: dict[str, tuple[str, bool, float]] = {}
        self._listeners: list[Listener] = []
        self._transports: list[Transport] = []
        self._constants()

    def __enter__(self) -> Self:
        observe = self._config.observe
        public = {"/metrics": metrics_route(self._public.registry), **self._health_routes()}
        operator = {"/metrics": metrics_route(self._operator.registry)}
        wanted = [
            ("metrics", observe.metrics, public, None),
            ("operator_metrics", observe.operator_metrics, operator, observe.operator_hosts),
            ("page", observe.page, page_routes(self._board), None),
        ]
        try:
            for name, address, routes, hosts in wanted:
                if address is not None:
                    self._listeners.append(Listener(name, address, routes, hosts))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._health.close()
        for listener in self._listeners:
            listener.close()
        for transport in self._transports:
            transport.close()
        self._listeners, self._transports = [], []

    # What the daemon says

    def opened(self, journal: Journal, population: Population, target: Transport, plans: Mapping[str, Plan]) -> None:
        self._ledger, self._plans = journal.ledger, plans
        self._operator["streamdp_population_users"].set_function(lambda: population.users)
        self._operator["streamdp_population_bytes"].set_function(lambda: population.nbytes)
        path, journal_id = self._config.journal_path, journal.identity.journal_id
        self._operator["streamdp_journal_bytes"].set_function(lambda: _size(path))
        self._operator["streamdp_backup_timestamp_seconds"].set_function(lambda: last_backup(path, journal_id))
        self._recall(target, journal)
        source, output = open_input(self._config), open_output(self._config)
        self._transports = [source, output]
        self._health.watch("input", lambda: self._ask_input(source))
        self._health.watch("output", lambda: output.end_offsets([self._topics.releases]))

    def running(self, next_opens: int) -> None:
        self._health.set_next_opens(next_opens)
        self._health.set_running(True)

    def clock_held(self, held: bool) -> None:
        self._health.set_clock_held(held)

    def stopping(self) -> None:
        self._health.set_running(False)

    @contextmanager
    def timed(self, work: Work) -> Iterator[None]:
        name = "streamdp_journal_commit_seconds" if work == "commit" else f"streamdp_{work}_seconds"
        began = time.perf_counter()
        yield
        self._operator[name].observe(time.perf_counter() - began)

    def fed(self, decoded: Decoded) -> None:
        self._operator["streamdp_rows_ingested_total"].inc(len(decoded))
        self._operator["streamdp_rows_dropped_total"].inc(len(decoded.dropped_rows))
        for reason, count in decoded.rejected_by_reason().items():
            self._operator["streamdp_rows_rejected_total"].labels(reason.name.lower()).inc(count)

    def lagging(self, cut: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> None:
        for partition, end in cut.items():
            behind = max(0, end - positions.get(partition, 0))
            self._operator["streamdp_input_lag_records"].labels(partition.topic, str(partition.partition)).set(behind)

    def truncated(self, partitions: Iterable[TopicPartition]) -> None:
        self._operator["streamdp_input_truncations_total"].inc(len(list(partitions)))

    def decided(self, time_point: int, actions: Iterable[Action]) -> None:
        jobs = tuple(action.job for action in actions if isinstance(action, StartJob))
        self._standings.append(self._standing(time_point, jobs))

    def queued(self, stored: Iterable[StoredMessage]) -> None:
        self._queued |= {each.sequence: each for each in stored}

    def published(self, sequences: Iterable[int]) -> None:
        stored = [self._queued.pop(sequence) for sequence in sequences if sequence in self._queued]
        if not stored:
            return
        for each in stored:
            message = each.message
            if message.topic in (self._topics.releases, self._topics.head, self._topics.results):
                self._show(messages.decode(message.value or b""))
        last = max(each.time_point for each in stored)
        self._stand_up_to(last)

    def publish_failed(self) -> None:
        self._public["streamdp_publish_failures_total"].inc()
        self._public["streamdp_publish_failing"].set(1)

    def publish_recovered(self) -> None:
        self._public["streamdp_publish_failing"].set(0)

    def publish_retried(self) -> None:
        self._public["streamdp_publish_retries_total"].inc()

    def requests_dropped(self, count: int) -> None:
        self._operator["streamdp_requests_dropped_total"].inc(count)

    def jobs(self, open_jobs: Iterable[Job], running: Collection[str]) -> None:
        now = time.monotonic()
        here = {job.job_id: job.kind for job in open_jobs}
        for job_id, kind in here.items():
            _, was_running, since = self._job_began.get(job_id, (kind, False, now))
            if job_id in running and not was_running:
                self._operator["streamdp_job_queue_seconds"].labels(kind).observe(now - since)
                since = now
            self._job_began[job_id] = (kind, job_id in running or was_running, since)
        for job_id in [job_id for job_id in self._job_began if job_id not in here]:
            kind, was_running, since = self._job_began.pop(job_id)
            if was_running:
                self._operator["streamdp_job_run_seconds"].labels(kind).observe(now - since)
        for kind in KINDS:
            for state in (False, True):
                count = sum(entry[:2] == (kind, state) for entry in self._job_began.values())
                self._operator["streamdp_jobs_open"].labels(kind, "running" if state else "waiting").set(count)

    # Inside

    def _ask_input(self, source: Transport) -> None:
        """Whether the input answers, and what its open transactions hold back. Called by a thread of its own."""
        topics = self._config.input.topics
        marks = source.high_watermarks(topics)
        stable = source.end_offsets(topics)  # Asked second: what is committed in between is not held back.
        for partition, mark in marks.items():
            gauge = self._operator["streamdp_input_uncommitted_records"]
            gauge.labels(partition.topic, str(partition.partition)).set(max(0, mark - stable[partition]))

    def _constants(self) -> None:
        """Public parameters, and a zero for every series that can be named in advance."""
        config, public = self._config, self._public
        public["streamdp_build_info"].labels(__version__).set(1)
        guarantee = "window" if config.horizon is None else "horizon"
        public["streamdp_stream_info"].labels(guarantee, promise(config)).set(1)
        public["streamdp_ready"].set_function(lambda: int(self._health.ready))
        public["streamdp_clock_held"].set_function(lambda: int(self._health.clock_held))
        public["streamdp_time_point_length_seconds"].set(config.time.length_ms / 1_000)
        public["streamdp_span_points"].set(config.horizon or config.window or 0)
        public["streamdp_epsilon_limit"].set(float(config.epsilon))
        public["streamdp_last_point_closed_timestamp_seconds"].set(time.time())
        for histogram in config.histogram:
            public["streamdp_epsilon_reserved"].labels(histogram.name).set(
                float(config.share(histogram) * config.epsilon)
            )
            public["streamdp_releases_total"].labels(histogram.name)
            public["streamdp_forecasts_total"].labels(histogram.name)
        for reason in ("budget", "other"):
            public["streamdp_job_refusals_total"].labels(reason)
        for kind in (*KINDS, OTHER_KIND):
            for state in OUTCOMES:
                public["streamdp_jobs_total"].labels(kind, state)
        for rejected in Reason:
            self._operator["streamdp_rows_rejected_total"].labels(rejected.name.lower())
        for kind in KINDS:
            self._operator["streamdp_job_queue_seconds"].labels(kind)
            self._operator["streamdp_job_run_seconds"].labels(kind)
            for state in ("waiting", "running"):
                self._operator["streamdp_jobs_open"].labels(kind, state)

    def _recall(self, target: Transport, journal: Journal) -> None:
        """What was published before this start, as the output topics hold it, and the ledger as it stood then.

        What was decided and is not published yet waits in the queue, as if this process had decided it.
        """
        for release in latest(target, self._config.output_prefix).values():
            self._board.hold(release)
            self._show_counts(release)
        wanted = (
            (self._topics.releases, MAX_POINTS * len(self._plans)),
            (self._topics.results, MAX_JOBS),
            (self._topics.head, 1),
        )
        for topic, count in wanted:
            for message in tail(target, topic, count):
                decoded = messages.decode(message.value or b"")
                self._board.take(decoded)
                if decoded.kind == "head":
                    self._show_head(decoded.header)
                elif decoded.kind == "release":
                    self._show_release(decoded.header)
        published, last = journal.published_until(), journal.last_time_point
        jobs = journal.jobs_under_way()
        before = tuple(job for job in jobs if (job.time_point or 0) <= published)
        # Without the controllers: the journal has them as they are now only.
        self._stand(self._budget(ledger_at(journal.ledger, published), published, before))
        self._standings.append(self._standing(last, tuple(job for job in jobs if job not in before)))
        self._stand_up_to(published)

    def _show(self, decoded: messages.Decoded) -> None:
        """A message that was just published."""
        header, public = decoded.header, self._public
        release = self._board.take(decoded)
        match decoded.kind:
            case "release" if release is not None:
                public["streamdp_releases_total"].labels(header["histogram"]).inc()
                self._show_release(header)
                self._show_counts(release)
            case "forecast" if release is not None:
                public["streamdp_forecasts_total"].labels(header["histogram"]).inc()
                self._show_counts(release)
            case "repeat":
                public["streamdp_repeats_total"].labels(header["histogram"], header["reason"]).inc(decoded.missed or 1)
            case "head":
                public["streamdp_time_points_total"].inc(decoded.missed or 1)
                public["streamdp_time_points_missed_total"].inc(decoded.missed)
                self._show_head(header)
                delay = max(0.0, time.time() - header["closed"] / 1_000)
                self._operator["streamdp_publication_delay_seconds"].observe(delay)
            case "result" if header.get("part", 1) == 1:
                kind = header["job"] if header["job"] in KINDS else OTHER_KIND
                public["streamdp_jobs_total"].labels(kind, header["state"]).inc()
                if header["state"] == "refused":
                    reason = "budget" if "epsilon_left" in header else "other"
                    public["streamdp_job_refusals_total"].labels(reason).inc()
        if decoded.kind in ("release", "forecast", "repeat"):
            if header["threshold"] is not None:
                public["streamdp_threshold"].labels(header["histogram"]).set(float(Fraction(header["threshold"])))
            public["streamdp_epsilon_left"].labels(header["histogram"]).set(float(Fraction(header["epsilon_left"])))

    def _show_counts(self, release: Release) -> None:
        self._public["streamdp_released_records"].labels(release.histogram).set(int(release.counts.sum()))

    def _show_release(self, header: Mapping[str, Any]) -> None:
        name, public = header["histogram"], self._public
        public["streamdp_last_release_timestamp_seconds"].labels(name).set(header["closed"] / 1_000)
        public["streamdp_release_epsilon"].labels(name).set(float(Fraction(header["epsilon"])))
        if header["noise_scale"] is not None:
            public["streamdp_release_noise_scale"].labels(name).set(float(Fraction(header["noise_scale"])))

    def _show_head(self, header: Mapping[str, Any]) -> None:
        self._public["streamdp_time_point"].set(header["time_point"])
        self._public["streamdp_last_point_closed_timestamp_seconds"].set(header["closed"] / 1_000)

    def _standing(self, time_point: int, jobs: tuple[Job, ...]) -> Standing:
        """Ledger and controllers as they are now, to be shown when `time_point` is published."""
        standing = self._budget(self._ledger, time_point, jobs)
        for name, plan in self._plans.items():
            for indicator, value in plan.strategy.indicators().items():
                standing.values[f"streamdp_{indicator}", (name,)] = value
        return standing

    def _budget(self, ledger: Ledger, time_point: int, jobs: tuple[Job, ...]) -> Standing:
        return ledger_standing(ledger, self._plans, time_point, self._config.time.length_ms / 1_000, jobs)

    def _stand_up_to(self, time_point: int) -> None:
        while self._standings and self._standings[0].time_point <= time_point:
            self._stand(self._standings.popleft())

    def _stand(self, standing: Standing) -> None:
        for (name, labels), value in standing.values.items():
            metric = self._public[name]
            (metric.labels(*labels) if labels else metric).set(value)
        for job in standing.jobs:
            about = {"id": job.job_id, "kind": job.kind, "epsilon": float(job.epsilon), "time_point": job.time_point}
            self._board.admitted(about)
        self._board.set_budget(standing.budget)

    def _health_routes(self) -> dict[str, Any]:
        def live(query: Query) -> Answer:
            return Answer(b"live\n")

        def ready(query: Query) -> Answer:
            reason = self._health.reason
            return Answer(b"ready\n") if reason is None else Answer(f"{reason}\n".encode(), status=503)

        return {"/live": live, "/ready": ready}


def watch(config: StreamConfig) -> AbstractContextManager[Observer]:
    """The observer that the configuration asks for; one that looks away when it names no listener."""
    observe = config.observe
    return Watch(config) if observe.metrics or observe.operator_metrics or observe.page else nullcontext(Observer())


def _about(config: StreamConfig) -> dict[str, Any]:
    return {
        "stream": config.name,
        "epsilon": float(config.epsilon),
        "horizon": config.horizon,
        "window": config.window,
        "length_ms": config.time.length_ms,
    }


def _size(path: Path) -> int:
    """Of the journal and SQLite's files beside it."""
    total = 0
    for each in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        try:
            total += each.stat().st_size
        except FileNotFoundError:
            continue
    return total
