"""`streamdp journal`: verify it, back it up, write off what it does not know, skip what kills the daemon."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from streamdp.cli._failures import explain
from streamdp.errors import ConfigurationError, StreamdpError

log = logging.getLogger("streamdp.backup")

KEEP = 24
ORDER = 50
HELP = "verify or back up a stream's journal, write off, or skip a lethal record"
DESCRIPTION = """\
The journal holds the privacy ledger and everything a restart needs. It is as private as the input.

  streamdp journal verify CONFIG            check the journal, while the daemon runs or not
  streamdp journal backup CONFIG FILE       copy it, while the daemon runs, and verify the copy
  streamdp journal backup CONFIG DIRECTORY --every 1h
                                            the same at once and every hour, until SIGTERM or SIGINT
  streamdp journal write-off CONFIG         accept that outputs exist which this journal does not know
  streamdp journal skip CONFIG              after deaths at one place of the input: skip the records that fail alone

A backup is as private as the journal. A small file beside the journal remembers when the newest verified one was made,
and the daemon shows that as streamdp_backup_timestamp_seconds. With --every, files are named by stream, journal and
time (UTC). A backup that fails is an error in the log, and is tried again at the next time.

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
    backup = verbs.add_parser("backup", help="copy the journal to TARGET, online, and verify the copy")
    backup.set_defaults(action=_backup)
    write_off = verbs.add_parser("write-off", help="accept outputs this journal does not know, and lose their budget")
    write_off.set_defaults(action=_write_off)
    skip = verbs.add_parser("skip", help="try the records at which the daemon died; skip those that fail alone")
    skip.set_defaults(action=_skip)
    for verb in (verify, backup, write_off, skip):
        verb.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    backup.add_argument(
        "target", type=Path, metavar="TARGET", help="the file to write; with --every, the directory to write into"
    )
    backup.add_argument("--every", type=_milliseconds, metavar="1h", help="go on at this interval, until ended")
    backup.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help=f"with --every: the newest N stay, older ones go (default: {KEEP})",
    )
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


def _milliseconds(text: str) -> int:
    from pydantic import TypeAdapter, ValidationError

    from streamdp.fields import PositiveDuration

    try:
        found: int = TypeAdapter(PositiveDuration).validate_python(text)
    except ValidationError:
        raise argparse.ArgumentTypeError('give a duration such as "90s", "30m", "1h", "1d"') from None
    return found


def _backup(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.journal import backup

    config = load(arguments.config)
    if arguments.every is not None:
        _back_up_for_ever(config.journal_path, config.name, arguments)
    if arguments.keep is not None:
        raise ConfigurationError("--keep goes with --every; a single backup deletes nothing")
    backup(config.journal_path, arguments.target)
    print(f"copied to {arguments.target} and verified; keep it as private as the journal")
    return 0


def _back_up_for_ever(journal: Path, stream: str, arguments: argparse.Namespace) -> NoReturn:
    from streamdp.journal import backup_into
    from streamdp.observe import logs

    directory, keep = arguments.target.resolve(), KEEP if arguments.keep is None else arguments.keep
    if keep < 1:
        raise ConfigurationError("--keep is 1 or more")
    if directory == journal.resolve().parent:
        raise ConfigurationError(
            f"{directory} is the journal's own directory: what destroys one would destroy both. Choose another, best "
            "on another disk"
        )
    if directory.is_file():
        raise ConfigurationError(f"{directory} is a file; with --every, give a directory")
    logs.set_up()

    def leave(*_: object) -> None:
        logs.write_now(logging.INFO, "stopped")
        sys.exit(0)  # A copy under way is removed, as after any failure.

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    every, due = arguments.every / 1000, time.monotonic()
    while True:
        try:
            file, time_point = backup_into(journal, directory, stream, keep)
            log.info("backed up and verified", extra={"fields": {"file": file, "time_point": time_point}})
        except (StreamdpError, OSError) as error:
            text = str(error) if isinstance(error, StreamdpError) else explain(error)
            log.error("no backup was made", extra={"fields": {"why": text}})
        due += every * (1 + (time.monotonic() - due) // every)
        time.sleep(max(0.0, due - time.monotonic()))


def _write_off(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.config.transports import open_input, open_output
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
    from streamdp.config.transports import open_input, open_output
    from streamdp.daemon.skip import Search
    from streamdp.daemon.start import open_journal

    config = load(arguments.config)
    with contextlib.ExitStack() as held:
        source = held.enter_context(contextlib.closing(open_input(config, create=False)))
        target = held.enter_context(contextlib.closing(open_output(config, create=False)))
        journal = held.enter_context(open_journal(config, source, target))
        Search(arguments.config.resolve(), journal, source, partial(print, flush=True)).run()
    return 0
