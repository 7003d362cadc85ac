"""How fast a replay runs: as fast as it can, or a trace's time against the clock."""

from __future__ import annotations

import time

from streamdp.errors import ConfigurationError


class Pace:
    """`speed` is trace time over real time; None does not wait."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._began: tuple[float, int] | None = None

    @classmethod
    def parse(cls, text: str) -> Pace:
        """`max`, `real`, or a factor such as `10x`."""
        if text in ("max", "real"):
            return cls(None if text == "max" else 1.0)
        try:
            speed = float(text.removesuffix("x"))
        except ValueError:
            speed = 0.0
        if not 0 < speed < float("inf"):
            raise ConfigurationError('--speed is "max", "real" or a factor such as "10x"')
        return cls(speed)

    def apart(self, earlier: int, later: int, step_ms: int) -> bool:
        """Whether two times of the trace lie more than `step_ms` of real time apart."""
        return self._speed is not None and later - earlier > step_ms * self._speed

    def reach(self, ts: int) -> None:
        """Returns when the time `ts` of the trace has come; the first call sets the clock."""
        if self._speed is None:
            return
        if self._began is None:
            self._began = (time.monotonic(), ts)
        began, first = self._began
        due = began + (ts - first) / 1_000 / self._speed
        time.sleep(max(0.0, due - time.monotonic()))
