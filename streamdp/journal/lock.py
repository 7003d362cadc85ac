"""One writer: an exclusive lock on a file beside the journal, held for the writer's life."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from streamdp.journal.errors import JournalLocked, clear_errors

_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """`flock` on `<journal>.lock`. The kernel drops it when the process dies, however it dies.

    The file is never removed: a second writer could otherwise lock a new file while the first holds the old one.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal.with_name(journal.name + ".lock")
        with clear_errors(journal):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise JournalLocked(
                f"journal {journal} is written by {who}. One daemon serves an input: stop that one first"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _drop_in_child() -> None:
    """A forked worker shares the lock and would keep it after the daemon's death; closing its copy does not unlock."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_drop_in_child)
