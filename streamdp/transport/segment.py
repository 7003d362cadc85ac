"""The bytes of the embedded log: a segment file is a header and frames; a frame is one append to one partition.

All integers are little-endian; a segment starts with its magic (format version included) and its base offset. A frame:

    header     magic, flags, base offset, next offset, transaction (writer, sequence; 0, 0 when alone), bytes of keys,
               of values and of record headers, count, checksum of the body, checksum of the header
    body       timestamps int64[n], explicit offsets int64[n] (compacted frames only), key lengths int32[n], value
               lengths int32[n], record header lengths int32[n] (when any), keys, values, record headers, zeros up to
               a multiple of 8

A length of -1 is null. Columns rather than records, so that a frame of any size becomes numpy arrays without a loop,
and a run of many small frames is joined column by column. Checksums are CRC-32C, which the processor computes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from streamdp.transport.base import LogCorrupted, TransportError
from streamdp.transport.batch import Blobs, Headers, RecordBatch

SEGMENT_MAGIC = b"SDPLOG\x00\x01"
SEGMENT_HEADER = struct.Struct("<8sq")
FRAME_MAGIC = b"SDPF"
FRAME_FIELDS = struct.Struct("<4sIqqQQQQQII")
FRAME_HEADER_BYTES = FRAME_FIELDS.size + 4
CHECKSUM = struct.Struct("<I")
RECORD_HEADER = struct.Struct("<HI")
HAS_HEADERS = 1
EXPLICIT_OFFSETS = 2
LONGEST_BLOB = (1 << 31) - 1
WALK_BYTES = 256 << 10


class FrameHeader(NamedTuple):
    flags: int
    base_offset: int
    next_offset: int
    writer: int
    sequence: int
    key_bytes: int
    value_bytes: int
    header_bytes: int
    records: int
    body_checksum: int

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the fixed-width columns."""
        width = 16 + (8 if self.flags & EXPLICIT_OFFSETS else 0) + (4 if self.flags & HAS_HEADERS else 0)
        return width * self.records

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        body = self.fixed_bytes + self.key_bytes + self.value_bytes + self.header_bytes
        return FRAME_HEADER_BYTES + body + -body % 8


class Columns(NamedTuple):
    """Records on their way into a frame."""

    timestamps: NDArray[np.int64]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None


class Frame(NamedTuple):
    header: FrameHeader
    body: memoryview


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def segment_header(base_offset: int) -> bytes:
    return SEGMENT_HEADER.pack(SEGMENT_MAGIC, base_offset)


def check_segment_header(descriptor: int, base_offset: int, path: Path) -> None:
    if os.pread(descriptor, SEGMENT_HEADER.size, 0) != segment_header(base_offset):
        raise corrupted(path, 0, "this is not a segment of a format this version reads")


def corrupted(path: Path, position: int, fault: str) -> LogCorrupted:
    return LogCorrupted(
        f"{path}: damaged at byte {position}: {fault}; restore the file from a copy, "
        "or move the topic away and start from its source"
    )


def encode_frame(
    columns: Columns, base_offset: int, writer: int = 0, sequence: int = 0, offsets: NDArray[np.int64] | None = None
) -> tuple[bytes, bytes]:
    """Header and body of one frame. `offsets` are given when they have gaps; else they count up from the base."""
    count = len(columns.timestamps)
    flags = 0
    next_offset = base_offset + count
    parts: list[bytes] = [columns.timestamps.astype("<i8", copy=False).tobytes()]
    if offsets is not None:
        flags |= EXPLICIT_OFFSETS
        next_offset = int(offsets[-1]) + 1
        parts.append(offsets.astype("<i8", copy=False).tobytes())
    blobs = [columns.keys, columns.values]
    if columns.headers is not None:
        flags |= HAS_HEADERS
        blobs.append([_encode_record_headers(row) if row else b"" for row in columns.headers])
    sizes = [0, 0, 0]
    for place, rows in enumerate(blobs):
        lengths, sizes[place] = _encode_lengths(rows)
        parts.append(lengths)
    padding = -(sum(map(len, parts)) + sum(sizes)) % 8
    # One join from the rows to the body: each further copy of a large frame costs as much as writing it.
    for rows in blobs:
        parts.extend(filter(None, rows))
    parts.append(bytes(padding))
    body = b"".join(parts)
    fields = FRAME_FIELDS.pack(
        FRAME_MAGIC, flags, base_offset, next_offset, writer, sequence, *sizes, count, crc32c(body)
    )
    return fields + CHECKSUM.pack(crc32c(fields)), body


def _encode_lengths(rows: Sequence[bytes | None]) -> tuple[bytes, int]:
    """The column of lengths, and their sum."""
    if None in rows:
        lengths = np.fromiter((-1 if row is None else len(row) for row in rows), np.int64, len(rows))
    else:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))  # type: ignore[arg-type]
    if lengths.size and lengths.max() > LONGEST_BLOB:
        raise TransportError("a key, value or header is longer than 2 GiB, which the embedded log does not hold")
    return lengths.astype("<i4").tobytes(), int(np.maximum(lengths, 0).sum())


def _encode_record_headers(row: Headers) -> bytes:
    parts = []
    for name, value in row:
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise TransportError("a header's name is longer than 65,535 bytes")
        parts += [RECORD_HEADER.pack(len(encoded), len(value)), encoded, value]
    return b"".join(parts)


