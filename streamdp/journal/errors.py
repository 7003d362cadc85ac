"""What can go wrong with a journal, as one clear line that says what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamdp.errors import StreamdpError


class JournalError(StreamdpError):
    """The journal cannot be used as asked."""


class JournalLocked(JournalError):
    """Another process writes this journal."""


class JournalMismatch(JournalError):
    """The journal belongs to another stream, input or domain."""


class JournalCorrupted(JournalError):
    """The file is no journal, or a damaged one."""


class JournalFull(JournalError):
    """There is no room for a commit; nothing of it was kept."""


_CORRUPTED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system raise into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(path, error) from error
    except UnicodeDecodeError:  # of SQLite's own words on a damaged schema
        raise _damaged(path) from None
    except PermissionError as error:
        raise _unwritable(path) from error
    except OSError as error:
        raise JournalError(f"journal {path}: {error.strerror or type(error).__name__}; check the disk") from error


def _translated(path: Path, error: sqlite3.Error) -> JournalError:
    # The low byte is the primary code. What Python cannot decode has none: bytes were changed.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return JournalFull(
            f"journal {path}: no room on its disk. Nothing of the last step was kept; free some space and start again"
        )
    if code in _UNWRITABLE:
        return _unwritable(path)
    if code in _CORRUPTED:
        return _damaged(path)
    if code == sqlite3.SQLITE_CANTOPEN:
        return JournalError(f"journal {path} cannot be opened; check that it exists and that its folder is yours")
    if code == sqlite3.SQLITE_BUSY:
        return JournalLocked(f"journal {path} is held by another program; close whatever else has it open")
    if code == sqlite3.SQLITE_IOERR:
        return JournalError(f"journal {path}: the disk failed to read or write; check it, then start again")
    # Never the text: where a stored text is no longer text, it quotes it.
    return JournalError(f"journal {path}: {error.sqlite_errorname} of SQLite; `streamdp journal verify` tells more")


def _damaged(path: Path) -> JournalCorrupted:
    return JournalCorrupted(
        f"journal {path} is damaged or is no journal. Restore a backup; if it is older than what was published, write "
        "the difference off (streamdp journal write-off)"
    )


def _unwritable(path: Path) -> JournalError:
    return JournalError(f"journal {path} cannot be written; make it and its folder writable for the user who runs this")
