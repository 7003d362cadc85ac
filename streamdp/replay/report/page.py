"""The page of a report."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from html import escape
from pathlib import PurePath
from typing import Any

from streamdp.config.report import duration_words
from streamdp.privacy.exact import decimal_text
from streamdp.replay.report.chart import Line, TimeAxis, line_chart, strip
from streamdp.replay.report.reduce import Cells, Series, cells_each, points_each
from streamdp.replay.report.script import SCRIPT
from streamdp.replay.report.style import STYLE
from streamdp.replay.result import HistogramResult, ReplayResult

# The page holds truth: a browser that shows it must not be able to send anything anywhere.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_ASKED = frozenset({"below"})
_KINDS = {
    "release": "release",
    "forecast": "forecast",
    "asked": "repeat, the data was asked",
    "unasked": "repeat, nothing asked",
}


def render(result: ReplayResult) -> str:
    """The whole page: no part of it is fetched, and none of it leaves."""
    title = f"Replay of {result.stream}"
    sections = "".join(_section(result, histogram, place) for place, histogram in enumerate(result.histograms))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        '<meta name="color-scheme" content="light dark"/>\n<meta name="robots" content="noindex"/>\n'
        f'<link rel="icon" href="data:,"/>\n<title>{escape(title)} (private)</title>\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{_warnings(result)}{_facts(result)}{_summary(result)}{sections}"
        f"</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _warnings(result: ReplayResult) -> str:
    noise = (
        "The noise comes from the operating system, so another replay gives other releases."
        if result.seed is None
        else f"The noise comes from seed {result.seed}: reproducible, <strong>not private</strong>. Whoever knows the"
        " seed can take the noise off every released count on this page."
    )
    none = (
        "<p>The records' own timestamps closed the points, so a daemon could give no guarantee for this.</p>"
        if result.guarantee == "none"
        else ""
    )
    return (
        '<div class="warning" role="note"><p><strong>This page holds unreleased truth</strong>: exact counts, exact'
        " distances and errors. It is as private as the input: keep it where the trace is kept, and show it to nobody"
        f" who may not see the trace.</p><p>{noise}</p>{none}</div>\n"
    )


def _facts(result: ReplayResult) -> str:
    rejected = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in result.rejected.items())
    facts = {
        "Trace": PurePath(result.trace).name,
        "Time points": f"{len(result.time_points):,}{_length(result)}, closed by"
        f" {'marks in the trace' if result.clock == 'marks' else 'the timestamps of the records'}"
        f"{'; the horizon is over' if result.ended else ''}",
        "Messages": f"{result.messages:,}",
        "Dead letters": rejected or "none",
        "Records at the end": f"{result.records[-1]:,}" if result.records else "none",
    }
    if result.dropped:
        facts["Dropped, outside the domain"] = f"{result.dropped:,}"
    if result.bad_lines:
        facts["Broken lines skipped"] = f"{result.bad_lines:,}"
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{items}</dl>\n'


def _length(result: ReplayResult) -> str:
    return f" of {duration_words(result.closed[0] - result.opened[0])}" if result.closed else ""


_COLUMNS = (
    "Histogram",
    "Strategy",
    "Cells",
    "Releases",
    "Mean absolute error",
    "Mean relative error",
    "Mean L1 error",
    "Epsilon",
    "Most spent",
)


def _summary(result: ReplayResult) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    rows = "".join(_row(histogram, place) for place, histogram in enumerate(result.histograms))
    return (
        f'<h2>Summary</h2>\n<table class="summary"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>\n'
        "<p>Errors are means over all time points: of random range counts, in records and relative to the true answer"
        " (or to 0.1 % of all records, where the answer is smaller), and of the L1 distance, over all cells, between"
        " what subscribers hold and the truth. <em>Most spent</em> is over the horizon, or in any one window.</p>\n"
    )


def _row(histogram: HistogramResult, place: int) -> str:
    figures = histogram.summary()
    name = escape(histogram.name).replace("_", "_<wbr/>")
    values = (
        histogram.strategy,
        f"{' × '.join(map(str, histogram.shape))}",
        f"{histogram.releases:,} of {len(histogram.kinds):,}",
        f"{figures['mean_absolute_error']:,.2f}",
        f"{figures['mean_relative_error']:.2%}",
        f"{figures['mean_l1_error']:,.1f}",
        decimal_text(Fraction(histogram.epsilon)),
        f"{figures['max_epsilon_spent']:.4g}",
    )
    cells = "".join(
        f'<td data-label="{label}">{escape(text)}</td>' for label, text in zip(_COLUMNS[1:], values, strict=True)
    )
    return f'<tr><th scope="row"><a href="#h{place}">{name}</a></th>{cells}</tr>'


def _section(result: ReplayResult, histogram: HistogramResult, place: int) -> str:
    series = Series(result, histogram, points_each(len(result.histograms)))
    if not len(series):
        return f'<section id="h{place}"><h2>{escape(histogram.name)}</h2><p>No time point closed.</p></section>\n'
    size = f"; each step stands for {series.size} of them" if series.size > 1 else ""
    axis = TimeAxis(
        len(series), series.size, result.time_points[0], result.time_points[-1], f"time point{_each(result)}{size}"
    )
    cells = Cells(histogram, cells_each(len(result.histograms)))
    stored = json.dumps(_stored(histogram, series, cells), separators=(",", ":"), allow_nan=False)
    return (
        f'<section class="histogram" id="h{place}">\n<h2>{escape(histogram.name)}</h2>\n'
        f"<p>{escape(histogram.strategy)}: {escape(histogram.guarantee)}.</p>\n"
        f'<div class="pointer"><label for="p{place}">Time point</label><input id="p{place}" type="range" min="0"'
        f' max="{len(series) - 1}" value="{len(series) - 1}"/><output for="p{place}"></output></div>\n'
        f"{_charts(histogram, series, axis)}{_histogram(histogram, cells, result)}"
        # Inside a script element only "<" could end it, and JSON has another way to write that.
        f'<script type="application/json">{stored.replace("<", chr(92) + "u003c")}</script>\n</section>\n'
    )


def _each(result: ReplayResult) -> str:
    return f" ({duration_words(result.closed[0] - result.opened[0])} each)"


def _charts(histogram: HistogramResult, series: Series, axis: TimeAxis) -> str:
    epsilon = float(Fraction(histogram.epsilon))
    windowed = "w-event" in histogram.guarantee
    distance = [Line("exact distance", "distance", series.distances)]
    if any(threshold is not None for threshold in series.thresholds):
        distance.append(Line("public threshold", "threshold", series.thresholds, steps=True))
    classes = [_class(kind, reason) for kind, reason in zip(series.kinds, series.reasons, strict=True)]
    return (
        line_chart(
            "Error",
            f"mean absolute error of {histogram.queries:,} random range counts, in records",
            [Line("what subscribers hold against the truth", "error", series.absolute)],
            axis,
        )
        + line_chart(
            "Distance against threshold",
            "L1 distance between the truth and the last release, in records, as the strategy measures it",
            distance,
            axis,
        )
        + strip("Release points", "what was published at each time point", classes, _reasons(histogram), axis)
        + line_chart(
            "Budget",
            "epsilon spent in the window that ends with the point"
            if windowed
            else "epsilon spent since the first point",
            [
                Line("spent", "spent", series.spent, steps=True),
                Line(
                    f"epsilon, {decimal_text(Fraction(histogram.epsilon))}",
                    "epsilon",
                    [epsilon] * len(series),
                    steps=True,
                ),
            ],
            axis,
        )
    )


def _class(kind: str, reason: str) -> str:
    return kind if kind != "repeat" else "asked" if reason in _ASKED else "unasked"


def _reasons(histogram: HistogramResult) -> list[tuple[str, str]]:
    """The strip's legend: how often each reason led to each kind of point."""
    groups: dict[str, Counter[str]] = {style: Counter() for style in _KINDS}
    for kind, reason in zip(histogram.kinds, histogram.reasons, strict=True):
        groups[_class(kind, reason)][reason.replace("_", " ")] += 1
    return [
        (style, f"{_KINDS[style]} ({', '.join(f'{reason} {count:,}' for reason, count in reasons.items())})")
        for style, reasons in groups.items()
        if reasons
    ]


