"""`streamdp show-config`: a configuration with every default filled in."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "print a configuration with its defaults, secrets redacted"
DESCRIPTION = """\
Prints the configuration that is in force: every default filled in, numbers and durations in one spelling, secrets
redacted. The TOML it prints can be read again."""
ORDER = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument("--json", action="store_true", help="as JSON instead of TOML")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.config.show import normalised, to_json, to_toml

    settings = normalised(load(arguments.config))
    print(to_json(settings) if arguments.json else to_toml(settings).rstrip())
    return 0
