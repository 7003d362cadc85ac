"""`streamdp run`: the daemon."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

from streamdp.errors import StreamdpError

ORDER = 20
HELP = "run the daemon of one stream"
DESCRIPTION = """\
Reads a stream's input, keeps its dataset, and at each time point publishes a fresh private release or repeats the
last one, until it is told to stop.

Start it again after any crash: no record is lost or counted twice, no budget is spent twice, and what was decided
before is published as it was. SIGTERM (or Ctrl-C) finishes the time points that are over and exits with 0; a second
one stops at once.

  streamdp check clinic.toml      what the configuration promises
  streamdp run clinic.toml        run it
  streamdp subscribe clinic.toml  watch what it publishes, from another terminal
  streamdp budget clinic.toml     what was spent and what is left

Logs go to stderr, as text on a terminal and as one JSON object a line elsewhere."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument(
        "--accept-gap",
        action="store_true",
        help="go on although the input no longer holds records that recovery needs",
    )
    parser.add_argument(
        "--accept-clock",
        action="store_true",
        help="go by the machine's clock although it contradicts the journal",
    )
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"], help="default: info"
    )


def run(arguments: argparse.Namespace) -> int:
    import pyarrow

    from streamdp.config import load
    from streamdp.daemon.daemon import Daemon
    from streamdp.daemon.wiring import open_input, open_output
    from streamdp.observe import logs
    from streamdp.observe.watch import watch

    logs.set_up(arguments.log_level)
    # A core dump would hold the dataset, the threshold noise and the key of users' digests.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A wide input needs more descriptors than the usual soft limit, and the journal must always find one.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Arrow's own allocator keeps what threads have freed: at full speed for minutes, the process grew without end.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    # Until there is something to finish, a signal just ends the process; nothing has been asked or published.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    config = load(arguments.config)
    with watch(config) as observer:
        source, target, clock_source = open_input(config), open_output(config), open_input(config)
        try:
            daemon = Daemon(
                config,
                source,
                target,
                clock_source,
                accept_gap=arguments.accept_gap,
                accept_clock=arguments.accept_clock,
                observer=observer,
            )
            daemon.handle_signals()
            daemon.run()
        except StreamdpError:
            raise
        except Exception as error:
            _report_defect(error)
            return 1
        finally:
            for transport in (clock_source, target, source):
                transport.close()
    return 0


def _report_defect(error: Exception) -> None:
    """Where it happened and of what type it is. Its text may quote the data: numpy's tells the sizes of arrays."""
    sys.stderr.write("".join(traceback.format_tb(error.__traceback__)))
    print(
        f"streamdp: stopped by {type(error).__name__}, whose text is withheld because it may quote the data. Start "
        "again; if it comes back, please report the lines above",
        file=sys.stderr,
    )


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
