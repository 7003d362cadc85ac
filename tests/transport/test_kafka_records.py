"""Kafka's record batches as columns, against kafka-python's own builder and a reader of one record at a time."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from streamdp.transport.base import MAX_RECORD_BYTES, TopicPartition, TransportError
from streamdp.transport.batch import Blobs, RecordBatch
from streamdp.transport.kafka_batches import MAX_HEADERS, Aborted, Buffered, Fetched, read_fetched

NAME = TopicPartition("t", 0)
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]


def build(
    records: Sequence[Record], base: int = 0, codec: int = 0, producer: int = -1, control: bool = False, magic: int = 2
) -> bytes:
    """A batch as a producer sends it, at the offset a broker gave it."""
    transactional = {"transactional": True, "producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20, **(transactional if producer >= 0 else {}))
    for timestamp, key, value, headers in records:
        assert builder.append(timestamp, key, value, headers)
    builder.close()
    batch = bytearray(builder.buffer())
    batch[:8] = base.to_bytes(8, "big")
    if control:
        batch[22] |= 0x20
    if magic == 2:
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def read(buffer: bytes, position: int = 0, aborted: Sequence[Aborted] = ()) -> Fetched:
    return read_fetched(NAME, position, buffer, aborted, MAX_RECORD_BYTES)


def whole(fetched: Fetched) -> RecordBatch:
    """All records of a fetch, however many pieces they come in."""
    none = np.zeros(0, np.int64)
    nothing = RecordBatch(*NAME, none, none, Blobs.from_list([]), Blobs.from_list([]))
    return RecordBatch.concatenate([nothing, *fetched.records])


def rows(fetched: Fetched) -> list[object]:
    records = whole(fetched)
    headers = records.headers or ((),) * len(records)
    return list(
        zip(records.offsets.tolist(), records.timestamps.tolist(), records.keys, records.values, headers, strict=True)
    )


def plain(values: Sequence[bytes], base: int = 0, producer: int = -1) -> bytes:
    return build([(0, None, value, []) for value in values], base, producer=producer)


def marker(base: int, producer: int, commit: bool) -> bytes:
    return build([(0, struct.pack(">hh", 0, commit), b"\0" * 6, [])], base, producer=producer, control=True)


BYTES = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=300)
RECORD = st.tuples(
    st.integers(0, 2**62),
    BYTES,
    BYTES,
    st.lists(st.tuples(st.text(max_size=5).filter(lambda t: t.isprintable()), st.binary(max_size=5)), max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.lists(RECORD, min_size=1, max_size=12), st.integers(0, 4), st.integers(0, 5)), max_size=5
    ),
    skipped=st.integers(0, 40),
    torn=st.integers(0, 60),
)
@pytest.mark.slow
def test_any_batches_read_as_kafka_python_reads_them(
    batches: list[tuple[list[Record], int, int]], skipped: int, torn: int
) -> None:
    buffer, offset = b"", 0
    for records, codec, gap in batches:
        buffer += build(records, offset + gap, codec)
        offset += gap + len(records)
    expected = [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for batch in MemoryRecords(buffer)
        for record in batch
    ]
    fetched = read(buffer + plain([b"x" * 50], offset)[:torn], skipped)
    assert rows(fetched) == [row for row in expected if row[0] >= skipped]
    assert fetched.position == max(offset, skipped)


def test_long_records_have_longer_lengths() -> None:
    values = [b"x" * size for size in (0, 1, 60, 61, 62, 63, 64, 8_100, 8_200, 2_000_00)]
    assert list(whole(read(plain(values))).values) == values


def test_the_broker_s_time_stands_for_all_records_of_a_batch() -> None:
    batch = bytearray(build([(5, None, b"a", []), (7, None, b"b", [])]))
    batch[22] |= 0x08
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    assert whole(read(bytes(batch))).timestamps.tolist() == [7, 7]


def test_aborted_transactions_and_markers_are_left_out() -> None:
    buffer = b"".join(
        [
            plain([b"a"], 0, producer=1),
            plain([b"lost"], 1, producer=2),
            plain([b"plain"], 2),
            marker(3, 2, commit=False),
            plain([b"kept"], 4, producer=2),
            marker(5, 2, commit=True),
            marker(6, 1, commit=True),
        ]
    )
    fetched = read(buffer, 0, [Aborted(1, 2)])
    records = whole(fetched)
    assert list(records.values) == [b"a", b"plain", b"kept"]
    assert records.offsets.tolist() == [0, 2, 4] and fetched.position == 7


def test_a_fetch_of_markers_only_moves_the_position() -> None:
    fetched = read(marker(9, 1, commit=True), 9)
    assert len(whole(fetched)) == 0 and fetched.position == 10
    assert read(b"", 9).position == 9


def test_any_damaged_byte_is_noticed() -> None:
    """But for the offset, the length and the leader's epoch, which a broker sets after the checksum is made."""
    sound = plain([b"some value", b"another value"])
    for position in range(16, len(sound)):
        batch = bytearray(sound)
        batch[position] ^= 0x40
        with pytest.raises(TransportError, match=r"damaged|format"):
            whole(read(bytes(batch)))


