"""How far a job is, in public quantities: round i of n, never a number of rows.

A worker reports here; where nobody listens, as outside the pool, reporting does nothing.
"""

from __future__ import annotations

from collections.abc import Callable

_listener: Callable[[int, int], None] | None = None


def listen(listener: Callable[[int, int], None] | None) -> None:
    """Let `listener` hear what this process reports from now on."""
    global _listener  # noqa: PLW0603 - a worker runs one job
    _listener = listener


def report(done: int, of: int) -> None:
    """Says that `done` of `of` steps are over. Both follow from public parameters alone."""
    if _listener is not None:
        _listener(done, of)
