"""`streamdp demo`: the whole idea in about a minute."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from streamdp.demo.show import Row

ORDER = 10
HELP = "watch a daemon publish an outbreak, beside the truth, for a minute"
DESCRIPTION = """\
Starts a real daemon on an embedded log, feeds it a recorded outbreak among 10,000 made-up patients, one time point a
second, and shows what it publishes beside what is true: fresh noisy counts when the data has moved, a repeat when it
has not, and what that costs. Ends by itself after about a minute, and stops the daemon.

A daemon never shows the truth. The demo knows it because it feeds it.

  streamdp demo                     one minute
  streamdp demo --speed 4x          a quarter of one
  streamdp demo --keep demo-state   leave log, journal and configuration there, to look at with the other commands"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=60, metavar="N", help="how many time points, 6 to 60 (default)")
    parser.add_argument("--speed", default="1x", metavar="S", help="points a second, 0.5x to 5x (default: 1x)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="run in this new directory and leave it there")


def run(arguments: argparse.Namespace) -> int:
    import io
    import sys
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from rich.console import Console

    from streamdp.demo.patients import MAX_POINTS
    from streamdp.demo.show import summarise
    from streamdp.errors import ConfigurationError

    if not 6 <= arguments.points <= MAX_POINTS:
        raise ConfigurationError(f"--points is 6 to {MAX_POINTS}")
    length_ms = round(1_000 / _speed(arguments.speed))
    if arguments.keep is not None:
        if arguments.keep.exists():
            raise ConfigurationError(f"{arguments.keep} exists already; --keep makes a new directory")
        arguments.keep.mkdir(mode=0o700, parents=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Bars are no reason to fail on a terminal that does not know them.
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    place = TemporaryDirectory(prefix="streamdp-demo-") if arguments.keep is None else nullcontext(str(arguments.keep))
    with place as directory:
        rows = _play(console, Path(directory), arguments.points, length_ms)
    summarise(console, rows, arguments.keep)
    return 0


def _speed(text: str) -> float:
    from streamdp.errors import ConfigurationError

    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0.5 <= speed <= 5:
        raise ConfigurationError("--speed is points a second, 0.5x to 5x")
    return speed


def _play(console: Console, directory: Path, points: int, length_ms: int) -> list[Row]:
    import signal
    import sys
    from contextlib import closing

    from streamdp.demo.patients import Patients, find_fixture
    from streamdp.demo.show import Screen, introduce
    from streamdp.demo.stage import Stage
    from streamdp.demo.watch import watch
    from streamdp.transport.filelog import FileLog

    patients = Patients(find_fixture(), points)
    stage = Stage(directory, points, length_ms, patients.domain)
    with closing(FileLog(stage.log, create=True)) as log:
        patients.begin(log)
    introduce(console, points, length_ms)
    # So that the daemon does not outlive a demo that is told to go.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with stage:
            screen = Screen(console)
            with screen.shown():
                rows = []
                for row in watch(stage, patients, length_ms):
                    screen.add(row)
                    rows.append(row)
            stage.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
    return rows
