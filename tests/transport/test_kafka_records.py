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
from streamdp.transport.kafka_codecs import decompressed
from streamdp.transport.kafka_records import Aborted, Buffered, Fetched, read_fetched

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
    return read_fetched(NAME, position, buffer, aborted, decompressed, MAX_RECORD_BYTES)


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


@pytest.mark.parametrize("position", range(61, 85))
def test_a_batch_that_makes_no_sense_is_refused_whatever_its_checksum_says(position: int) -> None:
    batch = bytearray(plain([b"abcdefg", b"hijklmn"]))
    batch[position] ^= 0xFF
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    try:
        found = list(whole(read(bytes(batch))).values)
    except TransportError:
        return
    assert len(found) == 2, "a byte of a value, or of a time, may be anything"


def test_a_codec_from_the_future_is_refused() -> None:
    batch = bytearray(plain([b"v"]))
    batch[22] |= 0x07
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    with pytest.raises(TransportError, match="does not know"):
        whole(read(bytes(batch)))
    batch[22] = 0x04
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    with pytest.raises(TransportError, match="does not decompress"):
        whole(read(bytes(batch)))


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
