"""Where a report goes: a file that only its owner may read."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from streamdp.errors import ConfigurationError
from streamdp.replay.report.page import render
from streamdp.replay.result import ReplayResult


def write_report(result: ReplayResult, directory: Path) -> Path:
    """Writes `index.html` (mode 0600) into the directory, which is made (mode 0700) when it is not there."""
    page = directory / "index.html"
    part = directory / f".index.html.{os.getpid()}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A new file each time: one that is already there may be readable by others, or be open.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(render(result))
        part.replace(page)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise ConfigurationError(f"cannot write {page}: {error.strerror}") from None
    return page
