"""The `streamdp` command: one file per verb.

A verb is a module of this package with `HELP` (one line), `DESCRIPTION` (what --help teaches), `ORDER` (its place
in the list), `add_arguments(parser)` and `run(arguments) -> exit code`. Exit codes: 0 fine, 1 failed at run time,
2 wrong usage or configuration. A verb raises a `StreamdpError` to end with a message; whatever else it raises ends
it with one line too, and never with a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

from streamdp import __version__
from streamdp.cli._failures import explain
from streamdp.errors import StreamdpError

DESCRIPTION = """\
Continuous release of differentially private statistics from live data.

Start with `streamdp check CONFIG` to see what a configuration promises, `streamdp run CONFIG` to run it, and
`streamdp subscribe CONFIG` to watch what it publishes."""


def verbs() -> list[ModuleType]:
    """Every verb's module, in the order the help lists them."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return sorted(modules, key=lambda module: (module.ORDER, module.__name__))


def verb_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2].replace("_", "-")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="streamdp", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"streamdp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in verbs():
        command = commands.add_parser(
            verb_name(module),
            help=module.HELP,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except StreamdpError as error:
        print(f"streamdp: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader (head, less) went away: not our failure. Point stdout elsewhere so that the exit is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print(f"streamdp: {explain(error)}", file=sys.stderr)
        return 1