def _decode_record_headers(encoded: memoryview) -> Headers:
    row = []
    position = 0
    while position < len(encoded):
        name_length, value_length = RECORD_HEADER.unpack_from(encoded, position)
        begin = position + RECORD_HEADER.size
        position = begin + name_length + value_length
        name = str(encoded[begin : begin + name_length], "utf-8")
        row.append((name, bytes(encoded[begin + name_length : position])))
    return tuple(row)


def parse_frame_header(buffer: bytes | memoryview, position: int = 0) -> FrameHeader | None:
    """The header at a position, or None when there is none that its checksum confirms."""
    end = position + FRAME_FIELDS.size
    if end + CHECKSUM.size > len(buffer):
        return None
    if crc32c(buffer[position:end]) != CHECKSUM.unpack_from(buffer, end)[0]:
        return None
    magic, *fields = FRAME_FIELDS.unpack_from(buffer, position)
    return FrameHeader(*fields) if magic == FRAME_MAGIC else None


def parse_frame(buffer: memoryview, position: int, header: FrameHeader) -> Frame | None:
    """The frame at a position, or None when its body is cut short or fails its checksum."""
    size = header.size
    body = buffer[position + FRAME_HEADER_BYTES : position + size]
    if len(body) != size - FRAME_HEADER_BYTES or crc32c(body) != header.body_checksum:
        return None
    return Frame(header, body)


def walk_headers(descriptor: int, begin: int, end: int, path: Path) -> Iterator[tuple[int, FrameHeader]]:
    """Position and header of every frame between two byte positions, without touching large bodies."""
    buffer, origin, position = b"", begin, begin
    while position < end:
        if position + FRAME_HEADER_BYTES > origin + len(buffer):
            buffer, origin = os.pread(descriptor, min(WALK_BYTES, end - position), position), position
        header = parse_frame_header(buffer, position - origin)
        if header is None:
            raise corrupted(path, position, "no frame starts here")
        yield position, header
        position += header.size


def decode_frames(frames: Sequence[Frame], topic: str, partition: int) -> RecordBatch:
    """One batch of consecutive frames; a single frame's keys and values are not copied."""
    counts = np.fromiter((frame.header.records for frame in frames), np.int64, len(frames))
    timestamps: list[memoryview] = []
    offsets: list[memoryview] = []
    key_lengths: list[memoryview] = []
    value_lengths: list[memoryview] = []
    header_lengths: list[memoryview] = []
    keys: list[memoryview] = []
    values: list[memoryview] = []
    record_headers: list[memoryview] = []
    for header, body in frames:
        flags, count = header.flags, header.records
        position = 8 * count
        timestamps.append(body[:position])
        if flags & EXPLICIT_OFFSETS:
            offsets.append(body[position : position + 8 * count])
            position += 8 * count
        key_lengths.append(body[position : position + 4 * count])
        position += 4 * count
        value_lengths.append(body[position : position + 4 * count])
        position += 4 * count
        if flags & HAS_HEADERS:
            header_lengths.append(body[position : position + 4 * count])
            position += 4 * count
        keys.append(body[position : position + header.key_bytes])
        position += header.key_bytes
        values.append(body[position : position + header.value_bytes])
        position += header.value_bytes
        if flags & HAS_HEADERS:
            record_headers.append(body[position : position + header.header_bytes])
    return RecordBatch(
        topic,
        partition,
        _decode_offsets(frames, counts, offsets),
        np.frombuffer(_join(timestamps), "<i8"),
        _decode_blobs(key_lengths, keys),
        _decode_blobs(value_lengths, values),
        _decode_all_headers(frames, _decode_blobs(header_lengths, record_headers)) if header_lengths else None,
    )


def _decode_offsets(
    frames: Sequence[Frame], counts: NDArray[np.int64], explicit: list[memoryview]
) -> NDArray[np.int64]:
    firsts = np.fromiter((frame.header.base_offset for frame in frames), np.int64, len(frames))
    total = int(counts.sum())
    offsets: NDArray[np.int64] = np.arange(total) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    if explicit:
        gapped = np.fromiter((frame.header.flags & EXPLICIT_OFFSETS for frame in frames), np.bool_, len(frames))
        offsets[np.repeat(gapped, counts)] = np.frombuffer(_join(explicit), "<i8")
    return offsets


def _decode_blobs(lengths: list[memoryview], content: list[memoryview]) -> Blobs:
    each = np.frombuffer(_join(lengths), "<i4")
    valid = None
    if each.size and each.min() < 0:
        valid = each >= 0
        each = np.maximum(each, 0)
    starts = np.zeros(len(each) + 1, np.int64)
    np.cumsum(each, out=starts[1:])
    return Blobs(_join(content), starts, valid)


def _decode_all_headers(frames: Sequence[Frame], encoded: Blobs) -> tuple[Headers, ...]:
    rows = (_decode_record_headers(memoryview(row or b"")) for row in encoded)
    return tuple(
        chain.from_iterable(
            (next(rows) for _ in range(header.records)) if header.flags & HAS_HEADERS else ((),) * header.records
            for header, _ in frames
        )
    )


def _join(parts: list[memoryview]) -> bytes | memoryview:
    return parts[0] if len(parts) == 1 else b"".join(parts)
