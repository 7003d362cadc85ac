"""The bytes of a trace's file: plain, gzip or zstd, told apart by how the file begins, whatever it is called."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from streamdp.errors import ConfigurationError, StreamdpError

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_READ_BYTES = 1 << 18
_CHUNK_BYTES = 1 << 20
"""A file may decompress to thousands of times its size: what comes out at once is bounded, whatever the file is."""
_ZSTD_SLICE = 256
"""zstd has no bound on its output, but four bytes of input give 128 KiB at most: a slice gives 8 MiB."""
_ZSTD_WINDOW = 1 << 27
_GZIP_WINDOW = 31
"""zlib's number for "gzip, largest window"."""
_GZIP_LEVEL = 4
_ZSTD_LEVEL = 6


class DamagedFile(StreamdpError):
    """The compressed stream breaks off or makes no sense."""


class TraceFile:
    """Reads a trace's decompressed bytes, and knows how much of the file is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
        self.size = os.fstat(self._file.fileno()).st_size
        self.done = 0

    def close(self) -> None:
        self._file.close()

    def chunks(self) -> Iterator[bytes]:
        """From the beginning. Raises `DamagedFile` after everything that could be read."""
        self._file.seek(0)
        self.done = 0
        begin = self._file.read(len(ZSTD_MAGIC))
        self._file.seek(0)
        if begin.startswith(GZIP_MAGIC):
            yield from self._gzip()
        elif begin == ZSTD_MAGIC:
            yield from self._zstd()
        else:
            yield from self._raw()

    def _raw(self) -> Iterator[bytes]:
        while chunk := self._file.read(_READ_BYTES):
            self.done += len(chunk)
            yield chunk

    def _gzip(self) -> Iterator[bytes]:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        for chunk in self._raw():
            rest = chunk
            while rest:
                if stream.eof:
                    stream = zlib.decompressobj(_GZIP_WINDOW)
                try:
                    yield stream.decompress(rest, _CHUNK_BYTES)
                except zlib.error:
                    raise DamagedFile("the gzip data is damaged here") from None
                rest = stream.unused_data if stream.eof else stream.unconsumed_tail
        if not stream.eof:
            raise DamagedFile("the gzip data breaks off here: the file was cut short")

    def _zstd(self) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        stream = decompressor.decompressobj()
        for chunk in self._raw():
            for begin in range(0, len(chunk), _ZSTD_SLICE):
                rest = chunk[begin : begin + _ZSTD_SLICE]
                while rest:
                    if stream.eof:
                        stream = decompressor.decompressobj()
                    try:
                        yield stream.decompress(rest)
                    except zstandard.ZstdError:
                        raise DamagedFile("the zstd data is damaged here") from None
                    rest = stream.unused_data
        if not stream.eof:
            raise DamagedFile("the zstd data breaks off here: the file was cut short")


class Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def create(path: Path) -> Sink:
    """A new file that only its owner may read, compressed as its name says (.gz, .zst)."""
    try:
        # Traces are as private as the input, and a file made wider and narrowed later was open in between.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(f"{path} exists; give another name, or remove it first") from None
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    file = os.fdopen(descriptor, "wb")
    if path.suffix == ".gz":
        return _Compressed(file, zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW), zlib.Z_SYNC_FLUSH)
    if path.suffix == ".zst":
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
        return _Compressed(file, compressor, zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return file


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: int = ..., /) -> bytes: ...


class _Compressed:
    def __init__(self, file: BinaryIO, compressor: _Compressor, flush_mode: int) -> None:
        self._file, self._compressor, self._flush_mode = file, compressor, flush_mode

    def write(self, data: bytes, /) -> None:
        self._file.write(self._compressor.compress(data))

    def flush(self) -> None:
        self._file.write(self._compressor.flush(self._flush_mode))
        self._file.flush()

    def close(self) -> None:
        self._file.write(self._compressor.flush())
        self._file.close()
