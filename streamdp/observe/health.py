"""Whether the daemon can do its work: it runs, and input and output answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

# How often input and output are asked, and how old the last good answer may be. A Kafka client waits longer than
# this for a broker that is gone, and meanwhile the answer is old.
ASK_SECONDS = 2.0
FRESH_SECONDS = 10.0


class Health:
    """Ready: running, not stopping, the clock is not behind and did not jump, every check answered not long ago.

    A check raises when what it asks does not answer. Each has a thread of its own, so that one that hangs hides no
    other.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._now, self._wall = now, wall
        self._running = False
        self._clock_held = False
        self._next_opens = 0.0
        self._answered: dict[str, float] = {}
        self._stop_asked = threading.Event()
        self._threads: list[threading.Thread] = []

    def watch(self, name: str, check: Callable[[], object], every: float = ASK_SECONDS) -> None:
        """Ask `check` now and then. What was open a moment ago counts as answering."""
        self._answered[name] = self._now()
        thread = threading.Thread(target=self._ask, args=(name, check, every), name=f"health-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def set_running(self, running: bool) -> None:
        """Safe to call from a signal handler."""
        self._running = running

    def set_clock_held(self, held: bool) -> None:
        self._clock_held = held

    def set_next_opens(self, milliseconds: int) -> None:
        """When the next time point opens, in ms since 1970. A clock before that closes none for as long as it takes."""
        self._next_opens = milliseconds / 1_000

    @property
    def clock_held(self) -> bool:
        return self._clock_held

    @property
    def ready(self) -> bool:
        return self.reason is None

    @property
    def reason(self) -> str | None:
        """Why not; None when ready."""
        if not self._running:
            return "not running"
        if self._clock_held:
            return "the clock jumped: no time point closes until it is right again"
        if self._wall() < self._next_opens:
            when = datetime.fromtimestamp(self._next_opens, UTC).isoformat(timespec="seconds")
            return f"the clock is behind: the next time point opens at {when}"
        silent = [name for name, when in self._answered.items() if self._now() - when > FRESH_SECONDS]
        return f"{' and '.join(silent)} not connected" if silent else None

    def close(self) -> None:
        """Does not wait for a check that hangs; its thread ends with the process."""
        self._stop_asked.set()
        for thread in self._threads:
            thread.join(0.5)

    def _ask(self, name: str, check: Callable[[], object], every: float) -> None:
        while not self._stop_asked.wait(every):
            try:
                check()
            except Exception:
                # Whatever it raises, it did not answer; the daemon's own use of it reports why.
                continue
            self._answered[name] = self._now()
