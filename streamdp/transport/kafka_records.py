"""Kafka's record batches (message format 2) as columns.

A client that builds an object per record spends most of its time doing so. Here a fetched buffer of batches becomes one
`RecordBatch`: a short loop finds where each record begins (their lengths form a chain), and everything else is decoded
for all records at once. Nothing here speaks to a broker.

Memory is bounded, whatever a producer sent. Batches are decompressed as they are handed out, `PIECE_BYTES` at a time;
of a record longer than `longest` only place and time are kept. Of what is skipped to the end of its batch, nothing is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from streamdp.transport.base import TopicPartition, TransportError
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard, unread
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
    guard: Guard | None = None,
) -> Fetched:
    """The committed records of a fetched buffer, from `position` on: a broker answers with whole batches."""
    begin, leader_epoch = position, -1
    longest = max_record_bytes + HEADER_ROOM
    waiting = deque(sorted(aborted))
    aborted_producers: set[int] = set()
    committed: list[tuple[BatchHeader, memoryview]] = []
    for header, batch in _batches(name, memoryview(buffer)):
        leader_epoch = header.leader_epoch
        position = max(position, header.last_offset + 1)
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted_producers.add(waiting.popleft().producer_id)
        body = batch[HEADER.size :]
        if header.attributes & CONTROL:
            if decode(name, [header], [body], longest).keys[0] == ABORT_MARKER:
                aborted_producers.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborted_producers):
            committed.append((header, body))
    reading = _Reading(name, begin, decompress, longest, guard or Guard())
    return Fetched(reading.records(committed), position, leader_epoch)


@dataclass(frozen=True)
class _Reading:
    """The records of consecutive batches of one partition."""

    name: TopicPartition
    begin: int
    """Where to begin: a broker answers with whole batches."""
    decompress: Decompress
    longest: int
    guard: Guard

    def records(self, batches: list[tuple[BatchHeader, memoryview]]) -> Iterator[RecordBatch]:
        for piece in self._pieces(batches):
            records = piece.split_at(self.begin)[1]
            if len(records):
                yield records

    def _pieces(self, batches: list[tuple[BatchHeader, memoryview]]) -> Iterator[RecordBatch]:
        """Small batches together; of one that decompresses to more than a piece, some records at a time."""
        headers: list[BatchHeader] = []
        bodies: list[Body] = []
        size = 0
        for header, body in batches:
            is_skipped = self._is_skipped(header, max(header.base_offset, self.begin))
            content, rest = (b"", None) if is_skipped else self._first_piece(header, body)
            if headers and (is_skipped or rest is not None or size + len(content) > PIECE_BYTES):
                yield self._decode(headers, bodies)
                headers, bodies, size = [], [], 0
            if is_skipped:
                yield unread(self.name, max(header.base_offset, self.begin), header.max_timestamp)
            elif rest is None:
                headers.append(header)
                bodies.append(content)
                size += len(content)
            else:
                yield from self._parts(header, bytearray(content), rest)
        if headers:
            yield self._decode(headers, bodies)

    def _is_skipped(self, header: BatchHeader, first: int) -> bool:
        """Whether the batch is skipped from this offset to its end."""
        return self.guard.skips.cover(self.name, first, header.last_offset)

    def _decode(self, headers: list[BatchHeader], bodies: list[Body]) -> RecordBatch:
        self.guard.reading(self.name, headers[0].base_offset, headers[-1].last_offset)
        return decode(self.name, headers, bodies, self.longest)

    def _first_piece(self, header: BatchHeader, body: memoryview) -> tuple[Body, Iterator[bytes] | None]:
        """The whole body of a batch and None; or how a long one begins, and the rest of it."""
        codec = header.attributes & CODEC
        if not codec:
            return body, None
        self.guard.reading(self.name, header.base_offset, header.last_offset)
        rest = self.decompress(codec, body)
        content = bytearray()
        for piece in rest:
            content += piece
            if len(content) > PIECE_BYTES:
                return content, rest
        return content, None

    def _parts(self, header: BatchHeader, content: bytearray, rest: Iterator[bytes]) -> Iterator[RecordBatch]:
        """The records of one long batch. Holds about a piece, or one record of at most `longest` bytes."""
        left = header.records
        try:
            while left:
                self.guard.reading(self.name, header.base_offset, header.last_offset)
                records, end = _whole_records(content, left)
                if records:
                    part = decode(self.name, [header._replace(records=records)], [content[:end]], self.longest)
                    del content[:end]
                elif len(content) >= _LONGEST_PREFIX and varint(content, 0)[0] > self.longest:
                    part = _oversize(self.name, header, content, self.longest)
                elif (piece := next(rest, None)) is not None:
                    content += piece
                    continue
                else:
                    raise ValueError("a record breaks off")
                yield part
                left -= len(part)
                following = int(part.offsets[-1]) + 1
                if left and self._is_skipped(header, max(following, self.begin)):
                    yield unread(self.name, max(following, self.begin), header.max_timestamp)
                    return
                if not records:
                    self.guard.reading(self.name, header.base_offset, header.last_offset)
                    length, begin = varint(content, 0)
                    _skip(content, rest, begin + length)
            if content or next(rest, None) is not None:
                raise ValueError("the records do not fill their batch")
        except (IndexError, ValueError) as error:
            raise corrupted(self.name, "does not decode") from error


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

    def __init__(self, position: int, guard: Guard | None = None) -> None:
        self.position = position
        self._guard = guard or Guard()
        self._records: RecordBatch | None = None
        self._following: Iterator[RecordBatch] = iter(())
        self._end = position

    @property
    def is_empty(self) -> bool:
        return self._records is None

    def put(self, fetched: Fetched) -> None:
        self._following, self._end = fetched.records, fetched.position
        self._records = self._next()
        if self._records is None:
            self.position = self._end

    def _next(self) -> RecordBatch | None:
        records = next(self._following, None)
        self._guard.read()
        return records

    def take(self, max_bytes: int, until: int | None) -> RecordBatch | None:
        """Records below `until`, about `max_bytes` of them but at least one; None when there is none below it."""
        if self._records is None or (until is not None and self.position >= until):
            return None
        records = self._records
        allowed = len(records) if until is None else int(np.searchsorted(records.offsets, until))
        sizes = records.keys.starts[1:] + records.values.starts[1:]
        limit = int(records.keys.starts[0] + records.values.starts[0]) + max_bytes
        rows = min(allowed, max(1, int(np.searchsorted(sizes, limit, side="right"))))
        self._records = records.slice(rows, len(records)) if rows < len(records) else self._next()
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
