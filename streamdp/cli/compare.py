"""`streamdp compare`: which strategy is best for this data."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamdp.config import StreamConfig
    from streamdp.replay.compare import Comparison
    from streamdp.replay.tune import Trying, Tuning

ORDER = 73
HELP = "compare strategies on a trace: the table that chooses one"
DESCRIPTION = """\
Plays a trace once for every strategy, several runs each, and tells which is the most accurate for this data.

  streamdp compare census.jsonl.zst --config census.toml
  streamdp compare taxi.jsonl.zst --config taxi.toml --strategies dsat_w,ba,fixed --runs 20 --plot taxi.svg
  streamdp compare taxi.jsonl.zst --config taxi.toml --set dsat_w.releases=4 --set fixed.interval=6
  streamdp compare taxi.jsonl.zst --config taxi.toml --tune

Only strategies that go with the configuration's guarantee can be compared; without --strategies all of them are. The
configuration's own strategy runs with its own parameters. For the others, unless --set says otherwise: `releases` is
the configured one, or ten; `fixed` releases as often; a distance threshold is the configured one, or twice what noise
alone makes of the distance (docs/replay.md).

With --tune the parameters of every strategy are searched on this trace, and the best found are reported, with the
ratio of their error to that of the best strategy. They are chosen on some draws of the noise and reported on others
(--runs each): it is hindsight over parameters, not over noise. The daemon has no hindsight: what --tune finds is what
a strategy could have reached, and a start for data of the same kind.

absolute is the mean error of random range counts over all points and runs, with its standard deviation between
runs; relative and L1 as in `streamdp replay`. What this prints holds unreleased truth, and choosing by it is a choice
made from the data: do it on old data, or on data you made up."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="JSON lines, plain, gzip or zstd")
    parser.add_argument("--config", type=Path, required=True, metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument("--strategies", metavar="LIST", help="as in dsat,fixed (default: all that fit)")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="runs of each strategy (default: 10)")
    parser.add_argument("--tune", action="store_true", help="search every strategy's parameters, in hindsight")
    parser.add_argument("--processes", type=int, metavar="N", help="for --tune (default: one for each core)")
    parser.add_argument("--set", action="append", default=[], metavar="S.P=V", help="a parameter: dsat_w.releases=10")
    parser.add_argument("--histogram", action="append", metavar="NAME", help="only this one (may be repeated)")
    parser.add_argument("--queries", type=int, default=1_000, metavar="N", help="random range counts (default: 1000)")
    parser.add_argument("--seed", type=int, metavar="N", help="reproducible noise: NOT private")
    parser.add_argument("--skip-bad", action="store_true", help="pass over broken lines")
    parser.add_argument("--json", action="store_true", help="print everything as one object, point by point")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="also draw the error over time")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.errors import ConfigurationError

    config = load(arguments.config)
    if arguments.runs < 1 or arguments.queries < 1 or (arguments.seed or 0) < 0:
        raise ConfigurationError("--runs and --queries are 1 or more, --seed 0 or more")
    names = [histogram.name for histogram in config.histogram]
    if unknown := sorted(set(arguments.histogram or ()) - set(names)):
        raise ConfigurationError(f"no histogram {', '.join(unknown)}; there are {', '.join(names)}")
    if not arguments.tune:
        return _compare(arguments, config)
    if arguments.set or arguments.plot is not None:
        raise ConfigurationError("--tune searches the parameters itself and draws nothing: leave out --set and --plot")
    if arguments.processes is not None and arguments.processes < 1:
        raise ConfigurationError("--processes is 1 or more")
    return _tune(arguments, config)


def _tune(arguments: argparse.Namespace, config: StreamConfig) -> int:
    from streamdp.cli._progress import Progress
    from streamdp.replay.play import open_trace
    from streamdp.replay.tune import tune

    with (
        open_trace(arguments.trace, config, skip_bad=arguments.skip_bad) as trace,
        Progress("reading", trace.file.size) as progress,
    ):

        def on_trial(trial: Trying) -> None:
            progress.at(int(trace.file.size * trial.part), f"tuning {trial.histogram}: {trial.strategy}")

        tuning = tune(
            config,
            trace,
            strategies=arguments.strategies.split(",") if arguments.strategies else None,
            runs=arguments.runs,
            histograms=arguments.histogram,
            seed=arguments.seed,
            queries=arguments.queries,
            processes=arguments.processes or len(os.sched_getaffinity(0)),
            on_point=lambda point: progress.at(trace.file.done, f"reading: time point {point}"),
            on_trial=on_trial,
        )
    if arguments.json:
        print(json.dumps(tuning.to_json(), allow_nan=False))
    else:
        _print_tuning(tuning)
    return 0


