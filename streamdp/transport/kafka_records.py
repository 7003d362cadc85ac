"""Kafka's record batches (message format 2) as columns.

A client that builds an object per record spends most of its time doing so. Here a fetched buffer of batches becomes one
`RecordBatch`: a short loop finds where each record begins (their lengths form a chain), and everything else is decoded
for all records at once. Nothing here speaks to a broker.

Memory is bounded, whatever a producer sent. Batches are decompressed as they are handed out, `PIECE_BYTES` at a time;
of a record longer than `longest` only place and time are kept.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from streamdp.transport.base import TopicPartition, TransportError
from streamdp.transport.batch import Blobs, Headers, RecordBatch

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_END = 12
"""The length field counts the bytes after it."""
CHECKED_FROM = 21
"""The checksum covers a batch from its attributes on."""
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
ABORT_MARKER = b"\x00\x00\x00\x00"

_LONGEST_PREFIX = 32
"""A record's length, attributes, time and offset: at most 10 bytes for each number, as `_varint` reads them."""
_SHORTEST_RECORD = 7

PIECE_BYTES = 2 << 20
"""How much of a partition is decompressed and decoded at once, about."""
HEADER_ROOM = 1 << 20
"""What the headers of a record, and the lengths of its fields, may take beyond its key and value."""

Body = bytes | bytearray | memoryview
Decompress = Callable[[int, memoryview], Iterator[bytes]]
"""Takes a codec's number in the format and what it compressed; gives it piece by piece."""


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


class Aborted(NamedTuple):
    """A transaction to leave out: this producer's records from this offset up to its abort marker."""

    first_offset: int
    producer_id: int


class Fetched(NamedTuple):
    """What one fetch brought of one partition."""

    records: Iterator[RecordBatch]
    """Decompressed and decoded as they are asked for; none is empty."""
    position: int
    """The offset after everything in it, control records and aborted transactions included."""
    leader_epoch: int


def read_fetched(
    name: TopicPartition,
    position: int,
    buffer: bytes | memoryview,
    aborted: Iterable[Aborted],
    decompress: Decompress,
    max_record_bytes: int,
) -> Fetched:
    """The committed records of a fetched buffer, from `position` on: a broker answers with whole batches."""
    begin, leader_epoch = position, -1
    longest = max_record_bytes + HEADER_ROOM
    waiting = deque(sorted(aborted))
    aborted_producers: set[int] = set()
    committed: list[tuple[BatchHeader, memoryview]] = []
    for header, batch in _batches(name, memoryview(buffer)):
        leader_epoch = header.leader_epoch
        last_offset = header.base_offset + header.last_offset_delta
        position = max(position, last_offset + 1)
        while waiting and waiting[0].first_offset <= last_offset:
            aborted_producers.add(waiting.popleft().producer_id)
        body = batch[HEADER.size :]
        if header.attributes & CONTROL:
            if decode(name, [header], [body], longest).keys[0] == ABORT_MARKER:
                aborted_producers.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborted_producers):
            committed.append((header, body))
    return Fetched(_records(name, begin, committed, decompress, longest), position, leader_epoch)


def _records(
    name: TopicPartition,
    begin: int,
    batches: list[tuple[BatchHeader, memoryview]],
    decompress: Decompress,
    longest: int,
) -> Iterator[RecordBatch]:
    for piece in _pieces(name, batches, decompress, longest):
        records = piece.split_at(begin)[1]
        if len(records):
            yield records


def _pieces(
    name: TopicPartition, batches: list[tuple[BatchHeader, memoryview]], decompress: Decompress, longest: int
) -> Iterator[RecordBatch]:
    """Small batches together; of one that decompresses to more than a piece, some records at a time."""
    headers: list[BatchHeader] = []
    bodies: list[Body] = []
    size = 0
    for header, body in batches:
        content, rest = _first_piece(header, body, decompress)
        if headers and (rest is not None or size + len(content) > PIECE_BYTES):
            yield decode(name, headers, bodies, longest)
            headers, bodies, size = [], [], 0
        if rest is None:
            headers.append(header)
            bodies.append(content)
            size += len(content)
        else:
            yield from _parts(name, header, bytearray(content), rest, longest)
    if headers:
        yield decode(name, headers, bodies, longest)


def _first_piece(header: BatchHeader, body: memoryview, decompress: Decompress) -> tuple[Body, Iterator[bytes] | None]:
    """The whole body of a batch and None; or how a long one begins, and the rest of it."""
    codec = header.attributes & CODEC
    if not codec:
        return body, None
    rest = decompress(codec, body)
    content = bytearray()
    for piece in rest:
        content += piece
        if len(content) > PIECE_BYTES:
            return content, rest
    return content, None


