"""`streamdp subscribe`: releases as they come."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamdp.client import Update

ORDER = 30
HELP = "print releases as they come"
DESCRIPTION = """\
Prints what a stream has released: first the latest full release of each histogram, then, with --follow, every time
point as it closes: `release` with fresh noisy counts, `forecast` with counts that earlier releases let expect, which
cost nothing, or `repeat` when the last of these still stands. Points that no daemon watched share one line.

Everything shown was released under the stream's guarantee, so anybody may see it. `total` is the number of records in
the histogram; 95 of 100 such totals are off by no more than what follows the ± ("+ noise" where nothing is known of
that). The bars are the counts, summed over neighbouring cells when there are many. --json prints one object a line,
counts included, with `total` and, where known, the ends of its 95 % interval."""

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40
_ROW = "{when:19}  {point:>7}  {histogram:20}  {kind:8}  {epsilon:>10}  {left:>10}  {total:>18}  {shape}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument("--follow", "-f", action="store_true", help="wait for more until the stream ends, or Ctrl-C")
    parser.add_argument("--from-beginning", action="store_true", help="begin with the oldest release still there")
    parser.add_argument("--histogram", action="append", metavar="NAME", help="only this histogram (may be repeated)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, counts included")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.client import subscribe
    from streamdp.config import load
    from streamdp.config.transports import open_output
    from streamdp.errors import ConfigurationError, StreamdpError
    from streamdp.transport.base import UnknownTopic

    config = load(arguments.config)
    names = {histogram.name for histogram in config.histogram}
    if unknown := sorted(set(arguments.histogram or ()) - names):
        raise ConfigurationError(f"no histogram {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    try:
        with closing(open_output(config, create=False)) as transport:
            updates = subscribe(
                transport,
                config.output_prefix,
                histograms=arguments.histogram,
                from_beginning=arguments.from_beginning,
                follow=arguments.follow,
            )
            _print(updates, as_json=arguments.json)
    except UnknownTopic as error:
        raise StreamdpError(f"{error}; start `streamdp run {arguments.config}`, which makes it") from error
    return 0


def _print(updates: Iterable[Update], *, as_json: bool) -> None:
    shown = 0
    for update in updates:
        if not as_json and not shown:
            print(_ROW.format(**_TITLES), flush=True)
        print(json.dumps(_fields(update)) if as_json else _ROW.format(**_cells(update)), flush=True)
        shown += 1
    if not shown:
        print("nothing was released yet; --follow waits for the first release", file=sys.stderr)


_TITLES = {
    "when": "closed (UTC)",
    "point": "point",
    "histogram": "histogram",
    "kind": "what",
    "epsilon": "epsilon",
    "left": "left",
    "total": "total",
    "shape": "counts",
}


def _fields(update: Update) -> dict[str, Any]:
    fields = {name: value for name, value in update.header.items() if name not in ("parts", "format")}
    if update.is_new and update.release is not None:
        fields["counts"] = update.release.to_numpy().tolist()
    if update.release is not None:
        total = update.release.range_count()
        fields["total"] = {"count": total.value}
        if total.interval is not None:
            fields["total"] |= {"low": round(total.interval[0], 1), "high": round(total.interval[1], 1)}
    return fields


def _total(update: Update) -> str:
    if update.release is None:
        return "-"
    total = update.release.range_count()
    if total.interval is None:
        return f"{total.value:,} + noise"
    return f"{total.value:,} ± {total.interval[1] - total.value:,.0f}"


def _cells(update: Update) -> dict[str, str]:
    from streamdp.privacy.exact import as_fraction, decimal_text

    header = update.header
    closed = datetime.fromtimestamp(header["closed"] / 1_000, UTC)
    spent = sum((as_fraction(epsilon) for epsilon, _ in header.get("charges", [])), as_fraction(0))
    return {
        "when": closed.strftime("%Y-%m-%d %H:%M:%S"),
        "point": str(update.time_point),
        "histogram": update.histogram,
        "kind": update.kind,
        "epsilon": decimal_text(spent) if spent else "-",
        "left": decimal_text(as_fraction(header["epsilon_left"])) if "epsilon_left" in header else "-",
        "total": _total(update),
        "shape": _bars(update) if update.is_new else _reason(update),
    }


def _reason(update: Update) -> str:
    reason = str(update.header.get("reason", ""))
    return reason if update.first_time_point == update.time_point else f"{reason} since point {update.first_time_point}"


def _bars(update: Update) -> str:
    """The counts as a line of bars, neighbouring cells summed to fit; negative noise counts as nothing."""
    import numpy as np

    if update.release is None:
        return ""
    counts = update.release.counts
    width = min(_WIDTH, counts.size)
    sums = np.add.reduceat(counts, np.arange(width) * counts.size // width).clip(min=0)
    levels = (sums * (len(_BARS) - 1) // max(1, int(sums.max()))).tolist()
    return "".join(_BARS[level] for level in levels)
