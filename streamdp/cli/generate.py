"""`streamdp generate`: made-up traces of any size."""

from __future__ import annotations

import argparse
from pathlib import Path

ORDER = 70
HELP = "make a trace of made-up data, with a configuration to match"
DESCRIPTION = """\
Makes a trace of made-up data, so that you can try a configuration without anybody's records.

  census    people with six attributes come and go (the recipe of the DSAT paper, 27,648 cells)
  taxi      taxis on a 10 x 10 grid, hour by hour, by day and by night
  outbreak  nothing happens for long, then much in one district
  churn     users come, change, go and expire
  hostile   every kind of bad record, duplicates, late ones, disorder

  streamdp generate census --users 500000 --points 500      makes census.jsonl.zst and census.toml here
  streamdp replay census.jsonl.zst --config census.toml --seed 1

The name of the output says how it is compressed (.gz, .zst, or plain). The same seed makes the same trace."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario", choices=["census", "taxi", "outbreak", "churn", "hostile"], metavar="SCENARIO", help="what to make"
    )
    parser.add_argument("--users", type=int, metavar="N", help="how many users are in the dataset at once")
    parser.add_argument("--points", type=int, metavar="N", help="how many time points")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="another seed, other data (default: 1)")
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="the trace to write (default: SCENARIO.jsonl.zst, and SCENARIO.toml beside it)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="also write a configuration that goes with it")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.cli._progress import Progress
    from streamdp.errors import ConfigurationError
    from streamdp.replay.generate import SCENARIOS

    scenario = SCENARIOS[arguments.scenario]
    users = scenario.users if arguments.users is None else arguments.users
    points = scenario.points if arguments.points is None else arguments.points
    if min(users, points) < 1:
        raise ConfigurationError("--users and --points are 1 or more")
    if arguments.seed < 0:
        raise ConfigurationError("--seed is 0 or more")
    output, config = arguments.output, arguments.config
    if output is None:
        output = Path(f"{arguments.scenario}.jsonl.zst")
        config = config or Path(f"{arguments.scenario}.toml")
    if config is not None and config.exists():
        raise ConfigurationError(f"{config} exists; give another name, or remove it first")
    with Progress("making", points) as progress:
        scenario.write(output, users, points, arguments.seed, progress.at)
    if config is not None:
        try:
            with config.open("x", encoding="utf-8") as file:
                file.write(scenario.configuration(users, points))
        except OSError as error:
            raise ConfigurationError(f"cannot write {config}: {error.strerror}") from None
    print(f"made {output}; play it with: streamdp replay {output} --config {config or 'CONFIG'} --seed 1")
    return 0