UNREADABLE = (0, 0, None, b"", ())


def resealed(batch: bytes | bytearray) -> bytes:
    """With the checksum of what it holds now, as a hostile producer would send it."""
    return bytes(batch[:17]) + crc32c(batch[21:]).to_bytes(4, "big") + bytes(batch[21:])


@pytest.mark.parametrize("position", range(61, 85))
def test_a_batch_that_makes_no_sense_is_one_record_without_content(position: int) -> None:
    """Its checksum is right, so this is what the producer wrote: it must not stop what others wrote."""
    batch = bytearray(plain([b"abcdefg", b"hijklmn"]))
    batch[position] ^= 0xFF
    found = rows(read(plain([b"before"], 0) + resealed(b"\0" * 7 + b"\1" + batch[8:]) + plain([b"after"], 3)))
    assert found[0] == (0, 0, None, b"before", ()) and found[-1] == (3, 0, None, b"after", ())
    assert len(found) == 4 or found[1:-1] == [(1, *UNREADABLE[1:])], "a byte of a value, or of a time, may be anything"


@pytest.mark.parametrize("claimed", [(0, 1000, 2), (2, 1, 0), (0, 0, 0), (-5, 1, 2), (-1, -1, -1)])
def test_offsets_are_those_of_the_broker_whatever_the_records_claim(claimed: tuple[int, ...]) -> None:
    """A broker takes any in a batch that is not compressed. A record far ahead would keep all later ones back."""
    batch = bytearray(plain([b"0", b"1", b"2"], 7))
    size = (len(batch) - 61) // 3
    for row, delta in enumerate(claimed):
        record = bytearray(batch[61 + row * size : 61 + (row + 1) * size])
        raw = (delta << 1) ^ (delta >> 31)
        record[3:4] = bytes([raw]) if raw < 128 else bytes([raw & 127 | 128, raw >> 7])
        record[0] = 2 * (len(record) - 1)
        batch += record
    del batch[61 : 61 + 3 * size]
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    fetched = read(resealed(batch) + plain([b"next"], 10), 7)
    assert [(row[0], row[3]) for row in rows(fetched)] == [(7, b"0"), (8, b"1"), (9, b"2"), (10, b"next")]


@pytest.mark.parametrize(
    ("claimed", "offsets"), [((2, 5, 9), [2, 5, 9]), ((0, 1, 2), [0, 1, 2]), ((5, 3, 60), [5, 6, 9])]
)
def test_gaps_that_compaction_left_inside_a_batch_are_kept(claimed: tuple[int, ...], offsets: list[int]) -> None:
    """And never more of them than the batch lacks."""
    batch = bytearray(plain([b"0", b"1", b"2"]))
    size = (len(batch) - 61) // 3
    for row, delta in enumerate(claimed):
        batch[61 + row * size + 3] = 2 * delta
    batch[23:27] = (9).to_bytes(4, "big")
    fetched = read(resealed(batch) + plain([b"next"], 10))
    assert [row[0] for row in rows(fetched)] == [*offsets, 10] and fetched.position == 11


def test_numbers_of_more_than_32_bits_read_as_the_broker_reads_them() -> None:
    batch = bytearray(plain([b"v"]))
    body = bytes([0, 0, 0, 1, 0x82, 0x80, 0x80, 0x80, 0x10]) + b"v\0"
    batch[61:] = bytes([2 * len(body)]) + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    assert rows(read(resealed(batch))) == [(0, 0, None, b"v", ())]


