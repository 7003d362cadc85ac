"""The results of benchmarks/strategies.py as Markdown tables, limits and one SVG plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log10
from pathlib import Path
from typing import Any

from streamdp.replay.plot import COLOURS, svg_text
from streamdp.strategies import STRATEGIES

AUTO = "auto"
MAX_OF_ANY = 1.5
Cell = dict[str, Any]
Results = dict[str, dict[str, Any]]
"""By trace: digest, moving, and by setting and strategy what was measured."""


@dataclass(frozen=True)
class Setting:
    window: int | None
    epsilon: str

    @property
    def key(self) -> str:
        return f"{'horizon' if self.window is None else self.window} {self.epsilon}"

    @property
    def title(self) -> str:
        return f"{'horizon' if self.window is None else f'w = {self.window}'}, epsilon {self.epsilon}"

    @property
    def limit(self) -> float:
        """The most that auto's geometric mean over moving traces may be."""
        return 1.25 if self.window is None and self.epsilon == "0.1" else 1.05

    @property
    def still_limit(self) -> float:
        return 4.0 if self.window is None else 2.5


def ratios(results: Results, setting: Setting, kind: str, moving: bool) -> dict[str, float]:
    """By trace: the strategy's error over that of the best tuned one, auto not being one of those."""
    found = {}
    for name, trace in results.items():
        cells = trace["settings"].get(setting.key, {})
        if trace["moving"] == moving and kind in cells:
            found[name] = cells[kind]["absolute"] / best_of(cells)[1]
    return found


def best_of(cells: dict[str, Cell]) -> tuple[str, float]:
    kind = min((one for one in cells if one != AUTO), key=lambda one: float(cells[one]["absolute"]))
    return kind, float(cells[kind]["absolute"])


def geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values)) if values else float("nan")


def kinds_in(results: Results) -> list[str]:
    """Those that were measured, auto first."""
    kinds = {kind for trace in results.values() for cells in trace["settings"].values() for kind in cells}
    order = [AUTO, *STRATEGIES]
    return sorted(kinds, key=order.index)


def passed(results: Results, settings: Sequence[Setting]) -> bool:
    """Whether auto keeps every limit; also where there is no auto."""
    return not any(_misses(results, setting) for setting in settings)


def _misses(results: Results, setting: Setting) -> list[str]:
    moving = ratios(results, setting, AUTO, moving=True)
    still = ratios(results, setting, AUTO, moving=False)
    misses = []
    if moving and geometric_mean(list(moving.values())) > setting.limit:
        misses.append(f"mean above {setting.limit}")
    misses += [f"{name} above {MAX_OF_ANY}" for name, ratio in moving.items() if ratio > MAX_OF_ANY]
    if still and geometric_mean(list(still.values())) > setting.still_limit:
        misses.append(f"static above {setting.still_limit}")
    return misses


def tables(results: Results, settings: Sequence[Setting]) -> str:
    kinds = kinds_in(results)
    parts = [_means(results, settings, kinds)]
    if any(not trace["moving"] for trace in results.values()):
        parts.append(_stills(results, settings, kinds))
    if AUTO in kinds:
        parts.append(_by_trace(results, settings))
    parts.append(_winners(results, settings))
    return "\n".join(parts)


def _means(results: Results, settings: Sequence[Setting], kinds: Sequence[str]) -> str:
    with_auto = AUTO in kinds
    names = [name for name, trace in results.items() if trace["moving"]]
    lines = [
        f"Geometric mean over {len(names)} moving traces ({', '.join(names)}) of the error over that of the best tuned"
        " strategy:\n",
        "| guarantee | " + " | ".join(kinds) + (" | limit of auto | |" if with_auto else " |"),
        "|---|" + "---|" * (len(kinds) + 2 * with_auto),
    ]
    for setting in settings:
        figures = [_mean_of(ratios(results, setting, kind, moving=True)) for kind in kinds]
        more = f" {setting.limit:g} | {'; '.join(_misses(results, setting)) or 'met'} |" if with_auto else ""
        lines.append(f"| {setting.title} | " + " | ".join(figures) + " |" + more)
    return "\n".join([*lines, ""])


def _stills(results: Results, settings: Sequence[Setting], kinds: Sequence[str]) -> str:
    with_auto = AUTO in kinds
    lines = [
        "The same over the traces in which nothing changes:\n",
        "| guarantee | " + " | ".join(kinds) + (" | limit of auto |" if with_auto else " |"),
        "|---|" + "---|" * (len(kinds) + with_auto),
    ]
    for setting in settings:
        figures = [_mean_of(ratios(results, setting, kind, moving=False)) for kind in kinds]
        more = f" {setting.still_limit:g} |" if with_auto else ""
        lines.append(f"| {setting.title} | " + " | ".join(figures) + " |" + more)
    return "\n".join([*lines, ""])


def _by_trace(results: Results, settings: Sequence[Setting]) -> str:
    lines = [
        "`auto`, trace by trace, and the strategy that is best when tuned in hindsight:\n",
        "| trace | " + " | ".join(setting.title for setting in settings) + " |",
        "|---|" + "---|" * len(settings),
    ]
    for name, trace in results.items():
        figures = []
        for setting in settings:
            cells = trace["settings"].get(setting.key, {})
            if AUTO not in cells:
                figures.append("-")
                continue
            kind, least = best_of(cells)
            figures.append(f"{cells[AUTO]['absolute'] / least:.2f} ({kind})")
        lines.append(f"| {name} | " + " | ".join(figures) + " |")
    return "\n".join([*lines, ""])


