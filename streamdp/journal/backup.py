"""Copies of a journal, taken while a daemon may be writing it, and verified before they count.

Beside the journal, `<journal>.backup` says when the newest verified copy was made, for the daemon's metrics.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from streamdp.journal.errors import JournalError, clear_errors
from streamdp.journal.reader import JournalReader
from streamdp.journal.verify import verify
from streamdp.transport.files import FULL, sync_directory

FORMAT = 1
PARTIAL = ".partial"


def backup(path: str | Path, target: str | Path) -> None:
    """Copy the journal as of one commit to `target`, which appears whole and verified or not at all, mode 0600.

    A backup is as private as the journal. Once more is published than it knows, a daemon refuses it until the
    difference is written off. Raises JournalError when there is no sound copy.
    """
    final = Path(target).resolve()
    _require_place(final.parent)
    if final.is_dir():
        raise JournalError(f"{final} is a directory; name a file in it, or give --every")
    if final.exists():
        raise JournalError(f"{final} exists; a backup never overwrites. Choose another name")
    with JournalReader.open(path) as journal:
        made = time.time()
        _remove_leftovers(final.parent, final.name)
        _copy(journal, final)
        _record(journal, made)


def backup_into(path: str | Path, directory: str | Path, stream: str, keep: int) -> tuple[Path, int]:
    """A backup under a name of its own in the directory; the newest `keep` of the same journal stay.

    Names sort by time. Nothing is deleted unless a verified copy was just added. Returns the file and its time point.
    """
    place = Path(directory).resolve()
    _require_place(place)
    with JournalReader.open(path) as journal:
        series = f"{stream}-{journal.identity.journal_id[:8]}-"
        _remove_leftovers(place, series)
        made = time.time()
        when = f"{datetime.fromtimestamp(made, UTC):%Y%m%dT%H%M%S}{int(made * 1000) % 1000:03d}Z"
        fresh = place / f"{series}{when}.db"
        time_point = _copy(journal, fresh)
        # The one just made always stays: after a clock was wrong, its name may not be the last.
        others = sorted((each for each in place.glob(f"{series}*.db") if each != fresh), reverse=True)
        for old in others[keep - 1 :]:
            with clear_errors(old):
                old.unlink(missing_ok=True)
        _record(journal, made)
    return fresh, time_point


def last_backup(path: Path, journal_id: str) -> float:
    """When the newest verified backup of this journal was made, in seconds since 1970; 0 when there is none."""
    try:
        found = json.loads(_record_path(path.resolve()).read_bytes())
        return float(found["made"]) if (found["format"], found["journal_id"]) == (FORMAT, journal_id) else 0.0
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _copy(journal: JournalReader, final: Path) -> int:
    """Returns the last time point of the copy."""
    with _partial(final) as partial:
        with _clear(journal, final):
            copy = sqlite3.connect(partial, isolation_level=None)
            try:
                journal.copy_into(copy)
                # Without this the copy would need files beside it, which a backup system does not know of.
                copy.execute("PRAGMA journal_mode = DELETE")
            finally:
                copy.close()
            _synchronise(partial)
        problems = _problems(partial)
        if problems:
            raise JournalError(
                f"the copy for {final} is not sound and was removed ({problems[0]}). Check both disks, and the journal "
                "with `streamdp journal verify`. Keep the earlier backups"
            )
        with JournalReader.open(partial) as copied:
            time_point = copied.last_time_point
        with _clear(journal, final):
            partial.rename(final)
            sync_directory(final.parent)
    return time_point


def _problems(copy: Path) -> list[str]:
    try:
        return verify(copy)
    except JournalError:  # whose advice is for the journal
        return ["it cannot be read"]


@contextmanager
def _partial(final: Path) -> Iterator[Path]:
    """A file to fill, of this process alone while it is locked, gone at the end unless it was renamed."""
    partial = final.with_name(f"{final.name}.{os.getpid()}{PARTIAL}")
    with clear_errors(final):
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield partial
    finally:
        os.close(descriptor)
        _unlink(partial)


_OURS = re.compile(r"(?:[0-9TZ-]+\.db)?\.[0-9]+")
"""What stands between the beginning of a name and its end: the time, of a series, and the process."""


def _remove_leftovers(directory: Path, beginning: str) -> None:
    """What a backup that was killed left behind; not what another one is writing now."""
    for partial in directory.iterdir():
        middle = partial.name.removeprefix(beginning).removesuffix(PARTIAL)
        if partial.name == f"{beginning}{middle}{PARTIAL}" and _OURS.fullmatch(middle):
            with suppress(OSError), partial.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _unlink(partial)


def _unlink(partial: Path) -> None:
    """With the files that SQLite may have left beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        partial.with_name(partial.name + suffix).unlink(missing_ok=True)


@contextmanager
def _clear(journal: JournalReader, final: Path) -> Iterator[None]:
    """Errors that name the disk they are about: the journal is read, the copy is written."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno in FULL):
            raise JournalError(f"no room for {final}. Free some space there, or keep fewer backups") from error
        with clear_errors(journal.path if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) else final):
            raise


def _require_place(directory: Path) -> None:
    if not directory.is_dir():
        raise JournalError(f"there is no directory {directory}. Make it (mkdir -m 700), or mount what it is on")


def _record(journal: JournalReader, made: float) -> None:
    """Says beside the journal when its newest verified backup was made."""
    path = _record_path(journal.path)
    fresh = path.with_name(path.name + ".new")
    text = json.dumps({"format": FORMAT, "journal_id": journal.identity.journal_id, "made": made})
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        fresh.replace(path)
    except OSError as error:
        raise JournalError(
            f"the backup is sound, but {path} cannot be written ({error.strerror}), so the daemon does not know of it. "
            "Make it writable for the user who runs this"
        ) from error


def _record_path(journal: Path) -> Path:
    return journal.with_name(journal.name + ".backup")


def _synchronise(path: Path) -> None:
    """To the disk, and out of the cache: the verification is to read what the disk holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
