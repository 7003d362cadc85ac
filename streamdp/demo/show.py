"""What the reader of a demo sees: a row for each time point, in a live table on a terminal, else line by line."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamdp.demo.stage import EPSILON, STREAM, noise_scale
from streamdp.replay.fixtures import CONFIG, FOLDER, TRACE

_LEVELS = "▁▂▃▄▅▆▇█"
_TITLES = ("point", "what", "why", "epsilon spent", "true ill", "published", "d3 true", "published", "off by")
_WIDTHS = (5, 7, 7, 13, 8, 9, 7, 9, 6)
_RIGHT = (True, False, False, False, False, False, True, True, True)
_BAR = 7
_KEPT_LINES = 10
"""Lines of a terminal that are not for rows: what stands above the table, its head, and what comes below."""
LEGEND = (
    "why: the data moved, or not, past a threshold (above, below). ill: in each of the eight districts, as bars, and in"
    " d3, where the outbreak is. off by: the mean error of a published count, in people."
)
_INTRODUCTION = (
    "10,000 made-up patients send records: well, ill, recovered. A real daemon reads them from a log and closes a time"
    " point every {length}. At each it publishes noisy counts (a [bold]release[/bold]) or says that the last ones still"
    " stand (a [bold]repeat[/bold]).",
    "What it publishes would be almost the same without any one of them. How nearly, over all {points} points together,"
    " is the privacy budget: epsilon = {epsilon}. Each release takes a part of it. Asking whether the data has moved is"
    " paid for once, at point 2. Subscribers see what is published; the truth beside it is here only because the demo"
    " feeds it.",
)
_NEXT = """\
[bold]Where to look next[/bold]
- README.md: what it is for, and how to start with your own data
- what a configuration promises, in plain words:
    streamdp check {config}
- this outbreak measured point by point, as a page of plots:
    streamdp replay {trace} \\
      --config {config} --report outbreak-report
- docs/strategies.md: when to release; docs/client.md: subscribing from a program"""


@dataclass(frozen=True)
class Row:
    """One time point: what was true of it, and what was published."""

    time_point: int
    kind: str
    reason: str
    spent: float
    epsilon: float
    true_ill: Sequence[int]
    published_ill: Sequence[int]
    in_a_district: int
    """About how many people live in one; the full height of a bar."""
    hit: int
    """The district of the outbreak."""
    error: float

    def cells(self) -> tuple[str, ...]:
        filled = min(_BAR, round(_BAR * self.spent / self.epsilon))
        return (
            str(self.time_point),
            self.kind,
            self.reason.replace("_", " "),
            f"{'█' * filled}{'░' * (_BAR - filled)} {self.spent:.3f}",
            bars(self.true_ill, self.in_a_district),
            bars(self.published_ill, self.in_a_district),
            f"{self.true_ill[self.hit]:,}",
            f"{self.published_ill[self.hit]:,}",
            f"{self.error:,.1f}",
        )


def bars(counts: Sequence[int], full: int) -> str:
    """A bar for each count; below zero, which noise can reach, is drawn as zero."""
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[min(top, max(0, round(top * count / full)))] for count in counts)


class Screen:
    """Takes rows as they come."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: list[Row] = []
        self._live = Live(console=console, refresh_per_second=8) if console.is_terminal else None

    def shown(self) -> AbstractContextManager[object]:
        return self._live if self._live is not None else nullcontext()

    def add(self, row: Row) -> None:
        if self._live is None:
            if not self._rows:
                self._line(_TITLES)
            self._line(row.cells())
        self._rows.append(row)
        if self._live is not None:
            self._live.update(self._table())

    def _line(self, cells: Sequence[str]) -> None:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, _WIDTHS, _RIGHT, strict=True)
        ]
        self._console.print(Text(" ".join(parts).rstrip()), soft_wrap=True)

    def _table(self) -> Group:
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for title, width, right in zip(_TITLES, _WIDTHS, _RIGHT, strict=True):
            table.add_column(title, justify="right" if right else "left", min_width=width, no_wrap=True)
        for row in self._rows[-max(3, self._console.height - _KEPT_LINES) :]:
            table.add_row(*row.cells(), style="bold green" if row.kind == "release" else "")
        return Group(table, Text(LEGEND, style="dim"))


def introduce(console: Console, points: int, length_ms: int) -> None:
    length = "second" if length_ms == 1_000 else f"{length_ms / 1_000:g} seconds"
    console.print("[bold]streamdp demo: an outbreak, published under differential privacy[/bold]\n")
    for paragraph in _INTRODUCTION:
        console.print(paragraph.format(length=length, points=points, epsilon=EPSILON) + "\n")
    if not console.is_terminal:
        console.print(LEGEND + "\n")


def summarise(console: Console, rows: Sequence[Row], kept: Path | None) -> None:
    """What happened, in plain words, and what to do now."""
    releases = [row for row in rows if row.kind == "release"]
    last = rows[-1]
    errors = [row.error for row in rows]
    console.print()
    console.print("[bold]What happened[/bold]")
    for sentence in (
        f"{len(releases)} releases and {len(rows) - len(releases)} repeats in {len(rows)} time points; epsilon spent:"
        f" {last.spent:.4g} of {last.epsilon:g}.",
        f"A published count was off by {sum(errors) / len(errors):,.1f} people on average, by {max(errors):,.1f} at"
        " worst.",
        f"At the end {last.true_ill[last.hit]:,} were ill in d3, and the last release says"
        f" {last.published_ill[last.hit]:,}.",
        f"Released at every point, each count would carry noise of scale {len(rows) / EPSILON:,.0f} people; waiting for"
        f" changes made it {noise_scale(len(rows)):,.0f}.",
    ):
        console.print(f"- {sentence}")
    console.print()
    if kept is not None:
        console.print(
            f"Everything is in {kept}: try [bold]streamdp budget {kept / STREAM}.toml[/bold] and"
            f" [bold]streamdp subscribe {kept / STREAM}.toml --from-beginning[/bold]\n",
            soft_wrap=True,
        )
    folder = FOLDER / "outbreak"
    console.print(_NEXT.format(config=folder / CONFIG, trace=folder / TRACE), soft_wrap=True)