def _winners(results: Results, settings: Sequence[Setting]) -> str:
    wins = Counter(
        best_of(cells)[0]
        for trace in results.values()
        for setting in settings
        if (cells := trace["settings"].get(setting.key))
    )
    told = ", ".join(f"{kind} in {count}" for kind, count in wins.most_common())
    lines = [
        f"Best when tuned in hindsight, of {wins.total()} settings: {told}. With which parameters:\n",
        "| trace | " + " | ".join(setting.title for setting in settings) + " |",
        "|---|" + "---|" * len(settings),
    ]
    for name, trace in results.items():
        told_cells = []
        for setting in settings:
            cells = trace["settings"].get(setting.key)
            if not cells:
                told_cells.append("-")
                continue
            kind, _ = best_of(cells)
            parameters = cells[kind]["parameters"]
            value = parameters.get("interval", parameters.get("releases"))
            told_cells.append(kind if value is None else f"{kind} {value}")
        lines.append(f"| {name} | " + " | ".join(told_cells) + " |")
    return "\n".join([*lines, "", "(`fixed`: the interval; the others: releases.)", ""])


def _mean_of(found: dict[str, float]) -> str:
    return f"{geometric_mean(list(found.values())):.2f}" if found else "-"


_LEFT, _TOP, _ROW, _PANEL, _GAP = 90, 70, 18, 240, 22
_MOST = 10.0


def plot(results: Results, settings: Sequence[Setting]) -> str:
    """A panel for each setting: traces down, ratios across on a logarithmic axis, a dot for each strategy."""
    kinds = kinds_in(results)
    colours = {kind: COLOURS[place % len(COLOURS)] for place, kind in enumerate(kinds)}
    columns = (len(settings) + 1) // 2
    depth = len(results) * _ROW
    width = _LEFT + columns * (_PANEL + _GAP)
    height = _TOP + 2 * (depth + 60)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        svg_text(
            12,
            20,
            "Error over that of the best strategy tuned in hindsight (1 is the best; 10 and more at the edge)",
            size=14,
        ),
    ]
    for place, kind in enumerate(kinds):
        parts.append(f'<circle cx="{_LEFT + 90 * place}" cy="36" r="4.5" fill="{colours[kind]}"/>')
        parts.append(svg_text(_LEFT + 90 * place + 9, 40, kind))
    for place, setting in enumerate(settings):
        # One row of panels for each epsilon, one column for each guarantee.
        left = _LEFT + (place // 2) * (_PANEL + _GAP)
        top = _TOP + (place % 2) * (depth + 60) + 12
        parts += _panel(results, setting, kinds, colours, left, top, names=place < 2)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    results: Results,
    setting: Setting,
    kinds: Sequence[str],
    colours: dict[str, str],
    left: int,
    top: int,
    names: bool,
) -> list[str]:
    depth = len(results) * _ROW

    def x(ratio: float) -> float:
        # Auto may be better than every tuned one.
        return left + _PANEL * (log10(min(max(ratio, 0.7), _MOST)) - log10(0.7)) / (1 - log10(0.7))

    parts = [svg_text(left, top - 6, setting.title, size=12)]
    for ratio in (1, 1.5, 2, 3, 5, 10):
        stroke = "#888" if ratio == 1 else "#ddd"
        parts.append(f'<line x1="{x(ratio):.1f}" x2="{x(ratio):.1f}" y1="{top}" y2="{top + depth}" stroke="{stroke}"/>')
        parts.append(svg_text(x(ratio), top + depth + 13, f"{ratio:g}", size=10, anchor="middle", colour="#777"))
    for row, (name, trace) in enumerate(results.items()):
        at = top + _ROW * (row + 0.5)
        parts.append(f'<line x1="{left}" x2="{left + _PANEL}" y1="{at:.1f}" y2="{at:.1f}" stroke="#eee"/>')
        if names:
            parts.append(svg_text(left - 8, at + 4, name, anchor="end"))
        cells = trace["settings"].get(setting.key, {})
        for kind in reversed(kinds):
            if kind in cells:
                ratio = cells[kind]["absolute"] / best_of(cells)[1]
                size = 5.5 if kind == AUTO else 4
                parts.append(
                    f'<circle cx="{x(ratio):.1f}" cy="{at:.1f}" r="{size}" fill="{colours[kind]}" fill-opacity="0.85">'
                    f"<title>{name}, {setting.title}: {kind} {ratio:.3g}</title></circle>"
                )
    return parts


def write_docs(docs: Path, name: str, text: str, picture: str) -> None:
    """The plot beside docs/strategies.md, and the tables between that page's marks."""
    (docs / f"strategies-{name}.svg").write_text(picture, encoding="utf-8")
    page = docs / "strategies.md"
    begin, end = (f"<!-- benchmarks/strategies.py {name}: {edge} -->" for edge in ("begin", "end"))
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        raise SystemExit(f"{page.name} has no place for the tables: {begin} ... {end}")
    page.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")
