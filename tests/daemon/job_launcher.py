"""The `streamdp` command with kinds of job that only tests have: they sleep, crash, hog memory, make rows.

A spawned worker runs this file again (as `__mp_main__`), so it knows them too.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pyarrow

from streamdp.cli import main
from streamdp.fields import Settings
from streamdp.jobs import progress
from streamdp.jobs.catalogue import KINDS
from streamdp.jobs.kind import Kind, Output


class TestParameters(Settings):
    seconds: float = 0.0
    """How long to sleep."""
    what: str = "count"
    """What to do then."""
    runs: str | None = None
    """A file that gets a line for every run."""


def run(params, epsilon, snapshot) -> Output:
    if params.runs is not None:
        with Path(params.runs).open("a") as file:
            file.write(f"{os.getpid()}\n")
    progress.report(1, 3)
    time.sleep(params.seconds)
    match params.what:
        case "raise":
            raise ValueError("the text of an error may quote a record")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hog":
            bytearray(1 << 34)
        case "hang":
            time.sleep(3_600)
        case "spin":
            while True:
                pass
        case "wide":
            return Output({"numbers": list(range(300_000)), "text": '"' * 1_000})
        case "rows":
            return Output({"made": 100_000}, pyarrow.table({"age": list(range(100_000)), "ward": ["ä,b"] * 100_000}))
    return Output({"records": len(snapshot), "point": snapshot.time_point})


KINDS["test"] = Kind("test", "for tests", TestParameters, lambda *_: None, run, makes_rows=True)

if __name__ == "__main__":
    sys.exit(main())
