"""Commit marks: one small file per writer that ever wrote to several partitions at once.

A frame of a multi-partition append is tagged with its writer's number (random, one per opened writer) and the writer's
sequence number. The append happened if and only if the writer's mark `committed` has reached that sequence; it may be
shown to readers once the mark `visible` has, which is raised only after `committed` is on the disk, so that no reader
acts on a commit that a power cut could still undo. A mark never goes back.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from streamdp.transport.files import create_file, sync_directory
from streamdp.transport.register import REGISTER_BYTES, Register

MARK = Register(b"SDPTXN\x00\x01", 1)
COMMITTED_AT = 0
VISIBLE_AT = REGISTER_BYTES


class Transactions:
    """The commit marks of a log, read by readers and by recovery."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._visible: dict[int, int] = {}

    def path(self, writer: int) -> Path:
        return self.directory / f"{writer:016x}"

    def is_visible(self, writer: int, sequence: int) -> bool:
        if self._visible.get(writer, 0) < sequence:
            self._visible[writer] = self._read(writer, VISIBLE_AT)
        return self._visible[writer] >= sequence

    def is_committed(self, writer: int, sequence: int) -> bool:
        return self._read(writer, COMMITTED_AT) >= sequence

    def show(self, writer: int, sequence: int) -> None:
        """Finish what a dead writer committed but did not live to show."""
        if not self.is_visible(writer, sequence):
            descriptor = os.open(self.path(writer), os.O_RDWR)
            try:
                MARK.write(descriptor, VISIBLE_AT, (sequence,))
            finally:
                os.close(descriptor)

    def _read(self, writer: int, position: int) -> int:
        path = self.path(writer)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return 0
        try:
            return MARK.read(descriptor, position, path)[0]
        finally:
            os.close(descriptor)


class TransactionWriter:
    """One writer's marks. A sequence number is used once, and the next begins only when this one is over."""

    def __init__(self, directory: Path, durable: bool) -> None:
        self.number = (uuid.uuid4().int >> 64) | 1
        self.sequence = 0
        self._durable = durable
        path = directory / f"{self.number:016x}"
        self._descriptor = create_file(path, MARK.initial(0) + MARK.initial(0), durable)
        if durable:
            sync_directory(directory)

    def commit(self, sequence: int) -> None:
        MARK.write(self._descriptor, COMMITTED_AT, (sequence,))
        if self._durable:
            os.fsync(self._descriptor)
        MARK.write(self._descriptor, VISIBLE_AT, (sequence,))

    def close(self) -> None:
        os.close(self._descriptor)
