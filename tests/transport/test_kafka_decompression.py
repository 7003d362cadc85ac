"""Batches that decompress to far more than they take on the wire: bounded memory, exact offsets, nobody else's loss."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard
from crc32c import crc32c
from kafka.codec import snappy_encode

from streamdp.domain import Attribute, Domain
from streamdp.ingest import Decoder, Reason
from streamdp.transport import kafka_batches, kafka_codecs
from streamdp.transport.base import TopicPartition
from streamdp.transport.batch import Blobs, RecordBatch
from streamdp.transport.kafka_batches import HEADER, HEADER_ROOM, PIECE_BYTES, Buffered, Fetched, read_fetched
from streamdp.transport.kafka_codecs import decompressed

NAME = TopicPartition("t", 0)
MAX_RECORD_BYTES = 65_536
BOMB = 48 << 20
# A piece of the partition and its columns, a piece of the codec, and one record: far below the bomb.
MEMORY = 20 << 20
RATIO = 40

COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda body: gzip.compress(body, 1),
    2: snappy_encode,
    3: lambda body: lz4.frame.compress(body, block_linked=False),
    4: lambda body: zstandard.ZstdCompressor(write_content_size=False).compress(body),
}
CODECS = [pytest.param(number, id=name) for number, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))][1:]


def varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(delta: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    named = b"".join(sized(name) + sized(held) for name, held in headers)
    body = b"\0" + varint(10 * delta) + varint(delta) + sized(key) + sized(value) + varint(len(headers)) + named
    return varint(len(body)) + body


def batch_of(records: Sequence[bytes], base: int, codec: int) -> bytes:
    body = COMPRESS[codec](b"".join(records))
    last = len(records) - 1
    fields: list[Any] = [base, HEADER.size - 12 + len(body), 0, 2, 0, codec, last, 1000, 2000, -1, -1, -1, len(records)]
    fields[4] = crc32c((HEADER.pack(*fields) + body)[21:])
    return HEADER.pack(*fields) + body


def read(buffer: bytes, position: int = 0, max_record_bytes: int = MAX_RECORD_BYTES) -> Fetched:
    return read_fetched(NAME, position, buffer, (), max_record_bytes)


def rows(batches: Sequence[RecordBatch]) -> list[tuple[Any, ...]]:
    found = []
    for batch in batches:
        marks = np.zeros(len(batch), np.bool_) if batch.oversize is None else batch.oversize
        columns = (batch.offsets.tolist(), batch.timestamps.tolist(), batch.keys, batch.values, marks.tolist())
        found += list(zip(*columns, strict=True))
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("place", ["value", "key", "headers"])
def test_an_oversize_record_loses_its_body_and_its_neighbours_nothing(codec: int, place: str) -> None:
    if place == "value":
        middle = record(2, b"k", bytes(BOMB))
    elif place == "key":
        middle = record(2, bytes(BOMB), None)
    else:
        middle = record(2, b"k", b"v", [(b"h", bytes(BOMB))])
    first, second = record(0, b"a", b"1"), record(1, b"b", None)
    batches = [
        batch_of([first], 5, codec),
        batch_of([first, second, middle, record(3, None, b"4")], 10, codec),
        batch_of([first, second], 20, codec),
    ]
    del middle
    buffer = b"".join(batches)
    assert len(buffer) * RATIO < BOMB or codec == 2
    tracemalloc.start()
    try:
        fetched = read(buffer)
        found = rows(list(fetched.records))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [
        (5, 1000, b"a", b"1", False),
        (10, 1000, b"a", b"1", False),
        (11, 1010, b"b", None, False),
        (12, 1020, b"", b"", True),
        (13, 1030, None, b"4", False),
        (20, 1000, b"a", b"1", False),
        (21, 1010, b"b", None, False),
    ]
    assert fetched.position == 22
    assert peak < MEMORY


@pytest.mark.parametrize("codec", CODECS)
def test_many_records_that_are_fine_come_piece_by_piece(codec: int) -> None:
    """What is held is a piece, though every record is to be handed out."""
    value = bytes(60_000)
    count = 500
    buffer = batch_of([record(i, b"%d" % i, value) for i in range(count)], 7, codec)
    buffered = Buffered(7)
    tracemalloc.start()
    try:
        buffered.put(read(buffer, 7))
        offsets: list[int] = []
        while (batch := buffered.take(8 << 20, None)) is not None:
            assert batch.values[0] == value and batch.nbytes < 2 * PIECE_BYTES
            offsets += batch.offsets.tolist()
            assert buffered.position == (offsets[-1] + 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert offsets == list(range(7, 7 + count)) and buffered.is_empty
    assert peak < MEMORY


@pytest.mark.parametrize("codec", [0, *range(1, 5)])
@pytest.mark.parametrize("piece", [64, 1000, PIECE_BYTES])
def test_pieces_of_any_size_give_the_same_records(codec: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also around the bound: whether a record is oversize depends on the record alone."""
    limit = 300
    monkeypatch.setattr(kafka_batches, "HEADER_ROOM", 10)
    monkeypatch.setattr(kafka_batches, "PIECE_BYTES", piece)
    monkeypatch.setattr(kafka_codecs, "PIECE_BYTES", 7 if piece == 64 else piece)
    sizes = [0, 1, 60, 64, 200, *range(limit - 5, limit + 15), 400, 1000, 20_000, 3]
    records = [record(i, b"k%d" % i, bytes(size), [(b"n", b"v")] * (i % 2)) for i, size in enumerate(sizes)]
    expected = []
    for i, (size, encoded) in enumerate(zip(sizes, records, strict=True)):
        body = len(encoded) - len(varint(len(encoded)))  # one or two bytes of length, three beyond 8 KiB
        oversize = body > limit + 10
        key, value = (b"", b"") if oversize else (b"k%d" % i, bytes(size))
        expected.append((i, 1000 + 10 * i, key, value, oversize))
    assert {row[-1] for row in expected} == {True, False}
    fetched = read(batch_of(records, 0, codec), max_record_bytes=limit)
    assert rows(list(fetched.records)) == expected


