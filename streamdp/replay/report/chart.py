"""Charts over time: SVG for lines and bars, stretched to whatever width there is, and HTML for labels, which is not.

A point owns a slot of equal width, so that all charts of a histogram line up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import ceil, floor, log10

_WIDTH, _HEIGHT = 10_000, 1_000
_TICKS = 4


@dataclass(frozen=True)
class TimeAxis:
    """So many slots, each of `size` time points, from `first` on to `last`."""

    slots: int
    size: int
    first: int
    last: int
    label: str

    def middle(self, slot: float) -> float:
        return (slot + 0.5) / max(1, self.slots)

    def ticks(self) -> list[tuple[float, str]]:
        step = max(1, round(_step(self.last - self.first, 5)))
        numbers = [self.first, *range(self.first - self.first % step + step, self.last + 1, step)]
        if len(numbers) > 1 and numbers[1] - numbers[0] < step / 2:
            del numbers[1]
        return [(self.middle((number - self.first) // self.size), f"{number:,}") for number in numbers]


@dataclass(frozen=True)
class Line:
    """One quantity; None where there is none. `style` is a class of the page's style sheet."""

    label: str
    style: str
    values: Sequence[float | None]
    steps: bool = False
    """Holds its value through the slot, rather than passing from one to the next."""


def ticks(high: float) -> list[float]:
    """Round numbers from 0 to at least `high`."""
    step = _step(high, _TICKS) if high > 0 else 1.0
    return [step * count for count in range(ceil(round(high / step, 9)) + 1)] if high > 0 else [0.0, step]


def number(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def line_chart(title: str, unit: str, lines: Sequence[Line], axis: TimeAxis) -> str:
    values = [value for line in lines for value in line.values if value is not None]
    marks = ticks(max(values, default=0.0))
    top = marks[-1]
    grid = "".join(f'<path class="grid" d="M0 {_y(mark, top)}H{_WIDTH}"/>' for mark in marks)
    paths = "".join(f'<path class="line {line.style}" d="{" ".join(_path(line, axis, top))}"/>' for line in lines)
    legend = "".join(f'<li class="{line.style}">{escape(line.label)}</li>' for line in lines)
    return _figure(
        title, unit, legend, grid + paths, [(mark / top, number(mark)) for mark in marks], axis, "chart lines"
    )


def strip(title: str, unit: str, classes: Sequence[str], legend: Sequence[tuple[str, str]], axis: TimeAxis) -> str:
    """A band with a bar for each slot; a slot's class says how it looks."""
    bars = []
    slot = 0
    for style, run in groupby(classes):
        length = len(list(run))
        begin, end = (_WIDTH * at / max(1, axis.slots) for at in (slot, slot + length))
        bars.append(f'<path class="bar {style}" d="M{begin:.0f} 0H{end:.0f}V{_HEIGHT}H{begin:.0f}z"/>')
        slot += length
    items = "".join(f'<li class="{style}">{escape(label)}</li>' for style, label in legend)
    return _figure(title, unit, items, "".join(bars), [], axis, "chart strip")


def _figure(
    title: str,
    unit: str,
    legend: str,
    drawing: str,
    levels: Sequence[tuple[float, str]],
    axis: TimeAxis,
    style: str,
) -> str:
    y = "".join(f'<span style="bottom:{100 * at:.2f}%">{label}</span>' for at, label in levels)
    x = "".join(f'<span style="left:{100 * at:.2f}%">{label}</span>' for at, label in axis.ticks())
    return (
        f'<figure class="{style}"><figcaption><h3>{escape(title)}</h3><p>{escape(unit)}</p>'
        f'<ul class="legend">{legend}</ul></figcaption>'
        f'<div class="plot"><div class="y" aria-hidden="true">{y}</div><div class="area">'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f'{drawing}</svg><i class="cursor"></i></div>'
        f'<div class="x" aria-hidden="true">{x}</div><div class="unit">{escape(axis.label)}</div></div></figure>\n'
    )


def _path(line: Line, axis: TimeAxis, top: float) -> Iterator[str]:
    drawing = False
    width = _WIDTH / max(1, axis.slots)
    for slot, value in enumerate(line.values):
        if value is None:
            drawing = False
            continue
        move = "L" if drawing else "M"
        if line.steps:
            yield f"{move}{slot * width:.0f} {_y(value, top)}H{(slot + 1) * width:.0f}"
        else:
            # A point between two gaps is a line of no length, which round ends make a dot.
            yield f"{move}{axis.middle(slot) * _WIDTH:.0f} {_y(value, top)}{'' if drawing else 'h0'}"
        drawing = True


def _y(value: float, top: float) -> int:
    return round(_HEIGHT * (1 - value / top))


def _step(span: float, most: int) -> float:
    """1, 2 or 5 times a power of ten, so that about `most` steps make the span."""
    if span <= 0:
        return 1.0
    power = 10.0 ** floor(log10(span / most))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power * most >= span * 0.999)
