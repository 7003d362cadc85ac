"""Named steps of the daemon, so that tests can kill it at each of them.

`STREAMDP_TEST_KILL=commit.after` (or `commit.after:3`, the third time) makes the process SIGKILL itself there: what a
power cut at that instruction would do. Unset, a step costs one comparison.
"""

from __future__ import annotations

import os
import signal

STEPS = (
    "start.locked",
    "start.fenced",
    "start.outputs_read",
    "start.republished",
    "start.recovered",
    "start.opened",
    "point.drained",
    "commit.before",
    "journal.commit.written",
    "commit.after",
    "publish.before",
    "publish.after",
    "journal.mark.written",
    "mark.after",
    "checkpoint.before",
    "checkpoint.after",
    "stop.before",
)

JOB_STEPS = (
    "admit.before",
    "admit.frozen",
    "admit.after",
    "job.started",
    "result.before",
    "journal.jobs.written",
    "result.stored",
)
"""Those that only a job gets to."""

_name, _, _times = os.environ.get("STREAMDP_TEST_KILL", "").partition(":")
_countdown = int(_times or 1)


def reach(step: str) -> None:
    """Says that the process is at `step`."""
    global _countdown  # noqa: PLW0603 - one process, one countdown
    if step != _name:
        return
    _countdown -= 1
    if _countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)