def test_a_position_inside_a_long_batch_is_exact() -> None:
    count = 100
    buffer = batch_of([record(i, None, bytes(60_000)) for i in range(count)], 0, 4)
    fetched = read(buffer, 57)
    assert [row[0] for row in rows(list(fetched.records))] == list(range(57, count))
    buffered = Buffered(57)
    buffered.put(read(buffer, 57))
    found: list[int] = []
    for until in (60, 61, 95):
        while (batch := buffered.take(1 << 20, until)) is not None:
            found += batch.offsets.tolist()
        assert found[-1] == until - 1 and buffered.position == until


@pytest.mark.parametrize("codec", CODECS)
def test_a_long_batch_that_breaks_off_or_goes_on_stops_nobody_else(codec: int) -> None:
    """Its pieces that are sound count; what follows them is one record without content."""
    records = [record(i, None, bytes(60_000)) for i in range(60)]
    for last in (records[-1][:-5], records[-1] + b"x", varint(1 << 40) + bytes(99)):
        buffer = batch_of([*records[:-1], last], 0, codec) + batch_of([record(0, b"k", b"v")], 60, codec)
        *found, unreadable, following = rows(list(read(buffer).records))
        assert [row[0] for row in found] == list(range(len(found))) and {len(row[3]) for row in found} <= {60_000}
        assert unreadable == (len(found), 1000, None, b"", False) and following == (60, 1000, b"k", b"v", False)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [-1, 1])
def test_a_long_batch_with_a_wrong_number_of_records_takes_no_memory(codec: int, count: int) -> None:
    buffer = bytearray(batch_of([record(0, None, b"v"), record(1, None, bytes(BOMB))], 0, codec))
    buffer[57:61] = count.to_bytes(4, "big", signed=True)
    buffer[17:21] = crc32c(buffer[21:]).to_bytes(4, "big")
    tracemalloc.start()
    try:
        found = rows(list(read(bytes(buffer)).records))
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert len(found) == 1 and found[0][0] == 0


def test_a_snappy_block_that_claims_more_than_it_can_hold_gets_no_memory() -> None:
    claim = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x0F]) + b"\0" * 20
    with pytest.raises(ValueError, match="longer than it can be"):
        list(decompressed(2, memoryview(claim)))
    assert b"".join(decompressed(2, memoryview(snappy.compress(bytes(1 << 20))))) == bytes(1 << 20)


def test_no_memory_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_left(_: object) -> None:
        raise MemoryError

    monkeypatch.setitem(kafka_codecs.CODECS, 1, nothing_left)
    with pytest.raises(MemoryError):
        list(decompressed(1, memoryview(b"x")))


def test_the_decoder_says_too_large_of_what_came_without_its_body() -> None:
    decoder = Decoder(Domain([Attribute.integer("age", 0, 9)]), digest_key=bytes(16))
    good = b'{"op":"upsert","ts":1,"record":{"age":1}}'
    batch = RecordBatch(
        "t",
        0,
        np.arange(3),
        np.arange(3),
        Blobs.from_list([b"a", b"", b"b"]),
        Blobs.from_list([good, b"", good]),
        oversize=np.array([False, True, False]),
    )
    for part in (batch, replace(batch), RecordBatch.concatenate([batch.slice(0, 2), batch.slice(2, 3)])):
        decoded = decoder.decode(part, None)
        assert decoded.rows.tolist() == [0, 2] and decoded.rejected_rows.tolist() == [1]
        assert decoded.rejected_by_reason() == {Reason.TOO_LARGE: 1}
    assert decoder.decode(batch.take(np.array([False, True, True])), None).rejected_rows.tolist() == [0]


def test_the_bound_leaves_room_for_headers() -> None:
    fits = record(0, None, bytes(MAX_RECORD_BYTES), [(b"h", bytes(HEADER_ROOM - 100))])
    assert rows(list(read(batch_of([fits], 0, 4)).records))[0][-1] is False