def _parts(
    name: TopicPartition, header: BatchHeader, content: bytearray, rest: Iterator[bytes], longest: int
) -> Iterator[RecordBatch]:
    """The records of one long batch. Holds about a piece, or one record of at most `longest` bytes."""
    left = header.records
    try:
        while left:
            records, end = _whole_records(content, left)
            if records:
                yield decode(name, [header._replace(records=records)], [content[:end]], longest)
                left -= records
                del content[:end]
            elif len(content) >= _LONGEST_PREFIX and _varint(content, 0)[0] > longest:
                yield _oversize(name, header, content, longest)
                left -= 1
                length, begin = _varint(content, 0)
                _skip(content, rest, begin + length)
            elif (piece := next(rest, None)) is not None:
                content += piece
            else:
                raise ValueError("a record breaks off")
        if content or next(rest, None) is not None:
            raise ValueError("the records do not fill their batch")
    except (IndexError, ValueError) as error:
        raise _corrupted(name, "does not decode") from error


def _whole_records(content: bytearray, most: int) -> tuple[int, int]:
    """How many records the content holds whole, up to `most`, and where the last of them ends."""
    position = records = 0
    size = len(content)
    with suppress(IndexError):  # the length of the next record is not all there
        while records < most:
            low = content[position]
            if low < 128:
                end = position + 1 + (low >> 1)
            else:
                length, end = _varint(content, position)
                if length < 0:
                    raise ValueError("a record of negative length")
                end += length
            if end > size:
                break
            position, records = end, records + 1
    return records, position


def _oversize(name: TopicPartition, header: BatchHeader, content: bytearray, longest: int) -> RecordBatch:
    """The record at the beginning without its body: place and time, an empty key and an empty value."""
    _, begin = _varint(content, 0)
    _, end = _varint(content, begin + 1)
    _, end = _varint(content, end)
    fields = bytes(content[begin:end]) + b"\0\0\0"
    record = decode(name, [header._replace(records=1)], [bytes([2 * len(fields)]) + fields], longest)
    return replace(record, oversize=np.ones(1, np.bool_))


def _skip(content: bytearray, rest: Iterator[bytes], size: int) -> None:
    """Drops so many bytes from the front, reading on as needed."""
    while size > len(content):
        size -= len(content)
        content[:] = next(rest, b"")
        if not content:
            raise ValueError("a record breaks off")
    del content[:size]


class Buffered:
    """A partition's records that were fetched but not handed out, and where its reader stands."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._records: RecordBatch | None = None
        self._following: Iterator[RecordBatch] = iter(())
        self._end = position

    @property
    def is_empty(self) -> bool:
        return self._records is None

    def put(self, fetched: Fetched) -> None:
        self._following, self._end = fetched.records, fetched.position
        self._records = next(self._following, None)
        if self._records is None:
            self.position = self._end

    def take(self, max_bytes: int, until: int | None) -> RecordBatch | None:
        """Records below `until`, about `max_bytes` of them but at least one; None when there is none below it."""
        if self._records is None or (until is not None and self.position >= until):
            return None
        records = self._records
        allowed = len(records) if until is None else int(np.searchsorted(records.offsets, until))
        sizes = records.keys.starts[1:] + records.values.starts[1:]
        limit = int(records.keys.starts[0] + records.values.starts[0]) + max_bytes
        rows = min(allowed, max(1, int(np.searchsorted(sizes, limit, side="right"))))
        self._records = records.slice(rows, len(records)) if rows < len(records) else next(self._following, None)
        if self._records is None:
            self.position = self._end
        else:
            # Nothing is left below `until` when the next record lies at or beyond it.
            following = int(self._records.offsets[0])
            self.position = following if until is None else min(following, until)
        return records.slice(0, rows) if rows else None


def _batches(name: TopicPartition, buffer: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every whole batch, checked; a broker may cut the last one of an answer short."""
    cursor = 0
    while len(buffer) - cursor >= HEADER.size:
        header = BatchHeader._make(HEADER.unpack_from(buffer, cursor))
        if header.magic != 2:
            raise TransportError(
                f"partition {name.partition} of topic '{name.topic}' holds records in a format older than Kafka 0.11, "
                "which streamdp does not read: copy them to a new topic"
            )
        end = cursor + LENGTH_END + header.length
        if end > len(buffer):
            return
        batch = buffer[cursor:end]
        if len(batch) < HEADER.size or crc32c(batch[CHECKED_FROM:]) != header.checksum:
            raise _corrupted(name, "fails its checksum")
        yield header, batch
        cursor = end


def decode(name: TopicPartition, headers: list[BatchHeader], bodies: list[Body], longest: int) -> RecordBatch:
    """One batch of the records in consecutive, decompressed batches; without their bodies beyond `longest` bytes."""
    try:
        offset_deltas, timestamp_deltas, keys, values, record_headers, oversize = _record_columns(
            headers, bodies, longest
        )
    except (IndexError, ValueError) as error:
        raise _corrupted(name, "does not decode") from error
    counts = [header.records for header in headers]
    appended = [bool(header.attributes & LOG_APPEND_TIME) for header in headers]
    timestamps = np.repeat(np.array([header.first_timestamp for header in headers], np.int64), counts)
    timestamps += timestamp_deltas
    if any(appended):
        broker_times = np.repeat(np.array([header.max_timestamp for header in headers], np.int64), counts)
        timestamps = np.where(np.repeat(appended, counts), broker_times, timestamps)
    offsets = np.repeat(np.array([header.base_offset for header in headers], np.int64), counts) + offset_deltas
    return RecordBatch(name.topic, name.partition, offsets, timestamps, keys, values, record_headers, oversize)


