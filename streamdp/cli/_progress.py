"""A progress bar on stderr, when somebody is looking."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self


class Progress:
    """`with Progress("playing", total) as progress: progress.at(done)`; silent unless stderr is a terminal."""

    def __init__(self, what: str, total: int, shown: bool | None = None) -> None:
        self._what, self._total = what, total
        self._shown = sys.stderr.isatty() if shown is None else shown

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown:
            self._bar.stop()

    def at(self, done: int, what: str | None = None) -> None:
        if self._shown:
            self._bar.update(self._task, completed=done, description=what or self._what)
