"""The running daemon: a loop around the pipeline, and the ladder down.

Poll, feed what lies below the current cut, close points whose cut is reached, publish what is due. The first SIGTERM
or SIGINT stops taking cuts, finishes the points that are over and leaves; the second leaves at once. What is stored
and not yet due stays in the journal, and the next start publishes it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from types import FrameType

from streamdp.config import StreamConfig
from streamdp.daemon import steps
from streamdp.daemon.clock import Clock
from streamdp.daemon.job_runner import JobRunner
from streamdp.daemon.memory import Memory
from streamdp.daemon.preferences import PreferenceTable
from streamdp.daemon.recovery import checkpoint_cut
from streamdp.daemon.schedule import Closed, Cut, Metronome, Missed
from streamdp.daemon.start import input_identity, start
from streamdp.daemon.truncation import below, lowered, say_truncated
from streamdp.engine import (
    Action,
    BoundaryPassed,
    Charge,
    Checkpoint,
    PointClosed,
    Publish,
    SaveJob,
    SaveState,
    StoreRelease,
)
from streamdp.engine.job import Job
from streamdp.errors import StreamdpError
from streamdp.journal import JobsCommit, PointCommit, Release
from streamdp.observe import logs
from streamdp.observe.observer import Observer
from streamdp.population import write_checkpoint
from streamdp.transport.base import Message, TopicPartition, Transport, Truncated, Unreachable
from streamdp.transport.batch import RecordBatch

log = logging.getLogger("streamdp.daemon")

# How long a poll may wait: the delay of a close, a publication or a stop that comes meanwhile.
POLL_SECONDS = 0.05
# How long to leave an input alone that does not answer.
PAUSE_SECONDS = 0.2
# How long a checkpoint waits for dead letters; the next one comes soon.
LETTERS_SECONDS = 10
# A stop waits this long for releases that are not due yet.
STOP_SECONDS = 10


class Daemon:
    """One stream, running. `source` and `target` are the transports of input and output.

    `clock_source` is the input once more, for the thread that takes the cuts: a transport belongs to one thread.
    """

    def __init__(
        self,
        config: StreamConfig,
        source: Transport,
        target: Transport,
        clock_source: Transport,
        *,
        accept_gap: bool = False,
        accept_clock: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.config = config
        self._observer = observer or Observer()
        self._source, self._target = source, target
        self._clock = Clock(config.time.max_clock_jump_ms, changed=self._observer.clock_held)
        self._held = start(
            config,
            source,
            target,
            accept_gap=accept_gap,
            accept_clock=accept_clock,
            now=self._clock.now,
            observer=observer,
        )
        self._engine = self._held.pipeline.engine
        self._beyond: list[RecordBatch] = []
        self._closed: deque[Closed | Missed] = deque()
        self._due: deque[tuple[int, int]] = deque(
            (self._held.schedule.closes(time_point) + config.time.publish_after_ms, time_point)
            for time_point in self._held.journal.unpublished_points()
        )
        self._stop_asked = False
        self._is_input_lost = self._is_cut_awaited = False
        self._truncated: Cut = {}
        preferences = PreferenceTable.of(config, self._held.journal, source)
        self._jobs = JobRunner(config, self._held.journal, target, self._engine, preferences)
        self._boundary = self._held.schedule.point_at(self._clock.now())
        self._memory = Memory()
        self._metronome = Metronome(
            self._held.schedule,
            self._engine.last_point + 1,
            partial(take_cut, clock_source, config.input.topics, self._held.journal.identity.input_identity),
            config.privacy.horizon,
            now=self._clock.now,
            since=self._held.since,
        )
        self._observer.opened(self._held.journal, self._held.pipeline.population, target, self._engine.plans)

    def run(self) -> None:
        """Runs until a signal. Returns when everything that was over is published."""
        self._metronome.start()
        steps.reach("start.opened")
        log.info("running", extra={"fields": self._first_release()})
        try:
            self._jobs.resume()
            self._observer.running(0 if self._engine.ended else self._held.schedule.opens(self._engine.last_point + 1))
            with self._held.in_work.orderly_end():
                while not self._stop_asked:
                    self._turn(POLL_SECONDS)
                self._wind_down()
        finally:
            self._metronome.stop()
            self._jobs.close()
            self._held.close()
        log.info("stopped", extra={"fields": {"stream": self.config.name, "time_point": self._engine.last_point}})

    def _first_release(self) -> dict[str, object]:
        """Which time point is published next, and when; none after the end of a horizon."""
        if self._engine.ended:
            return {"stream": self.config.name, "ended": True}
        time_point = self._engine.last_point + 1
        due = self._held.schedule.closes(time_point) + self.config.time.publish_after_ms
        when = datetime.fromtimestamp(due / 1000, UTC).isoformat(timespec="milliseconds")
        return {"stream": self.config.name, "time_point": time_point, "first_release": when}

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._stop_asked:
            logs.write_now(logging.CRITICAL, "stopped at once; the next start sets right what was under way")
            os._exit(1)
        self._stop_asked = True
        self._observer.stopping()

    def handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)

    def _wind_down(self) -> None:
        steps.reach("stop.before")
        self._metronome.stop()
        limit, deadline = self._clock.now() + 1_000 * STOP_SECONDS, time.monotonic() + STOP_SECONDS
        self._turn(0)
        while self._is_work_left(limit) and time.monotonic() < deadline:
            self._turn(POLL_SECONDS)
        self._publish_due()  # Marks what went out last.

    def _is_work_left(self, limit: int) -> bool:
        """Whether a stop should wait: not for a release that is due after it would have given up."""
        is_due = bool(self._due) and self._due[0][0] <= limit
        return bool(self._closed) or is_due or not self._held.publisher.is_idle

    def _turn(self, wait: float) -> None:
        try:
            self._read(wait)
        except Unreachable as error:
            if not self._is_input_lost:
                log.warning("the input does not answer", extra={"fields": {"why": str(error)}})
            self._is_input_lost = True
            time.sleep(PAUSE_SECONDS)
        if self._engine.ended:
            self._after_the_end()
        self._publish_due()
        self._memory.give_back()

    def _read(self, wait: float) -> None:
        """Takes in what came, and closes what is over."""
        if self._held.publisher.is_full_of_letters:
            # The input keeps what it has until the output has taken them.
            time.sleep(wait)
        elif not self._is_cut_awaited:
            try:
                self._beyond += self._held.reader.poll(timeout=wait, until=self._cut())
            except Truncated as error:
                self._truncate(error.ends)
        # After the poll: a cut older than any of these records is known by now, or about to be (see Metronome).
        closed = self._metronome.closed(POLL_SECONDS)
        self._is_cut_awaited = closed is None
        if closed is None:
            return
        if closed or self._truncated:
            self._closed = deque(lowered([*self._closed, *closed], self._truncated))
            self._truncated = {}
        with contextlib.suppress(Unreachable):  # The output is away, which the publisher says.
            self._observer.requests_dropped(self._jobs.look())
        self._observer.jobs(self._engine.open_jobs, self._jobs.in_workers)
        if closed and isinstance(closed[-1], Closed):
            self._observer.lagging(closed[-1].cut, self._held.reader.positions())
        self._advance()
        if self._is_input_lost:
            self._is_input_lost = False
            log.warning("the input answers again")

    def _truncate(self, ends: Cut) -> None:
        """The input lost its end. What was read of that and is not counted yet goes with it."""
        say_truncated(ends)
        self._observer.truncated(ends)
        self._beyond = [below(batch, ends) for batch in self._beyond]
        self._truncated |= ends

    def _cut(self) -> Cut | None:
        """The cut the current point is drained to; None while the point is open (or was missed)."""
        return self._closed[0].cut if self._closed and isinstance(self._closed[0], Closed) else None

    def _advance(self) -> None:
        """Feeds what belongs to the current point, and closes it and the next ones as their cuts are reached."""
        while self._closed:
            over = self._closed[0]
            if isinstance(over, Missed):
                self._closed.popleft()
                self._close(over.first, over.last, None)
                continue
            cut = over.cut
            self._watch_new_partitions(cut)
            self._feed(over.time_point, cut)
            positions = self._held.reader.positions()
            if any(positions[partition] < offset for partition, offset in cut.items()):
                return
            steps.reach("point.drained")
            self._closed.popleft()
            self._close(over.time_point, over.time_point, cut)
        self._feed(self._engine.last_point + 1, None)

    def _feed(self, time_point: int, cut: Cut | None) -> None:
        latest = self._held.schedule.closes(time_point) + self.config.time.skew_ms
        held, self._beyond = self._beyond, []
        if cut is not None:
            limits = [cut.get(TopicPartition(batch.topic, batch.partition), 0) for batch in held]
            pairs = [batch.split_at(limit) for batch, limit in zip(held, limits, strict=True)]
            held, self._beyond = [below for below, _ in pairs], [beyond for _, beyond in pairs if len(beyond)]
        if held := [batch for batch in held if len(batch)]:
            with self._observer.timed("ingest"):
                self._held.pipeline.feed_all(held, time_point, latest, self._observer.fed)

    def _watch_new_partitions(self, cut: Cut) -> None:
        known = self._held.reader.positions()
        if new := {partition for partition in cut if partition not in known}:
            begin = self._source.begin_offsets(self.config.input.topics)
            self._held.reader.assign_more({partition: begin[partition] for partition in new})

    def _close(self, first: int, time_point: int, cut: Cut | None) -> None:
        """Commits one point, or a run of missed ones, in one transaction, and queues it for publication."""
        schedule = self._held.schedule
        missed = time_point - first + 1 if cut is None else 0
        event = PointClosed(time_point, schedule.opens(first), schedule.closes(time_point), missed)
        position = None if cut is None else self._jobs.bring_requests()
        actions = self._held.pipeline.close(event)
        self._jobs.freeze(actions, self._held.pipeline.population, time_point)
        epochs = {} if cut is None else self._held.reader.epochs()
        self._held.dead_letters.flush()
        steps.reach("commit.before")
        with self._observer.timed("commit"):
            self._held.journal.commit_point(to_commit(event, cut, actions, self._engine.ended, position, epochs))
        steps.reach("commit.after")
        self._observer.decided(time_point, actions)
        self._due.append((event.closed_ts + self.config.time.publish_after_ms, time_point))
        _log_point(event)
        self._jobs.carry_out(actions)
        wanted = any(isinstance(action, Checkpoint) for action in actions)
        # Input before a checkpoint is not read again: its dead letters must be safe first.
        if wanted and cut is not None and self._held.publisher.letters_safe(LETTERS_SECONDS):
            self._checkpoint(time_point, cut, epochs)
        if self._engine.ended:
            log.info("the horizon has ended", extra={"fields": {"time_point": time_point}})

    def _after_the_end(self) -> None:
        """The boundaries of time points still are when jobs are decided on and their results leave."""
        boundary = self._held.schedule.point_at(self._clock.now())
        if boundary == self._boundary:
            return
        self._boundary = boundary
        time_point, opened = self._engine.last_point, self._held.schedule.opens(boundary)
        position = self._jobs.bring_requests()
        actions = self._engine.handle(BoundaryPassed(self._jobs.has_snapshot(time_point)))
        if not actions and position is None:
            return
        self._jobs.relevel(actions, time_point)
        stored = _messages_of(actions, opened)
        self._held.journal.commit_jobs(JobsCommit(time_point, *_jobs_of(actions), stored, position))
        self._observer.decided(time_point, actions)
        if stored:
            self._due.append((opened + self.config.time.publish_after_ms, time_point))
        self._jobs.carry_out(actions)

    def _checkpoint(self, time_point: int, cut: Cut, epochs: Cut) -> None:
        steps.reach("checkpoint.before")
        self.config.checkpoint_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        description = checkpoint_cut(self._held.journal, cut, epochs)
        with self._observer.timed("checkpoint"):
            write_checkpoint(self._held.pipeline.population, self.config.checkpoint_path, description, time_point)
        steps.reach("checkpoint.after")
        self._held.journal.prune(self.config.journal.keep_points)

    def _publish_due(self) -> None:
        publisher, journal = self._held.publisher, self._held.journal
        if published := publisher.published():
            journal.mark_published(published)
            steps.reach("mark.after")
            self._observer.published(published)
        while self._due and self._due[0][0] <= self._clock.now() and not publisher.is_full:
            _, time_point = self._due.popleft()
            stored = journal.unpublished(time_point)
            self._observer.queued(stored)
            publisher.publish(stored, self._held.owners.messages(stored[-1]) if stored else ())


def take_cut(source: Transport, topics: list[str], identity: str) -> Cut:
    """Every partition's high watermark now, whatever transactions are open: the clock alone sets the cut.

    Refused when a topic was deleted and created again: its offsets mean other records.
    """
    cut = source.high_watermarks(topics)
    # In this order: ids do not come back, so offsets taken before are those of the topics named.
    if input_identity(source, topics) != identity:
        raise StreamdpError(
            "an input topic was deleted and created again while the stream ran: this journal belongs to what it held"
        )
    return cut


def to_commit(
    event: PointClosed,
    cut: Cut | None,
    actions: Sequence[Action],
    ended: bool,
    jobs_position: int | None = None,
    epochs: Cut | None = None,
) -> PointCommit:
    """One transaction from the engine's actions."""
    jobs, charges = _jobs_of(actions)
    return PointCommit(
        time_point=event.time_point,
        first=event.first,
        opened_ts=event.opened_ts,
        closed_ts=event.closed_ts,
        cut=cut,
        status="missed" if event.missed else "ended" if ended else "closed",
        charges=charges,
        engine_state={each.histogram: each.state for each in actions if isinstance(each, SaveState)},
        releases=[
            Release(each.release_id, each.histogram, each.counts, each.reason)
            for each in actions
            if isinstance(each, StoreRelease)
        ],
        messages=_messages_of(actions, event.closed_ts),
        jobs=jobs,
        jobs_position=jobs_position,
        epochs=epochs or {},
    )


def _jobs_of(actions: Sequence[Action]) -> tuple[list[Job], list[Charge]]:
    """Jobs to save, and every charge."""
    jobs = [action.job for action in actions if isinstance(action, SaveJob)]
    return jobs, [action for action in actions if isinstance(action, Charge)]


def _messages_of(actions: Sequence[Action], timestamp: int) -> list[Message]:
    return [
        Message(action.topic, action.value, key=action.key, timestamp=timestamp, partition=0)
        for action in actions
        if isinstance(action, Publish)
    ]


def _log_point(event: PointClosed) -> None:
    if event.missed:
        log.warning("missed", extra={"fields": {"first": event.first, "last": event.time_point}})
        return
    # Not what was released: that is not public yet.
    log.info("time point closed", extra={"fields": {"time_point": event.time_point}})
