"""`streamdp run`: the daemon."""

from __future__ import annotations

import argparse
import contextlib
import logging
import resource
import signal
import sys
from pathlib import Path
from types import FrameType

from streamdp import __version__
from streamdp.cli._failures import explain, frames
from streamdp.errors import StreamdpError

log = logging.getLogger(__name__)

ORDER = 20
HELP = "run the daemon of one stream"
DESCRIPTION = """\
Reads a stream's input, keeps its dataset, and at each time point publishes a fresh private release or repeats the
last one, until it is told to stop.

Start it again after any crash: no record is lost or counted twice, no budget is spent twice, and what was decided
before is published as it was. SIGTERM (or Ctrl-C) finishes the time points that are over and exits with 0; a second
one stops at once. SIGHUP is ignored: there is no log file to reopen, and the configuration is read once.

  streamdp check clinic.toml      what the configuration promises
  streamdp run clinic.toml        run it
  streamdp subscribe clinic.toml  watch what it publishes, from another terminal
  streamdp budget clinic.toml     what was spent and what is left

Logs go to stderr, as text on a terminal and as one JSON object a line elsewhere. The last line says why the daemon
ended, and what to do."""


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
    """The daemon. Whatever ends it, its last line is a record of the log that says why and what to do."""
    from streamdp.observe import logs

    logs.set_up(arguments.log_level)
    # A hangup would end the process. It has no log file to reopen, and the configuration is read once.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Until there is something to finish, a signal just ends the process; nothing has been asked or published.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        _run(arguments)
        return 0
    except StreamdpError as error:
        log.critical(str(error), extra={"fields": {"exit_code": error.exit_code}})
        return error.exit_code
    except Exception as error:
        fields = {"exit_code": 1, "type": type(error).__name__, "frames": frames(error)}
        log.critical(explain(error), extra={"fields": fields})
        return 1


def _run(arguments: argparse.Namespace) -> None:
    import pyarrow

    from streamdp.config import load
    from streamdp.config.transports import open_input, open_output
    from streamdp.daemon.daemon import Daemon
    from streamdp.observe.watch import watch

    # A core dump would hold the dataset, the threshold noise and the key of users' digests.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A wide input needs more descriptors than the usual soft limit, and the journal must always find one.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Arrow's own allocator keeps what threads have freed: at full speed for minutes, the process grew without end.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    config = load(arguments.config)
    fields = {
        "version": __version__,
        "configuration": arguments.config.resolve(),
        "stream": config.name,
        "input": list(config.input.topics),
        "output": config.output_prefix,
        "journal": config.journal_path,
    }
    log.info("starting", extra={"fields": fields})
    with watch(config) as observer, contextlib.ExitStack() as opened:
        transports = []
        for connect in (open_input, open_output, open_input):
            transports.append(connect(config))
            opened.callback(transports[-1].close)
        source, target, clock_source = transports
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


def _leave(number: int, frame: FrameType | None) -> None:
    from streamdp.observe import logs

    logs.write_now(logging.INFO, "stopped before anything was begun")
    sys.exit(0)
