"""Kafka's record batches (message format 2) as columns.

A client that builds an object per record spends most of its time doing so. Here a fetched buffer of batches becomes one
`RecordBatch`: a short loop finds where each record begins (their lengths form a chain), and everything else is decoded
for all records at once. Nothing here speaks to a broker.

Memory is bounded, whatever a producer sent. Batches are decompressed as they are handed out, `PIECE_BYTES` at a time;
of a record longer than `longest` only place and time are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from streamdp.transport.base import TopicPartition, TransportError
from streamdp.transport.batch import RecordBatch
from streamdp.transport.kafka_columns import HEADER, BatchHeader, Body, corrupted, decode, varint

LENGTH_END = 12
"""The length field counts the bytes after it."""
CHECKED_FROM = 21
"""The checksum covers a batch from its attributes on."""
CODEC, TRANSACTIONAL, CONTROL = 0x07, 0x10, 0x20
ABORT_MARKER = b"\x00\x00\x00\x00"

_LONGEST_PREFIX = 32
"""A record's length, attributes, time and offset: at most 10 bytes for each number, as `varint` reads them."""

PIECE_BYTES = 2 << 20
"""How much of a partition is decompressed and decoded at once, about."""
HEADER_ROOM = 1 << 20
"""What the headers of a record, and the lengths of its fields, may take beyond its key and value."""

Decompress = Callable[[int, memoryview], Iterator[bytes]]
"""Takes a codec's number in the format and what it compressed; gives it piece by piece."""


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
            elif len(content) >= _LONGEST_PREFIX and varint(content, 0)[0] > longest:
                yield _oversize(name, header, content, longest)
                left -= 1
                length, begin = varint(content, 0)
                _skip(content, rest, begin + length)
            elif (piece := next(rest, None)) is not None:
                content += piece
            else:
                raise ValueError("a record breaks off")
        if content or next(rest, None) is not None:
            raise ValueError("the records do not fill their batch")
    except (IndexError, ValueError) as error:
        raise corrupted(name, "does not decode") from error


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
                length, end = varint(content, position)
                if length < 0:
                    raise ValueError("a record of negative length")
                end += length
            if end > size:
                break
            position, records = end, records + 1
    return records, position


def _oversize(name: TopicPartition, header: BatchHeader, content: bytearray, longest: int) -> RecordBatch:
    """The record at the beginning without its body: place and time, an empty key and an empty value."""
    _, begin = varint(content, 0)
    _, end = varint(content, begin + 1)
    _, end = varint(content, end)
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
            raise corrupted(name, "fails its checksum")
        yield header, batch
        cursor = end