def _compare(arguments: argparse.Namespace, config: StreamConfig) -> int:
    from streamdp.cli._progress import Progress
    from streamdp.errors import ConfigurationError
    from streamdp.replay.candidates import parse_settings
    from streamdp.replay.compare import compare
    from streamdp.replay.play import open_trace
    from streamdp.replay.plot import to_svg

    with (
        open_trace(arguments.trace, config, skip_bad=arguments.skip_bad) as trace,
        Progress("comparing", trace.file.size) as progress,
    ):
        comparison = compare(
            config,
            trace,
            strategies=arguments.strategies.split(",") if arguments.strategies else None,
            runs=arguments.runs,
            settings=parse_settings(arguments.set),
            histograms=arguments.histogram,
            seed=arguments.seed,
            queries=arguments.queries,
            on_point=lambda point: progress.at(trace.file.done, f"comparing: time point {point}"),
        )
    if arguments.plot is not None:
        try:
            descriptor = os.open(arguments.plot, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"cannot write {arguments.plot}: {error.strerror}") from None
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(to_svg(comparison))
    if arguments.json:
        print(json.dumps(comparison.to_json(), allow_nan=False))
    else:
        _print(comparison)
    return 0


def _print(comparison: Comparison) -> None:
    from streamdp.replay.result import NOT_REPRODUCIBLE, PRIVATE, REPRODUCIBLE

    print(f"stream {comparison.stream}: {comparison.time_points:,} time points, {comparison.runs} runs each")
    print(NOT_REPRODUCIBLE if comparison.seed is None else REPRODUCIBLE)
    row = "{:10}  {:>24}  {:>9}  {:>12}  {:>8}  {:>8}  {}"
    for histogram in comparison.histograms:
        print(f"\n{histogram}, the most accurate first")
        print(row.format("strategy", "absolute", "relative", "L1", "releases", "epsilon", "parameters"))
        for standing in comparison.of(histogram):
            print(
                row.format(
                    standing.strategy,
                    f"{standing.absolute:,.2f} ± {standing.absolute_spread:,.2f}",
                    f"{standing.relative:.2%}",
                    f"{standing.l1:,.1f}",
                    f"{standing.releases:.1f}",
                    f"{standing.epsilon:.4g}",
                    " ".join(f"{name}={value}" for name, value in _told(standing.parameters).items()) or "-",
                )
            )
    print(f"\nThis {PRIVATE}.")


def _print_tuning(tuning: Tuning) -> None:
    from streamdp.replay.result import NOT_REPRODUCIBLE, PRIVATE, REPRODUCIBLE

    print(f"stream {tuning.stream}: {tuning.time_points:,} time points, tuned in hindsight")
    print(f"chosen on {tuning.runs} draws of the noise, reported on {tuning.runs} others")
    print(NOT_REPRODUCIBLE if tuning.seed is None else REPRODUCIBLE)
    row = "{:10}  {:>24}  {:>7}  {:>8}  {:>8}  {:>6}  {}"
    for histogram in tuning.histograms:
        print(f"\n{histogram}, the most accurate first")
        print(row.format("strategy", "absolute", "ratio", "untuned", "releases", "tried", "parameters"))
        for tuned in tuning.of(histogram):
            print(
                row.format(
                    tuned.strategy,
                    f"{tuned.absolute:,.2f} ± {tuned.absolute_spread:,.2f}",
                    f"{tuned.ratio:.3g}",
                    f"{tuned.default_ratio:.3g}",
                    f"{tuned.releases:.1f}",
                    str(tuned.tried),
                    " ".join(f"{name}={value}" for name, value in tuned.parameters.items()) or "-",
                )
            )
    print(
        "\nratio: to the best strategy, tuned; untuned: the same with the parameters that compare uses without --tune."
    )
    print(f"This {PRIVATE}.")


def _told(parameters: dict[str, object]) -> dict[str, object]:
    """Those that matter most; --json has all."""
    names = ("interval", "releases", "threshold", "threshold_fraction", "expected_users", "groups")
    return {name: parameters[name] for name in names if name in parameters}
