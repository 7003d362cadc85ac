"""Time points and the public clock: which interval a point is, and the thread that takes its cut when it closes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from streamdp.transport.base import TopicPartition, Unreachable

Cut = dict[TopicPartition, int]

RETRY_SECONDS = 0.1
MAX_MS_TO_OPEN = 2_000
STOP_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Schedule:
    """Point i is the interval [first_open + (i - 1) * length, first_open + i * length), in ms since 1970."""

    length: int
    first_open: int

    @classmethod
    def starting(cls, now: int, length: int, origin: int) -> Schedule:
        """Point 1 is the aligned interval that holds `now`."""
        return cls(length, now - (now - origin) % length)

    @classmethod
    def beginning(cls, now: int, length: int, origin: int) -> Schedule:
        """As `starting`, but point 1 is the next interval when this one would be over before the daemon is running."""
        holding = cls.starting(now, length, origin)
        left = holding.closes(1) - now
        return holding if left >= min(length // 2, MAX_MS_TO_OPEN) else cls(length, holding.closes(1))

    def opens(self, time_point: int) -> int:
        return self.first_open + (time_point - 1) * self.length

    def closes(self, time_point: int) -> int:
        return self.first_open + time_point * self.length

    def point_at(self, now: int) -> int:
        """The point whose interval holds `now`."""
        return (now - self.first_open) // self.length + 1


@dataclass(frozen=True, slots=True)
class Closed:
    """A point that is over, with the cut taken at its close."""

    time_point: int
    cut: Cut


@dataclass(frozen=True, slots=True)
class Missed:
    """A run of points that are over, from `first` to `last`, and nobody was there to take their cuts."""

    first: int
    last: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Metronome(threading.Thread):
    """Takes the cut at every close, whatever the main loop is busy with.

    A snapshot may depend on a user's own messages and the public clock only, so the cut must not wait until the other
    users' records are processed. A point that closed before this thread began, or whose cut could not be taken before
    its successor was over too, was missed: `take_cut` is asked again while the input is unreachable. `since` says from
    when on points are watched, when that was before this thread.

    Whoever polls records first and asks `closed` second learns of every point that was over by then, missed ones
    included, or that one is being taken.
    """

    def __init__(
        self,
        schedule: Schedule,
        first: int,
        take_cut: Callable[[], Cut],
        last: int | None = None,
        now: Callable[[], int] = now_ms,
        since: int | None = None,
    ) -> None:
        super().__init__(name="metronome", daemon=True)
        self._schedule, self._next, self._last = schedule, first, last
        self._watching_since = now() if since is None else since
        self._take_cut, self._now = take_cut, now
        self._changed = threading.Condition()
        self._is_taking = False
        self._done: deque[Closed | Missed] = deque()
        self._failure: BaseException | None = None
        self._stop_asked = threading.Event()

    def closed(self, seconds: float | None = None) -> list[Closed | Missed] | None:
        """Points that closed since the last call; raises what made the thread fail.

        Waits while a cut is being taken, or a point is over whose turn has not come; None when it still is after
        `seconds`. Told of some missed points only, the caller would take records of the open point for the next
        missed one's, whose limit for timestamps is long past.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_taking and not self._is_behind(), seconds):
                return None
            if self._failure is not None:
                raise self._failure
            points = list(self._done)
            self._done.clear()
            return points

    def stop(self) -> None:
        """Ends the thread, unless it waits for the input's answer: then it ends with the process."""
        self._stop_asked.set()
        self.join(STOP_SECONDS)

    def run(self) -> None:
        while self._last is None or self._next <= self._last:
            wait = self._schedule.closes(self._next) - self._now()
            if self._stop_asked.wait(max(0.0, min(wait, 1_000) / 1_000)):
                return
            with self._changed:
                if self._now() < self._schedule.closes(self._next):
                    continue
                self._is_taking = True
            try:
                last = self._last_missed()
                cut = self._cut() if last < self._next else None
                if cut is None and self._stop_asked.is_set():
                    return
                with self._changed:
                    last = max(last, self._next)
                    self._done.append(Missed(self._next, last) if cut is None else Closed(self._next, cut))
                    self._next = last + 1
            except BaseException as failure:
                self._failure = failure
                return
            finally:
                with self._changed:
                    self._is_taking = False
                    self._changed.notify_all()

    def _is_behind(self) -> bool:
        """Whether the thread still has to come to a point that is over."""
        if self._failure is not None or self._stop_asked.is_set() or not self.is_alive():
            return False
        return (self._last is None or self._next <= self._last) and self._now() >= self._schedule.closes(self._next)

    def _last_missed(self) -> int:
        """The last point that was missed: it closed before anybody watched, or its successor is over too."""
        over = max(self._schedule.point_at(self._now()) - 2, self._schedule.point_at(self._watching_since) - 1)
        return over if self._last is None else min(over, self._last)

    def _cut(self) -> Cut | None:
        """The cut of the point that is over; None when it is missed."""
        while self._now() < self._schedule.closes(self._next + 1) and not self._stop_asked.is_set():
            try:
                cut = self._take_cut()
            except Unreachable:
                self._stop_asked.wait(RETRY_SECONDS)
                continue
            return cut if self._now() < self._schedule.closes(self._next + 1) else None
        return None