def test_headers_that_never_end_take_no_time() -> None:
    body = b"".join(bytes([2 * 10, 0, 0, 2 * row, 1, 1]) + b"\xfe\xff\xff\xff\x0f" for row in range(60))
    batch = bytearray(plain([b"v"] * 60))
    batch[61:] = body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    assert rows(read(resealed(batch))) == [(row, 0, b"", b"", ()) for row in range(60)]


def test_a_record_with_very_many_headers_comes_without_them_and_is_marked() -> None:
    """They are read one by one: half a million of them compress to nothing and would take a second."""
    headers = [("", b"")] * (MAX_HEADERS + 1)
    fields = bytes([0, 0, 0, 1, 2]) + b"v"
    body = fields + varint(len(headers)) + b"\0\0" * len(headers)
    batch = bytearray(plain([b"v"]))
    batch[61:] = varint(len(body)) + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    (columns,) = read(resealed(batch)).records
    assert columns.oversize is not None and columns.oversize.tolist() == [True]
    assert columns.headers is None and list(columns.values) == [b""]


def varint(value: int) -> bytes:
    raw, found = 2 * value, bytearray()
    while raw > 127:
        found.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*found, raw])


def test_control_batches_that_compaction_emptied_are_passed_over() -> None:
    empty = bytearray(marker(0, 1, commit=True)[:61])
    empty[8:12] = (61 - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    data = bytearray(empty)
    data[22] &= ~0x20
    data[7] = 1
    found = rows(read(resealed(empty) + resealed(data) + plain([b"v"], 2)))
    assert found == [(2, 0, None, b"v", ())]


@pytest.mark.parametrize("count", [-1, 0x7FFFFFFF, 3])
def test_a_batch_that_lies_about_its_records_is_one_record_without_content(count: int) -> None:
    batch = bytearray(plain([b"a", b"b"]))
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    assert rows(read(resealed(batch) + plain([b"next"], 2))) == [UNREADABLE, (2, 0, None, b"next", ())]


def test_a_codec_from_the_future_is_refused_again_and_again() -> None:
    batch = bytearray(plain([b"v"]))
    batch[22] |= 0x07
    with pytest.raises(TransportError, match="does not know"):
        read(resealed(batch))


@pytest.mark.parametrize("codec", range(1, 5))
def test_what_does_not_decompress_is_one_record_without_content(codec: int) -> None:
    batch = bytearray(plain([b"v"]))
    batch[22] |= codec
    assert rows(read(resealed(batch) + plain([b"next"], 1))) == [UNREADABLE, (1, 0, None, b"next", ())]


def test_the_format_before_0_11_is_refused() -> None:
    with pytest.raises(TransportError, match="older"):
        read(build([(0, b"k", b"v" * 60, [])], magic=1))


@given(
    offsets=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    untils=st.lists(st.integers(0, 40), max_size=4),
    max_bytes=st.integers(0, 40),
)
def test_records_are_handed_out_in_order_and_never_beyond_until(
    offsets: list[int], untils: list[int], max_bytes: int
) -> None:
    """Gaps between offsets, as compaction leaves them."""
    places = [sum(offsets[: i + 1]) for i in range(len(offsets))]
    fetched = read(b"".join(plain([b"%02d" % place], place) for place in places))
    buffered = Buffered(0)
    buffered.put(fetched)
    found: list[int] = []
    for until in sorted(untils):
        while (batch := buffered.take(max_bytes, until)) is not None:
            assert batch.nbytes <= max(2, max_bytes) and batch.offsets[-1] < until
            found += batch.offsets.tolist()
        assert found == [place for place in places if place < until]
        assert buffered.position >= min(until, fetched.position)
    while (batch := buffered.take(max_bytes, None)) is not None:
        found += batch.offsets.tolist()
    assert found == places and buffered.position == fetched.position and buffered.is_empty


def test_a_header_whose_name_is_no_text_does_not_stop_the_input():
    batch = bytearray(build([(5, b"k", b"v", [("name", b"1")])]).replace(b"name", b"\xff\xfeme"))
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    assert rows(read(bytes(batch))) == [(0, 5, b"k", b"v", (("\ufffd\ufffdme", b"1"),))]
