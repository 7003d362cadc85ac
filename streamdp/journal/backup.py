"""A copy of a journal, taken while a daemon may be writing it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from streamdp.journal.errors import JournalError, clear_errors
from streamdp.journal.reader import JournalReader


def backup(path: str | Path, target: str | Path) -> None:
    """Copy the journal as of one commit to `target`, which appears whole or not at all, readable by its owner only.

    A backup is as private as the input. Once more is published than it knows, a daemon refuses it until the difference
    is written off.
    """
    final = Path(target).resolve()
    if final.exists():
        raise JournalError(f"{final} exists; a backup never overwrites. Choose another name")
    partial = final.with_name(f"{final.name}.{os.getpid()}.partial")
    with JournalReader.open(path) as journal, clear_errors(final):
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            copy = sqlite3.connect(partial, isolation_level=None)
            try:
                journal.copy_into(copy)
                # Without this the copy would need files beside it, which a backup system does not know of.
                copy.execute("PRAGMA journal_mode = DELETE")
            finally:
                copy.close()
            _synchronise(partial)
            partial.rename(final)
            _synchronise(final.parent)
        finally:
            partial.unlink(missing_ok=True)


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
