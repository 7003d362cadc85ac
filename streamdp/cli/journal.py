"""`streamdp journal`: verify it, back it up, write off what it does not know, skip what kills the daemon."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

ORDER = 50
HELP = "verify or back up a stream's journal, write off, or skip a lethal record"
DESCRIPTION = """\
The journal holds the privacy ledger and everything a restart needs. It is as private as the input.

  streamdp journal verify CONFIG            check the journal, while the daemon runs or not
  streamdp journal backup CONFIG TARGET     copy it, while the daemon runs
  streamdp journal write-off CONFIG         accept that outputs exist which this journal does not know
  streamdp journal skip CONFIG              after deaths at one place of the input: skip the records that fail alone

A restored backup is older than what was published since, so the daemon refuses it: nobody knows what those releases
cost. Writing the difference off gives up their budget. Under w-event the stream then repeats its last release until
every window has left those points behind; under a finite horizon it releases nothing more.

A daemon that died three times in a row while it worked on the same records does not start again. `skip` tries these
records in fresh processes under fixed limits, down to single ones. A record that fails again, alone, is never read
again: a dead letter says SKIPPED. If none fails, nothing is skipped and the daemon may start. It prints offsets, never
content; keep them to yourself, as the input."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    verify = verbs.add_parser("verify", help="check the journal; exit 1 when something is wrong")
    verify.set_defaults(action=_verify)
    backup = verbs.add_parser("backup", help="copy the journal to TARGET, online")
    backup.set_defaults(action=_backup)
    write_off = verbs.add_parser("write-off", help="accept outputs this journal does not know, and lose their budget")
    write_off.set_defaults(action=_write_off)
    skip = verbs.add_parser("skip", help="try the records at which the daemon died; skip those that fail alone")
    skip.set_defaults(action=_skip)
    for verb in (verify, backup, write_off, skip):
        verb.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    backup.add_argument("target", type=Path, metavar="TARGET", help="the file to write")
    write_off.add_argument("--yes", action="store_true", help="do it; without this, only say what would happen")
    write_off.add_argument("--reason", default="written off by the operator", help="kept in the journal")


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.action(arguments)
    return code


def _verify(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.journal import JournalReader, verify

    path = load(arguments.config).journal_path
    problems = verify(path)
    for problem in problems:
        print(problem)
    if not problems:
        with JournalReader.open(path) as journal:
            for name, first, last in journal.skips():
                print(f"skipped: offsets {first} to {last} of partition {name.partition} of topic {name.topic!r}")
    print("the journal is sound" if not problems else f"{len(problems)} problems; restore a backup")
    return 1 if problems else 0


def _backup(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.journal import backup

    backup(load(arguments.config).journal_path, arguments.target)
    print(f"copied to {arguments.target}; keep it as private as the input")
    return 0


def _write_off(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.daemon.wiring import open_input, open_output
    from streamdp.daemon.write_off import plan_write_off

    config = load(arguments.config)
    source, target = open_input(config), open_output(config)
    try:
        with plan_write_off(config, source, target) as plan:
            print(plan.explanation)
            if not plan.needed:
                return 0
            if not arguments.yes:
                print("nothing was changed; say --yes to do it", file=sys.stderr)
                return 1
            plan.carry_out(arguments.reason)
            print("written off; the daemon may start")
    finally:
        target.close()
        source.close()
    return 0


def _skip(arguments: argparse.Namespace) -> int:
    from functools import partial

    from streamdp.config import load
    from streamdp.daemon.skip import Search
    from streamdp.daemon.start import open_journal
    from streamdp.daemon.wiring import open_input, open_output

    config = load(arguments.config)
    with contextlib.ExitStack() as held:
        source = held.enter_context(contextlib.closing(open_input(config, create=False)))
        target = held.enter_context(contextlib.closing(open_output(config, create=False)))
        journal = held.enter_context(open_journal(config, source, target))
        Search(arguments.config.resolve(), journal, source, partial(print, flush=True)).run()
    return 0
