"""The stage: a directory with a configuration and a log, and a daemon that runs there in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from streamdp.errors import StreamdpError

STREAM, HISTOGRAM, TOPIC = "outbreak", "state_by_district", "patients"
EPSILON = 1
_DECISION_RATIO = 0.4
_STOP_SECONDS = 20
_LOG_LINES = 15

# The threshold stays well above the distance that the noise alone makes (about cells * releases / epsilon), or calm
# points would be released too.
_CONFIG = """\
# Made by `streamdp demo`.
[stream]
name = "{stream}"

[domain.district]
type = "categorical"
values = [{districts}]

[domain.state]
type = "categorical"
values = [{states}]

[domain.age]
type = "categorical"
values = [{ages}]

[time]
length = "{length_ms}ms"

[privacy]
epsilon = "{epsilon}"
horizon = {points}

[[histogram]]
name = "{histogram}"
attributes = ["district", "state"]
strategy = "dsat"

[histogram.parameters]
releases = {releases}
threshold = 1300
threshold_low = 1000
threshold_high = 1500
decision_ratio = "{decision_ratio}"

[input]
topics = ["{topic}"]

[input.log]
path = "log"
"""


class DaemonFailed(StreamdpError):
    """The daemon ended when it should not have, or would not end."""


def max_releases(points: int) -> int:
    return max(4, points // 5)


def noise_scale(points: int) -> float:
    """The scale of the noise in each count of a release: releases share what decisions leave of epsilon."""
    return max_releases(points) * (1 + _DECISION_RATIO) / EPSILON


class Stage:
    """Starts the daemon on entering; on leaving, however that comes about, the daemon is gone."""

    def __init__(self, directory: Path, points: int, length_ms: int, domain: dict[str, tuple[str, ...]]) -> None:
        self.config = directory / f"{STREAM}.toml"
        self.log = directory / "log"
        self._messages = directory / "daemon.log"
        self.config.write_text(
            _CONFIG.format(
                stream=STREAM,
                histogram=HISTOGRAM,
                topic=TOPIC,
                epsilon=EPSILON,
                points=points,
                releases=max_releases(points),
                length_ms=length_ms,
                decision_ratio=_DECISION_RATIO,
                districts=_quoted(domain["district"]),
                states=_quoted(domain["state"]),
                ages=_quoted(domain["age"]),
            ),
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        with self._messages.open("wb") as messages:
            # A session of its own: a Ctrl-C is meant for the demo, which then stops the daemon once and in good order.
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "streamdp", "run", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def check(self) -> None:
        """Raises when the daemon is gone."""
        if self.daemon.poll() is not None:
            raise DaemonFailed(f"the daemon ended early (exit code {self.daemon.returncode}); it said:\n{self._said()}")

    def stop(self) -> None:
        """Asks the daemon to stop, waits, and raises unless it did so in good order."""
        if (code := self._end()) != 0:
            raise DaemonFailed(f"the daemon did not stop in good order (exit code {code}); it said:\n{self._said()}")

    def _end(self) -> int:
        if self.daemon.poll() is None:
            self.daemon.terminate()
        try:
            return self.daemon.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            return self.daemon.wait()

    def _said(self) -> str:
        lines = self._messages.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


def _quoted(values: tuple[str, ...]) -> str:
    return ", ".join(f'"{value}"' for value in values)
