"""The `streamdp` command on a machine whose wall clock is off by what CLOCK_FILE says, in milliseconds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from streamdp.cli import main

_file = Path(os.environ["CLOCK_FILE"])
_time_ns = time.time_ns
time.time_ns = lambda: _time_ns() + int(_file.read_text()) * 1_000_000
time.time = lambda: time.time_ns() / 1e9

if __name__ == "__main__":
    sys.exit(main())
