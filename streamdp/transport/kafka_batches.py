"""Kafka's record batches (message format 2) as columns.

A client that builds an object per record spends most of its time doing so. Here a fetched buffer of batches becomes
`RecordBatch`es: a short loop finds where each record begins (their lengths form a chain), and everything else is
decoded for all records at once. Nothing here speaks to a broker.

Producers are strangers, and a broker checks little of what they send:

- Memory is bounded. Batches are decompressed as they are handed out, `PIECE_BYTES` at a time; of a record longer than
  `longest` only place and time are kept.
- Offsets ascend and lie in their batch, whatever the records claim: a broker numbers batches and believes the rest.
- A batch whose checksum is right and that makes no sense is what its producer wrote. It, or what is left of it, becomes
  one record with neither key nor content, so that it stops nobody else's. A wrong checksum is an error.
- What is skipped (`Guard`) to the end of its batch becomes such a record too, unread.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from streamdp.transport.base import TopicPartition, TransportError
from streamdp.transport.batch import Blobs, Headers, RecordBatch
from streamdp.transport.guard import Guard
from streamdp.transport.kafka_codecs import CODECS, decompressed

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_END = 12
"""The length field counts the bytes after it."""
CHECKED_FROM = 21
"""The checksum covers a batch from its attributes on."""
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
ABORT = b"\x00\x00"
"""The type of a control record, after two bytes of version in its key."""
_SHORTEST_RECORD = 7
_LONGEST_PLACE = 21
"""A record's length, attributes, time and offset."""

PIECE_BYTES = 2 << 20
"""How much of a partition is decompressed and decoded at once, about."""
MAX_HEADERS = 1_000
"""A record with more is `TOO_LARGE`."""
HEADER_ROOM = 1 << 20
"""What the headers of a record, and the lengths of its fields, may take beyond its key and value."""

Integers = NDArray[np.int64]


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


class _Part(NamedTuple):
    """Consecutive whole records of one batch, decompressed: most often all of them."""

    header: BatchHeader
    first: int
    """How many records of the batch come before these."""
    records: int
    body: bytes | bytearray | memoryview
    oversize: bool = False
    """A single record, of which this is no more than place and time."""


def read_fetched(
    name: TopicPartition,
    position: int,
    buffer: bytes | memoryview,
    aborted: Iterable[Aborted],
    max_record_bytes: int,
    guard: Guard | None = None,
) -> Fetched:
    """The committed records of a fetched buffer, from `position` on: a broker answers with whole batches."""
    begin, leader_epoch = position, -1
    longest = max_record_bytes + HEADER_ROOM
    waiting = deque(sorted(aborted))
    aborted_producers: set[int] = set()
    committed: list[tuple[BatchHeader, memoryview]] = []
    for header, body in _batches(name, memoryview(buffer)):
        leader_epoch = header.leader_epoch
        position = max(position, header.last_offset + 1)
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted_producers.add(waiting.popleft().producer_id)
        if header.attributes & CONTROL:
            # Compaction leaves batches without records.
            marker = _decode(name, [_Part(header, 0, 1, body)], longest).keys[0] if header.records else None
            if marker is not None and marker[2:4] == ABORT:
                aborted_producers.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborted_producers):
            committed.append((header, body))
    return Fetched(_records(name, begin, committed, longest, guard or Guard()), position, leader_epoch)


