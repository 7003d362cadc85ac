"""Columns in one file: written at once, complete or absent, checksummed, and mapped without copying.

Layout: a magic word; every column's raw bytes, each starting on a multiple of 64; a JSON trailer that says what and
where they are; a fixed footer with the trailer's length and checksum. Little-endian. The file appears under its name
only when it is whole and on disk. It holds personal data: mode 0600.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from streamdp.errors import StreamdpError

FORMAT = 1
MAGIC = b"streamdp"
ALIGNMENT = 64
PIECE = 1 << 24
_FOOTER = struct.Struct("<QI4x8s")


class DamagedFileError(StreamdpError):
    """A column file is incomplete or its bytes are not those that were written."""


@dataclass(frozen=True)
class Column:
    """A column to write: its type, the shape of one row, and its values in pieces."""

    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    pieces: Iterable[npt.NDArray[Any]]

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Column:
        return cls(values.dtype, values.shape[1:], [values])


def write(path: Path, description: Mapping[str, Any], columns: Mapping[str, Column]) -> None:
    """Write columns under `path`, all or nothing. `description` is JSON-able and comes back from `Reader`."""
    try:
        _write(path, description, columns)
    except OSError as error:
        raise StreamdpError(
            f"cannot write {path}: {error.strerror}. Make room, or let it be written, and start again; nothing that "
            "was committed is lost"
        ) from error


def _write(path: Path, description: Mapping[str, Any], columns: Mapping[str, Column]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(MAGIC)
        written = {name: _write_column(file, column) for name, column in columns.items()}
        trailer = json.dumps({"format": FORMAT, "description": description, "columns": written}).encode()
        file.write(trailer)
        file.write(_FOOTER.pack(len(trailer), zlib.crc32(trailer), MAGIC))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_column(file: BinaryIO, column: Column) -> dict[str, Any]:
    file.write(bytes(-file.tell() % ALIGNMENT))
    start, rows, checksum = file.tell(), 0, 0
    for piece in column.pieces:
        rows += len(piece)
        for view in _bytes_of(piece):
            checksum = zlib.crc32(view, checksum)
            file.write(view)
    shape = [rows, *column.row_shape]
    return {"dtype": column.dtype.newbyteorder("<").str, "shape": shape, "start": start, "crc32": checksum}


def _bytes_of(values: npt.NDArray[Any]) -> Iterator[memoryview]:
    if values.nbytes:
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        view = little.reshape(-1).view(np.uint8).data
        for start in range(0, len(view), PIECE):
            yield view[start : start + PIECE]


class Reader:
    """A column file opened for reading. Raises `DamagedFileError` for anything but what was written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < len(MAGIC) + _FOOTER.size or file.read(len(MAGIC)) != MAGIC:
                    raise self._damaged()
                file.seek(size - _FOOTER.size)
                length, checksum, magic = _FOOTER.unpack(file.read(_FOOTER.size))
                if magic != MAGIC or length > size - _FOOTER.size:
                    raise self._damaged()
                file.seek(size - _FOOTER.size - length)
                trailer = file.read(length)
        except OSError as error:
            raise DamagedFileError(f"{path.name} cannot be read: {error.strerror}") from error
        if zlib.crc32(trailer) != checksum:
            raise self._damaged()
        content = json.loads(trailer)
        if content["format"] != FORMAT:
            raise StreamdpError(f"{path.name} has format {content['format']}; this version reads format {FORMAT}")
        self.description: dict[str, Any] = content["description"]
        self._columns: dict[str, dict[str, Any]] = content["columns"]

    def _damaged(self) -> DamagedFileError:
        return DamagedFileError(f"{self.path.name} is damaged or incomplete")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def load(self) -> dict[str, npt.NDArray[Any]]:
        """Every column in memory of its own, checked."""
        loaded = {}
        with self.path.open("rb") as file:
            for name, entry in self._columns.items():
                values = np.empty(entry["shape"], entry["dtype"])
                file.seek(entry["start"])
                checksum = 0
                for view in _bytes_of(values):
                    if file.readinto(view) != len(view):
                        raise self._damaged()
                    checksum = zlib.crc32(view, checksum)
                if checksum != entry["crc32"]:
                    raise self._damaged()
                loaded[name] = values
        return loaded

    def map(self) -> dict[str, npt.NDArray[Any]]:
        """Every column mapped read-only, checked."""
        return {name: self._map(entry) for name, entry in self._columns.items()}

    def _map(self, entry: Mapping[str, Any]) -> npt.NDArray[Any]:
        shape, dtype = tuple(entry["shape"]), np.dtype(entry["dtype"])
        if not all(shape):
            values: npt.NDArray[Any] = np.zeros(shape, dtype)
            values.flags.writeable = False
            return values
        values = np.memmap(self.path, dtype, "r", entry["start"], shape)
        checksum = 0
        for view in _bytes_of(values):
            checksum = zlib.crc32(view, checksum)
        if checksum != entry["crc32"]:
            raise self._damaged()
        return values
