"""The `streamdp` command under a clock that the test sets, with answers that `AnsweringSource` dictates.

A spawned worker runs this file again (as `__mp_main__`), so jobs are answered too. What is asked goes to the file
that ASKED_FILE names.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from answering import AnsweringSource

from streamdp.cli import main
from streamdp.journal import journal
from streamdp.privacy.noise import SystemSource
from streamdp.privacy.queries import RowDraws

_clock, _asked = Path(os.environ["CLOCK_FILE"]), Path(os.environ["ASKED_FILE"])
_source = AnsweringSource()


def _now_ns() -> int:
    return int(_clock.read_text()) * 1_000_000


def _answer(self: SystemSource, query: Any, run: Any) -> Any:
    answer = _source.answer(query, run)
    if not isinstance(query, RowDraws):
        with _asked.open("a") as file:
            file.write(f"{__name__} {query.public}\n")
    return answer


time.time_ns = _now_ns
time.time = lambda: _now_ns() / 1e9
time.clock_gettime_ns = lambda which: _now_ns()
# The journal's id is in every release.
journal.uuid = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="0123456789abcdef" * 2))  # type: ignore[assignment]
SystemSource.answer = _answer  # type: ignore[method-assign,assignment]
SystemSource.random_bytes = lambda self, size: _source.random_bytes(size)  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
