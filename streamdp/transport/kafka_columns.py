"""The records of Kafka's batches (message format 2), decompressed, as columns: all records at once."""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdp.transport.base import TopicPartition, TransportError
from streamdp.transport.batch import Blobs, Headers, RecordBatch

HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_APPEND_TIME = 0x08
_SHORTEST_RECORD = 7

Body = bytes | bytearray | memoryview


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

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def decode(name: TopicPartition, headers: list[BatchHeader], bodies: list[Body], longest: int) -> RecordBatch:
    """One batch of the records in consecutive, decompressed batches; without their bodies beyond `longest` bytes."""
    try:
        offset_deltas, timestamp_deltas, keys, values, record_headers, oversize = _record_columns(
            headers, bodies, longest
        )
    except (IndexError, ValueError) as error:
        raise corrupted(name, "does not decode") from error
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
                length, position = varint(data, position)
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
    length, position = varint(data, position)
    end = position + max(length, 0)
    return data[position:end], end


def varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    raw = shift = 0
    while shift <= 63:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise ValueError("a variable-length integer does not end")


def corrupted(name: TopicPartition, what: str) -> TransportError:
    return TransportError(
        f"a record batch of partition {name.partition} of topic '{name.topic}' {what}: the data of the broker or the "
        "network is damaged"
    )