def _record_columns(
    headers: list[BatchHeader], bodies: list[Body], longest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Blobs, Blobs, tuple[Headers, ...] | None, NDArray[np.bool_] | None]:
    joined = b"".join(bodies)
    data = np.frombuffer(joined, np.uint8)
    lengths, starts = _varints(data, _record_positions(joined, headers, bodies))
    timestamp_deltas, cursor = _varints(data, starts + 1)  # The byte of attributes is unused.
    offset_deltas, cursor = _varints(data, cursor)
    key_lengths, key_starts = _varints(data, cursor)
    key_ends = key_starts + np.maximum(key_lengths, 0)
    value_lengths, value_starts = _varints(data, key_ends)
    value_ends = value_starts + np.maximum(value_lengths, 0)
    header_counts, cursor = _varints(data, value_ends)
    record_headers = _record_headers(joined, header_counts, cursor, lengths <= longest) if header_counts.any() else None
    if not np.array_equal(cursor, starts + lengths):
        raise ValueError("a record's fields do not fill it")
    oversize = lengths > longest
    if oversize.any():
        key_ends, value_ends = np.where(oversize, key_starts, key_ends), np.where(oversize, value_starts, value_ends)
        key_lengths, value_lengths = np.where(oversize, 0, key_lengths), np.where(oversize, 0, value_lengths)
    # Keys and values lie between other fields; as every fourth piece of one column they are copied out together.
    bounds = np.stack([key_starts, key_ends, value_starts, value_ends], axis=1).reshape(-1)
    pieces = Blobs(joined, bounds if len(bounds) else np.zeros(1, np.int64))
    rows = np.arange(0, len(bounds), 4)
    return (
        offset_deltas,
        timestamp_deltas,
        _with_nulls(pieces.take(rows), key_lengths),
        _with_nulls(pieces.take(rows + 2), value_lengths),
        record_headers,
        oversize if oversize.any() else None,
    )


def _with_nulls(column: Blobs, lengths: NDArray[np.int64]) -> Blobs:
    """Null is written as length -1."""
    valid = lengths >= 0
    return column if valid.all() else Blobs(column.data, column.starts, valid)


def _record_positions(data: bytes, headers: list[BatchHeader], bodies: list[Body]) -> NDArray[np.int64]:
    """Where each record begins, with its length: the only loop per record, so it is written for speed."""
    positions = array("q")
    append = positions.append
    position = end_of_batch = 0
    for header, body in zip(headers, bodies, strict=True):
        end_of_batch += len(body)
        if not 0 <= _SHORTEST_RECORD * header.records <= len(body):
            raise ValueError("a batch cannot hold so many records")
        for _ in range(header.records):
            append(position)
            low = data[position]
            if low < 128:
                position += 1 + (low >> 1)
                continue
            high = data[position + 1]
            if high < 128:
                position += 2 + ((low & 127 | high << 7) >> 1)
            else:
                length, position = _varint(data, position)
                position += max(length, 0)
        if position != end_of_batch:
            raise ValueError("the records do not fill their batch")
    return np.frombuffer(positions, np.int64)


def _varints(data: NDArray[np.uint8], cursor: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The zigzag variable-length integers at the cursors, and the cursors after them."""
    byte = data[cursor]
    raw = (byte & 127).astype(np.uint64)
    after = cursor + 1
    rows = np.flatnonzero(byte > 127)
    shift = 7
    while rows.size:
        if shift > 63:
            raise ValueError("a variable-length integer does not end")
        byte = data[after[rows]]
        raw[rows] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        after[rows] += 1
        rows = rows[byte > 127]
        shift += 7
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), after


def _record_headers(
    data: bytes, counts: NDArray[np.int64], cursor: NDArray[np.int64], kept: NDArray[np.bool_]
) -> tuple[Headers, ...]:
    """The headers of the kept records, and of the others none; moves the cursors past them. Headers are rare in input.

    Names are text by the protocol, but brokers take any bytes, and one producer's must not stop everybody's input.
    """
    rows: list[Headers] = [()] * len(counts)
    for row in np.flatnonzero(counts).tolist():
        position = int(cursor[row])
        found: list[tuple[str, bytes]] = []
        for _ in range(int(counts[row])):
            label, position = _sized(data, position)
            value, position = _sized(data, position)
            if kept[row]:
                found.append((label.decode(errors="replace"), value))
        rows[row] = tuple(found)
        cursor[row] = position
    return tuple(rows)


def _sized(data: bytes, position: int) -> tuple[bytes, int]:
    """Bytes after their length; null, which headers hardly ever are, reads as empty."""
    length, position = _varint(data, position)
    end = position + max(length, 0)
    return data[position:end], end


def _varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    raw = shift = 0
    while shift <= 63:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise ValueError("a variable-length integer does not end")


def _corrupted(name: TopicPartition, what: str) -> TransportError:
    return TransportError(
        f"a record batch of partition {name.partition} of topic '{name.topic}' {what}: the data of the broker or the "
        "network is damaged"
    )
