"""`streamdp budget`: what was spent, what is left, when it returns."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

ORDER = 40
HELP = "what was spent, by whom, what is left, and when more returns"
DESCRIPTION = """\
Reads a stream's journal, also while the daemon runs, and prints the privacy budget: each histogram's reservation and
what it has used of it, each job's charge, what is left for jobs now, and when budget comes back (w-event). With
preferences, also what a user of each level has spent and has left.

Budget that a finite horizon has spent never comes back."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument("--json", action="store_true", help="for programs: exact numbers as fractions")
    parser.add_argument("--watch", action="store_true", help="print again whenever a time point closes, until Ctrl-C")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="how often --watch looks (default: 1)"
    )


def run(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.journal import JournalReader

    config = load(arguments.config)
    with JournalReader.open(config.journal_path) as journal:
        seen = -1
        while True:
            now = journal.last_time_point
            if now != seen:
                seen = now
                report = journal.read_ledger().report(max(1, now))
                if arguments.json:
                    print(json.dumps(report.rows()), flush=True)
                else:
                    print(f"stream {config.name}, time point {now}\n{report}\n", flush=True)
            if not arguments.watch:
                return 0
            time.sleep(arguments.interval)
