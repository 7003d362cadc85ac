"""A comparison as one SVG picture: for each histogram the error over time, one line a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from streamdp.replay.compare import Comparison, Standing

_WIDTH, _HEIGHT, _GAP = 860, 260, 70
_LEFT, _RIGHT, _TOP = 70, 170, 50
_MAX_STEPS = 400
# Okabe and Ito's colours, which people who see few colours can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


def to_svg(comparison: Comparison) -> str:
    """The picture. Its vertical axis is logarithmic: strategies differ by factors."""
    names = comparison.histograms
    height = _TOP + len(names) * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        svg_text(_LEFT, 22, f"{comparison.stream}: mean absolute error of random range counts", size=15),
        svg_text(_LEFT, 38, f"{comparison.runs} runs; holds unreleased truth, as private as the trace", colour="#777"),
    ]
    for place, name in enumerate(names):
        parts += _panel(name, comparison.of(name), _TOP + 18 + place * (_HEIGHT + _GAP))
    return "\n".join([*parts, "</svg>", ""])


def _panel(name: str, standings: Sequence[Standing], top: int) -> list[str]:
    series = [_steps(standing.absolute_by_point) for standing in standings]
    values = [value for line in series for _, value in line if value > 0] or [1.0]
    low, high = floor(log10(min(values))), max(ceil(log10(max(values))), floor(log10(min(values))) + 1)
    points = max(2, max((len(standing.absolute_by_point) for standing in standings), default=2))
    width = _WIDTH - _LEFT - _RIGHT

    def x(point: float) -> float:
        return _LEFT + width * (point - 1) / (points - 1)

    def y(value: float) -> float:
        return top + _HEIGHT * (1 - (log10(max(value, 10.0**low)) - low) / (high - low))

    parts = [svg_text(_LEFT, top - 6, name, size=13)]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(svg_text(_LEFT - 6, at + 4, f"{10.0**power:g}", anchor="end"))
    for point in (1, (1 + points) // 2, points):
        parts.append(svg_text(x(point), top + _HEIGHT + 16, str(point), anchor="middle"))
    parts.append(svg_text(_LEFT + width / 2, top + _HEIGHT + 32, "time point", anchor="middle", colour="#777"))
    for place, (standing, line) in enumerate(zip(standings, series, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{x(point):.1f},{y(value):.1f}" for point, value in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        at = top + 14 + 34 * place
        left = _LEFT + width + 14
        parts.append(
            f'<line x1="{left}" x2="{left + 18}" y1="{at - 4}" y2="{at - 4}" stroke="{colour}" stroke-width="3"/>'
        )
        parts.append(svg_text(left + 24, at, standing.strategy))
        parts.append(
            svg_text(left + 24, at + 14, f"{standing.absolute:.4g} ± {standing.absolute_spread:.2g}", colour="#777")
        )
    return parts


def _steps(values: Sequence[float]) -> list[tuple[float, float]]:
    """At most so many steps: the mean of each stretch, at its middle."""
    size = max(1, ceil(len(values) / _MAX_STEPS))
    stretches = [(begin, values[begin : begin + size]) for begin in range(0, len(values), size)]
    return [(begin + (len(part) + 1) / 2, sum(part) / len(part)) for begin, part in stretches]


def svg_text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = "#222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
    )
