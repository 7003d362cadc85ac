"""How long tests wait for what must come: long, as only a fault makes it fail to come, and no longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 180.0
"""Seconds. On a busy machine a start takes many times what it takes on an idle one."""


def until(condition: Callable[[], object], seconds: float = PATIENCE, said: Callable[[], str] = str) -> None:
    """Waits until the condition holds; `said` is asked for what to show when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {seconds:.0f} s\n{said()}"
        time.sleep(0.02)
