"""`streamdp replay`: play a recorded trace through the real engine, and measure it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamdp.replay.result import ReplayResult
    from streamdp.transport.base import Transport

ORDER = 72
HELP = "play a trace and measure the releases against the truth"
DESCRIPTION = """\
Plays a trace (docs/replay.md) through the same engine as the daemon, and tells how good the releases are. A replay
knows the truth, so it can say what a daemon never may: how far off the answers to range counts are.

  streamdp replay census.jsonl.zst --config census.toml
  streamdp replay census.jsonl.zst --config census.toml --seed 1 --json
  streamdp replay census.jsonl.zst --config census.toml --report census-report
  streamdp replay census.jsonl.zst --to data/log --topic people --speed 60x
  streamdp replay census.jsonl.zst --to kafka://localhost:9092 --topic people
  streamdp replay census.jsonl.zst --to census.toml

Points close at the trace's marks, or, when it has none, by the timestamps of the records. --seed makes the noise
reproducible, and therefore NOT private. With --to the messages are appended to a topic instead, for a daemon to read:
in an embedded log, in a Kafka, or wherever a stream's TOML file says its input is (its keys and secrets are used).

What this prints holds unreleased truth: it is as private as the trace. Figures:

  absolute   mean error of random range counts, over all points
  relative   the same relative to the true answer, or to 0.1 % of all records where the answer is smaller
  L1         mean distance, over all cells, between what subscribers hold and the truth
  spent      the most epsilon spent over the horizon, or in any window"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="JSON lines, plain, gzip or zstd")
    parser.add_argument("--config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument("--speed", default="max", metavar="S", help='"max" (default), "real" or a factor: 10x')
    parser.add_argument("--seed", type=int, metavar="N", help="reproducible noise: NOT private")
    parser.add_argument("--queries", type=int, default=1_000, metavar="N", help="random range counts (default: 1000)")
    parser.add_argument("--skip-bad", action="store_true", help="pass over broken lines and count them")
    parser.add_argument("--json", action="store_true", help="print everything found, point by point, as one object")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write DIR/index.html: a page with plots, private")
    parser.add_argument("--to", metavar="PLACE", help="append the messages: LOG_DIR, kafka://HOST:PORT or a TOML file")
    parser.add_argument("--topic", metavar="T", help="with --to: the topic; left out, the only one of the TOML file")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.errors import ConfigurationError

    if arguments.to is not None:
        return _feed(arguments)
    if arguments.config is None:
        raise ConfigurationError("give --config CONFIG to play the trace, or --to PLACE --topic T to feed a topic")
    if arguments.queries < 1:
        raise ConfigurationError("--queries is 1 or more")
    result = _play(arguments)
    if arguments.report is not None:
        _report(result, arguments.report)
    if arguments.json:
        print(json.dumps(result.to_json(), allow_nan=False))
    else:
        _print(result)
    return 0


def _play(arguments: argparse.Namespace) -> ReplayResult:
    from streamdp.cli._progress import Progress
    from streamdp.config import load
    from streamdp.engine import PointClosed
    from streamdp.replay.pace import Pace
    from streamdp.replay.play import open_trace, replay

    pace = Pace.parse(arguments.speed)
    config = load(arguments.config)
    with (
        open_trace(arguments.trace, config, skip_bad=arguments.skip_bad) as trace,
        Progress("playing", trace.file.size) as progress,
    ):

        def on_point(event: PointClosed, *_: Any) -> None:
            pace.reach(event.closed_ts)
            progress.at(trace.file.done, f"playing: time point {event.time_point}")

        return replay(config, trace, seed=arguments.seed, queries=arguments.queries, on_point=on_point)


def _feed(arguments: argparse.Namespace) -> int:
    from contextlib import closing

    from streamdp.cli._progress import Progress
    from streamdp.replay.feed import feed
    from streamdp.replay.pace import Pace
    from streamdp.replay.reader import TraceReader

    pace = Pace.parse(arguments.speed)
    transport, topic = _place(arguments)
    with (
        closing(transport),
        TraceReader(arguments.trace, topic, skip_bad=arguments.skip_bad) as trace,
        Progress("feeding", trace.file.size) as progress,
    ):
        sent = feed(trace, transport, topic, pace, lambda _: progress.at(trace.file.done))
    print(f"{sent:,} messages appended to {topic}{_skipped(trace.bad_lines)}")
    return 0


def _place(arguments: argparse.Namespace) -> tuple[Transport, str]:
    """Where --to leads: the transport, and the topic."""
    from streamdp.config import load
    from streamdp.config.transports import open_input
    from streamdp.errors import ConfigurationError
    from streamdp.transport.filelog import FileLog

    to, topic = arguments.to, arguments.topic
    if to.endswith(".toml"):
        config = load(Path(to))
        if topic is None and len(config.input.topics) == 1:
            topic = config.input.topics[0]
        if topic is not None:
            return open_input(config), topic
    if topic is None:
        raise ConfigurationError("--to needs --topic T, the topic to append to")
    if to.startswith("kafka://"):
        from streamdp.transport.kafka import KafkaTransport
        from streamdp.transport.kafka_keys import client_settings

        return KafkaTransport(client_settings({"bootstrap.servers": to.removeprefix("kafka://")}, "output")), topic
    return FileLog(Path(to), create=True), topic


def _report(result: ReplayResult, directory: Path) -> None:
    import sys

    from streamdp.replay.report import write_report

    page = write_report(result, directory)
    # On stderr, so that --json stays one object.
    print(f"report: {page} (open it in a browser; it is as private as the trace)", file=sys.stderr)


def _print(result: ReplayResult) -> None:
    from streamdp.replay.result import PRIVATE

    by = "the trace's marks" if result.clock == "marks" else "the records' timestamps"
    print(f"stream {result.stream}: {len(result.time_points):,} time points, closed by {by}")
    rejected = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in result.rejected.items())
    print(
        f"{result.messages:,} messages in {result.seconds:.1f} s; dead letters: {rejected or 'none'};"
        f" dropped: {result.dropped:,}{_skipped(result.bad_lines)}"
    )
    if result.ended:
        print("the horizon is over; what the trace holds beyond it was not played")
    print(f"{result.noise}\n")
    row = "{:24}  {:8}  {:>8}  {:>12}  {:>9}  {:>12}  {:>8}  {:>8}"
    print(row.format("histogram", "strategy", "releases", "absolute", "relative", "L1", "spent", "epsilon"))
    for histogram in result.histograms:
        figures = histogram.summary()
        print(
            row.format(
                histogram.name,
                histogram.strategy,
                figures["releases"],
                f"{figures['mean_absolute_error']:,.2f}",
                f"{figures['mean_relative_error']:.2%}",
                f"{figures['mean_l1_error']:,.1f}",
                f"{figures['max_epsilon_spent']:.4g}",
                f"{_number(histogram.epsilon):.4g}",
            )
        )
    if result.guarantee == "none":
        print("\nThe records closed the points, so a daemon could give no guarantee for this; it is for replay only.")
    print(f"\nThis {PRIVATE}.")


def _skipped(lines: int) -> str:
    return f"; broken lines skipped: {lines:,}" if lines else ""


def _number(text: str) -> float:
    from fractions import Fraction

    return float(Fraction(text))
