"""Plain file work with the failures a log must survive: short writes, full disks, lost directory entries."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from streamdp.transport.base import DiskFull, TransportError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
LOCK_WAIT_SECONDS = 60.0
"""An append holds a partition for milliseconds; whoever holds it for this long is stopped or stuck."""


def write_all(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view = view[written:]
        position += written


def create_file(path: Path, content: bytes, durable: bool) -> int:
    """A new private file with this content, open for reading and writing; replaces one that was there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, content, 0)
        if durable:
            os.fsync(descriptor)
    except OSError:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return descriptor


def make_directory(path: Path) -> None:
    path.mkdir(mode=0o700, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable: a synced file in a lost directory entry is lost too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int, path: Path) -> None:
    """Take the exclusive lock, waiting for another process's append to end."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    pause = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TransportError(
                    f"{path} stays locked by another process for {LOCK_WAIT_SECONDS:.0f} s: is a writer stopped?"
                ) from None
            time.sleep(pause)
            pause = min(pause * 2, 0.01)


def unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def translate(error: OSError, path: Path) -> TransportError:
    """The transport's own error for a failed write, without the bytes that were to be written."""
    if error.errno in FULL:
        return DiskFull(f"no room left to write under {path}: free some space and try again; nothing was lost")
    return TransportError(f"writing under {path} failed: {os.strerror(error.errno or 0)}")