def _histogram(histogram: HistogramResult, cells: Cells, result: ReplayResult) -> str:
    notes = [f"records in each cell at time point {result.time_points[-1]:,}, true and released"]
    if cells.summed:
        shown, whole = " × ".join(map(str, cells.shape)), " × ".join(map(str, histogram.shape))
        notes.append(f"neighbouring cells are summed: {shown} shown of {whole}")
    if not cells.has_release:
        notes.append("nothing was ever released")
    return (
        '<figure class="cells"><figcaption><h3>True and released histogram</h3>'
        f"<p>{escape('; '.join(notes))}</p></figcaption>"
        '<form class="axes"></form><div class="drawing"></div><output class="cell"></output>'
        "<noscript><p>Drawn by the page's own script, which this browser does not run.</p></noscript></figure>\n"
    )


def _stored(histogram: HistogramResult, series: Series, cells: Cells) -> dict[str, Any]:
    """What the script reads."""
    return {
        "size": series.size,
        "points": series.time_points,
        "closed": series.closed,
        "kinds": series.kinds,
        "reasons": series.reasons,
        "absolute": _short(series.absolute),
        "relative": _short(series.relative),
        "l1": _short(series.l1),
        "distances": series.distances,
        "thresholds": _short(series.thresholds),
        "spent": _short(series.spent),
        "epsilon": float(Fraction(histogram.epsilon)),
        "names": [axis["attribute"] for axis in histogram.view["axes"]],
        "labels": cells.labels,
        "shape": cells.shape,
        "true": cells.true,
        "released": cells.released,
    }


def _short(values: list[Any]) -> list[float | None]:
    return [None if value is None else float(f"{value:.5g}") for value in values]
