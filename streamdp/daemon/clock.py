"""The public clock, compared with one that nobody sets.

Time points close by the wall clock. Whoever sets that wrong, if only for a moment, would close points that cannot be
opened again, up to the end of a finite horizon; or would stop the stream for as long as the clock was set back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from streamdp.daemon.schedule import now_ms
from streamdp.errors import StreamdpError
from streamdp.journal import Journal

log = logging.getLogger("streamdp.daemon")

# A machine whose battery is empty is off by years. No daemon is down for so long without somebody who knows.
LONGEST_DOWNTIME_MS = 31 * 86_400_000

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_ms() -> int:
    """Milliseconds since the machine started, sleep included."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class Clock:
    """The wall clock, which stands still after a jump of more than `max_jump` ms until it is right again.

    A jump is what the wall clock moved between two looks beyond what the steady clock did, so that slow corrections are
    none. While it stands still no point closes and nothing becomes due. `changed` is told when that begins and ends, in
    the thread that looked. Use it from any thread.
    """

    def __init__(
        self,
        max_jump: int,
        *,
        wall: Callable[[], int] = now_ms,
        steady: Callable[[], int] = steady_ms,
        changed: Callable[[bool], None] = lambda held: None,
    ) -> None:
        self._max_jump = max_jump
        self._wall, self._steady, self._changed = wall, steady, changed
        self._lock = threading.Lock()
        self._held = False
        self._last = wall()
        self._offset = self._last - steady()

    def now(self) -> int:
        """The time, in ms since 1970; the last one before the jump while it stands still."""
        with self._lock:
            now = self._wall()
            offset = now - self._steady()
            jump = offset - self._offset
            held = abs(jump) > self._max_jump
            if held != self._held:
                self._held = held
                self._say(jump)
                self._changed(held)
            if not held:
                self._last, self._offset = now, offset
            return self._last

    def _say(self, jump: int) -> None:
        if self._held:
            log.error(
                "the clock jumped: no time point closes until it is right again. If it is right now, restart with "
                "--accept-clock",
                extra={"fields": {"jump_seconds": jump / 1_000, "max_clock_jump_seconds": self._max_jump / 1_000}},
            )
        else:
            log.warning("the clock is right again: time points close")


def check_clock(journal: Journal, max_jump: int, horizon: int | None, now: int) -> None:
    """Refuses a start at which the clock contradicts the journal.

    It is behind the last close; or nobody closed a point for a month; or the start would end a finite horizon for good.
    """
    opening, last = journal.opening(), journal.last_time_point
    if opening is None or last == 0 or (horizon is not None and last >= horizon):
        return
    closed = opening.first_open + last * opening.length
    if now < closed - max_jump:
        why = f"which is before the close of time point {last} at {_text(closed)}"
    elif now > closed + LONGEST_DOWNTIME_MS:
        why = f"more than a month after the close of time point {last} at {_text(closed)}"
    elif horizon is not None and now > (end := opening.first_open + horizon * opening.length) + max_jump:
        why = f"and the last time point of the horizon closed at {_text(end)}: this start would end it for good"
    else:
        return
    raise StreamdpError(
        f"the clock says {_text(now)}, {why}. Set the clock right; if it is right, start with --accept-clock"
    )


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1_000, UTC).isoformat().replace("+00:00", "Z")
