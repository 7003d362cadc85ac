"""`streamdp check`: what a configuration promises, before anything runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HELP = "check a configuration and say what it promises"
DESCRIPTION = """\
Checks a stream's configuration and says in plain words what it means: who is protected from what, how often each
histogram can be released, how noisy a release is, and what is left for jobs. Nothing is read but the file.

Exit code 2, and every fault at once, when the configuration is wrong."""
ORDER = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.config.plan import plan
    from streamdp.config.report import as_json, as_text

    planned = plan(load(arguments.config))
    print(json.dumps(as_json(planned), indent=2, ensure_ascii=False) if arguments.json else as_text(planned))
    return 0
