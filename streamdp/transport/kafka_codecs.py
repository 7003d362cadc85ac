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

from streamdp.transport.base import TransportError

PIECE_BYTES = 1 << 20
SNAPPY_RATIO = 22
"""Three bytes of snappy stand for 64 at most."""
ZSTD_WINDOW = 1 << 27
"""The memory that a zstd stream may ask for: what the highest level of its compressor uses."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_BLOCK_LENGTH = struct.Struct(">i")
_SNAPPY = 2

_OPEN: dict[int, Callable[[io.BytesIO], Any]] = {
    1: lambda data: gzip.GzipFile(fileobj=data, mode="r"),
    3: lz4.frame.LZ4FrameFile,
    4: lambda data: zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).stream_reader(
        data, read_across_frames=True
    ),
}
# What the libraries raise for damaged data. Not MemoryError: that is ours, and nobody else's data.
_DAMAGED = (OSError, EOFError, RuntimeError, ValueError, struct.error, zlib.error, zstandard.ZstdError)


def decompressed(codec: int, data: memoryview) -> Iterator[bytes]:
    """The pieces, none of them empty, of what the codec with this number in the format compressed."""
    if codec != _SNAPPY and codec not in _OPEN:
        raise TransportError("a record batch is compressed in a way that streamdp does not know")
    try:
        yield from _snappy(data) if codec == _SNAPPY else _pieces(_OPEN[codec](io.BytesIO(data)))
    except _DAMAGED as error:
        raise TransportError("a record batch does not decompress: the data of the broker is damaged") from error


def _pieces(stream: Any) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _snappy(data: memoryview) -> Iterator[bytes]:
    """One block, or the Java library's framing: a header, then blocks with their lengths."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield _snappy_block(data)
        return
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise ValueError("a block does not end inside the batch")
        if block := _snappy_block(data[position : position + length]):
            yield block
        position += length


def _snappy_block(block: memoryview) -> bytes:
    """A block begins with its length, which the library believes and makes room for."""
    claimed = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(_length_bytes(block)))
    if claimed > SNAPPY_RATIO * len(block):
        raise ValueError("a block claims to be longer than it can be")
    return bytes(snappy.decompress(bytes(block)))


def _length_bytes(block: memoryview) -> bytes:
    begin = bytes(block[:5])
    ends = [place for place, byte in enumerate(begin) if byte < 0x80]
    if not ends:
        raise ValueError("a block has no length")
    return begin[: ends[0] + 1]
