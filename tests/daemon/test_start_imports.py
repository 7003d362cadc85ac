"""What a start of the daemon does not load: it is paid for at every start, and only some jobs need it."""

from __future__ import annotations

import subprocess
import sys


def test_a_daemon_does_not_load_what_only_some_jobs_need() -> None:
    code = "import sys, streamdp.daemon.daemon; print(*{'scipy.stats', 'scipy.optimize'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
