"""What Kafka's producers compress, decompressed piece by piece.

A batch of some kilobytes may hold gigabytes, and any producer may send one. No piece is longer than `PIECE_BYTES`, but
for snappy's: a block of it has no end before its last byte, and is at most `SNAPPY_RATIO` times as long as it was in
the batch, whose size the broker limits.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import lz4.frame
import snappy
import zstandard

PIECE_BYTES = 1 << 20
LZ4_PIECE_BYTES = 1 << 16
"""Its library makes room for a whole piece however little there is."""
SNAPPY_RATIO = 22
"""Three bytes of snappy stand for 64 at most."""
ZSTD_WINDOW = 1 << 27
"""The memory that a zstd stream may ask for: what the highest level of its compressor uses."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_BLOCK_LENGTH = struct.Struct(">i")


def _read(stream: Any) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _gzip(data: memoryview) -> Iterator[bytes]:
    return _read(gzip.GzipFile(fileobj=io.BytesIO(data), mode="r"))


def _lz4(data: memoryview) -> Iterator[bytes]:
    """One frame, as brokers read it, whatever follows."""
    frame = lz4.frame.LZ4FrameDecompressor()
    piece = frame.decompress(data, LZ4_PIECE_BYTES)
    while piece:
        yield piece
        piece = b"" if frame.eof else frame.decompress(b"", LZ4_PIECE_BYTES)
    if not frame.eof:
        raise EOFError("a frame breaks off")


def _zstd(data: memoryview) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    return _read(decompressor.stream_reader(data, read_across_frames=True))


def _snappy(data: memoryview) -> Iterator[bytes]:
    """One block, or the Java library's framing: a header, then blocks with their lengths."""
    if data[: len(_XERIAL)] != _XERIAL:
        yield _snappy_block(data)
        return
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise ValueError("a block does not end inside the batch")
        yield _snappy_block(data[position : position + length])
        position += length


def _snappy_block(block: memoryview) -> bytes:
    """A block begins with its length, which the library believes and makes room for."""
    claimed = 0
    for place, byte in enumerate(block[:5]):
        claimed |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    if claimed > SNAPPY_RATIO * len(block):
        raise ValueError("a block claims to be longer than it can be")
    return bytes(snappy.decompress(block))


CODECS: dict[int, Callable[[memoryview], Iterator[bytes | memoryview]]] = {
    0: lambda data: iter([data]),
    1: _gzip,
    2: _snappy,
    3: _lz4,
    4: _zstd,
}
"""By their number in the format."""
# What the libraries raise for damaged data. Not MemoryError: that is ours, and nobody else's data.
_DAMAGED = (OSError, EOFError, RuntimeError, struct.error, zlib.error, snappy.UncompressError, zstandard.ZstdError)


def decompressed(codec: int, data: memoryview) -> Iterator[bytes | memoryview]:
    """What the codec compressed, in pieces; without a codec the data itself. ValueError where it is damaged."""
    try:
        yield from CODECS[codec](data)
    except _DAMAGED as error:
        raise ValueError("a record batch does not decompress") from error