def _batches(name: TopicPartition, buffer: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and body of every whole batch, checked; a broker may cut the last one of an answer short."""
    place = f"partition {name.partition} of topic '{name.topic}'"
    cursor = 0
    while len(buffer) - cursor >= HEADER.size:
        header = BatchHeader._make(HEADER.unpack_from(buffer, cursor))
        if header.magic != 2:
            raise TransportError(
                f"{place} holds records in a format older than Kafka 0.11, which streamdp does not read: copy them to "
                "a new topic"
            )
        end = cursor + LENGTH_END + header.length
        if end > len(buffer):
            return
        batch = buffer[cursor:end]
        if len(batch) < HEADER.size or crc32c(batch[CHECKED_FROM:]) != header.checksum:
            raise TransportError(
                f"a record batch of {place} fails its checksum: the data of the broker or the network is damaged"
            )
        if header.attributes & CODEC not in CODECS:
            raise TransportError(f"a record batch of {place} is compressed in a way that streamdp does not know")
        yield header, batch[HEADER.size :]
        cursor = end


def _records(
    name: TopicPartition, begin: int, batches: list[tuple[BatchHeader, memoryview]], longest: int, guard: Guard
) -> Iterator[RecordBatch]:
    """The records from `begin` on, in ascending order of their offsets."""
    start = begin
    every = (part for header, body in batches for part in _unskipped(name, start, header, body, longest, guard))
    for parts in _pieces(every):
        if parts[0].body:
            guard.reading(name, parts[0].header.base_offset, parts[-1].header.last_offset)
        records = _decode(name, parts, longest).split_at(begin)[1]
        if len(records):
            begin = int(records.offsets[-1]) + 1
            yield records


def _pieces(parts: Iterator[_Part]) -> Iterator[list[_Part]]:
    """Small parts together, to be decoded at once; what stands for unread ones by itself."""
    piece: list[_Part] = []
    size = 0
    for part in parts:
        if piece and (size + len(part.body) > PIECE_BYTES or not part.body or not piece[-1].body):
            yield piece
            piece, size = [], 0
        piece.append(part)
        size += len(part.body)
    if piece:
        yield piece


def _unskipped(
    name: TopicPartition, begin: int, header: BatchHeader, body: memoryview, longest: int, guard: Guard
) -> Iterator[_Part]:
    """The parts of a batch. Of what is skipped to the end of the batch nothing is read: one empty record stands for it.

    What is compressed is marked as being read, at every part anew: others may read between two of them.
    """
    parts, first = _parts(header, body, longest), 0
    while first <= header.last_offset_delta:
        if guard.skips.cover(name, max(header.base_offset + first, begin), header.last_offset):
            yield _Part(header, first, 1, b"")
            return
        if header.attributes & CODEC:
            guard.reading(name, header.base_offset, header.last_offset)
        part = next(parts, None)
        if part is None:
            return
        yield part
        first = part.first + part.records


def _parts(header: BatchHeader, body: memoryview, longest: int) -> Iterator[_Part]:
    """A batch as one part, or a long one as several. Holds about a piece, or one record of at most `longest` bytes."""
    if not 0 <= header.records <= header.last_offset_delta + 1:
        yield _Part(header, 0, 1, b"")
        return
    if not header.records:  # Compaction leaves batches without records.
        return
    content, first, skip = bytearray(), 0, 0
    try:
        for chunk in decompressed(header.attributes & CODEC, body):
            if isinstance(chunk, memoryview):  # It was not compressed, and is as long as the broker allows.
                yield _Part(header, 0, header.records, chunk)
                return
            content += chunk[skip:]
            skip = max(0, skip - len(chunk))
            while len(content) > PIECE_BYTES:
                if first == header.records:
                    return  # What follows is nobody's.
                found = array("q")
                end = _find_records(content, 0, len(content), header.records - first, found)
                if found:
                    yield _Part(header, first, len(found), content[:end])
                else:
                    length, begin = _varint(content, 0)
                    if length <= longest:
                        break
                    yield _Part(header, first, 1, _place_of(content), oversize=True)
                    end = begin + length
                first += len(found) or 1
                skip = max(0, end - len(content))
                del content[:end]
        if first < header.records:
            yield _Part(header, first, header.records - first, content)
    except ValueError:
        yield _Part(header, first, 1, b"")


def _place_of(content: bytearray) -> bytes:
    """The record at the beginning without its body."""
    data = np.frombuffer(bytes(content[:_LONGEST_PLACE]), np.uint8)
    _, begin = _varints(data, np.zeros(1, np.int64))
    _, end = _varints(data, begin + 1, np.uint64)
    _, end = _varints(data, end)
    fields = data[begin[0] : end[0]].tobytes() + b"\0\0\0"
    return bytes([2 * len(fields)]) + fields


def _decode(name: TopicPartition, parts: list[_Part], longest: int) -> RecordBatch:
    """The records of consecutive parts. A part that makes no sense becomes one record without key and content."""
    try:
        return _columns(name, parts, longest)
    except (IndexError, ValueError):
        if len(parts) > 1:
            return RecordBatch.concatenate([_decode(name, [part], longest) for part in parts])
    header, first, *_ = parts[0]
    offsets, timestamps = np.array([[header.base_offset + first], [header.first_timestamp]], np.int64)
    return RecordBatch(*name, offsets, timestamps, Blobs.from_list([None]), Blobs.from_list([b""]))


def _columns(name: TopicPartition, parts: list[_Part], longest: int) -> RecordBatch:
    counts = [part.records for part in parts]
    joined = b"".join(part.body for part in parts)
    data = np.frombuffer(joined, np.uint8)
    lengths, starts = _varints(data, _record_positions(joined, parts))
    ends = starts + lengths
    timestamp_deltas, cursor = _varints(data, starts + 1, np.uint64)  # The byte of attributes is unused.
    offset_deltas, cursor = _varints(data, cursor)
    key_lengths, key_starts = _varints(data, cursor)
    key_ends = key_starts + np.maximum(key_lengths, 0)
    value_lengths, value_starts = _varints(data, key_ends)
    value_ends = value_starts + np.maximum(value_lengths, 0)
    header_counts, cursor = _varints(data, value_ends)
    oversize = (lengths > longest) | (header_counts > MAX_HEADERS)
    # Headers are read one by one, so that of a record with very many none is.
    cursor[oversize], header_counts[oversize] = ends[oversize], 0
    headers = _headers(joined, header_counts, cursor, ends) if header_counts.any() else None
    if not np.array_equal(cursor, ends):
        raise ValueError("a record's fields do not fill it")
    # Keys and values lie between other fields; as every fourth piece of one column they are copied out together.
    bounds = np.stack([key_starts, key_ends, value_starts, value_ends], axis=1).reshape(-1)
    pieces, rows = Blobs(joined, bounds), np.arange(0, len(bounds), 4)
    keys = _with_nulls(pieces.take(rows), key_lengths)
    values = _with_nulls(pieces.take(rows + 2), value_lengths)
    if any(part.oversize for part in parts):
        oversize |= np.repeat([part.oversize for part in parts], counts)
    if oversize.any():
        keys, values = keys.emptied(oversize), values.emptied(oversize)
        headers = headers and tuple(() if large else row for row, large in zip(headers, oversize, strict=True))

    def spread(values: list[int]) -> Integers:
        return np.repeat(np.array(values, np.int64), counts)

    batches = [part.header for part in parts]
    timestamps = spread([batch.first_timestamp for batch in batches]) + timestamp_deltas
    if any(appended := [batch.attributes & LOG_APPEND_TIME for batch in batches]):
        timestamps = np.where(spread(appended), spread([batch.max_timestamp for batch in batches]), timestamps)
    # A record's place in its batch, and beyond that what compaction has taken before it. The records say how much that
    # is, but it never falls and is never more than the batch lacks: nothing, in a batch as producers send it.
    begins = accumulate(counts, initial=0)
    places = spread([part.first - begin for part, begin in zip(parts, begins, strict=False)])
    places += np.arange(len(starts))
    offsets = spread([batch.base_offset for batch in batches])
    if any(lacking := [batch.last_offset_delta + 1 - batch.records for batch in batches]):
        offsets = np.maximum.accumulate(offsets + np.clip(offset_deltas - places, 0, spread(lacking)))
    offsets += places
    return RecordBatch(*name, offsets, timestamps, keys, values, headers, oversize if oversize.any() else None)


def _with_nulls(column: Blobs, lengths: Integers) -> Blobs:
    """Null is written as length -1."""
    valid = lengths >= 0
    return column if valid.all() else Blobs(column.data, column.starts, valid)


def _record_positions(data: bytes, parts: list[_Part]) -> Integers:
    """Where each record begins, with its length."""
    positions = array("q")
    position = end = records = 0
    for part in parts:
        end += len(part.body)
        records += part.records
        if _SHORTEST_RECORD * part.records > len(part.body):
            raise ValueError("a batch cannot hold so many records")
        position = _find_records(data, position, end, part.records, positions)
        if position != end or len(positions) != records:
            raise ValueError("the records do not fill their batch")
    return np.frombuffer(positions, np.int64)


def _find_records(data: bytes | bytearray, position: int, end: int, records: int, positions: array[int]) -> int:
    """Add where up to so many whole records begin; where the last of them ends. The only loop per record."""
    append = positions.append
    with suppress(IndexError):  # The length of the next one is not all there.
        for _ in range(records):
            low = data[position]
            if low < 128:
                following = position + 1 + (low >> 1)
            elif (high := data[position + 1]) < 128:
                following = position + 2 + ((low & 127 | high << 7) >> 1)
            else:
                length, following = _varint(data, position)
                following += max(length, 0)
            append(position)
            position = following
    # The last one may be cut off. Looked at here, because a look at every record would cost a tenth of all decoding.
    return positions.pop() if position > end else position


def _varints(
    data: NDArray[np.uint8], cursor: Integers, kind: type[np.unsignedinteger[Any]] = np.uint32
) -> tuple[Integers, Integers]:
    """The zigzag variable-length integers at the cursors, and the cursors after them.

    Bits beyond the 32 or 64 of the kind are dropped, as brokers do.
    """
    byte = data[cursor]
    raw = (byte & 127).astype(kind)
    after = cursor + 1
    rows = np.flatnonzero(byte > 127)
    shift = 7
    while rows.size:
        if shift >= 8 * raw.itemsize:
            raise ValueError("a variable-length integer does not end")
        byte = data[after[rows]]
        raw[rows] |= (byte & 127).astype(kind) << kind(shift)
        after[rows] += 1
        rows = rows[byte > 127]
        shift += 7
    return (raw >> kind(1)).astype(np.int64) ^ -(raw & kind(1)).astype(np.int64), after


def _varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """One of 32 bits."""
    raw = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
    raise ValueError("a variable-length integer does not end")


def _headers(data: bytes, counts: Integers, cursor: Integers, ends: Integers) -> tuple[Headers, ...]:
    """The headers of every record, which are rare in input; moves the cursors past them.

    Names are text by the protocol, but brokers take any bytes, and one producer's must not stop everybody's input.
    """
    rows: list[Headers] = [()] * len(counts)
    for row in np.flatnonzero(counts).tolist():
        count, position, end = int(counts[row]), int(cursor[row]), int(ends[row])
        if count < 0:
            raise ValueError("a negative number of headers")
        found: list[tuple[str, bytes]] = []
        for _ in range(count):
            label, position = _sized(data, position, end)
            value, position = _sized(data, position, end)
            found.append((label.decode(errors="replace"), value))
        rows[row] = tuple(found)
        cursor[row] = position
    return tuple(rows)


def _sized(data: bytes, position: int, end: int) -> tuple[bytes, int]:
    """Bytes after their length; null, which headers hardly ever are, reads as empty."""
    length, position = _varint(data, position)
    after = position + max(length, 0)
    if after > end:
        raise ValueError("a header does not end inside its record")
    return data[position:after], after


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
