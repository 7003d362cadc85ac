"""Columns of byte strings and batches of records, against lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdp.transport.base import Message
from streamdp.transport.batch import Blobs, Headers, RecordBatch

ROWS = st.lists(st.none() | st.binary(max_size=6), max_size=12)


@given(rows=ROWS, begin=st.integers(-15, 15), end=st.integers(-15, 15))
def test_blobs_read_as_the_list_they_came_from(rows: list[bytes | None], begin: int, end: int) -> None:
    blobs = Blobs.from_list(rows)
    assert list(blobs) == rows and len(blobs) == len(rows)
    assert [blobs[i] for i in range(-len(rows), len(rows))] == rows + rows
    part = blobs.slice(begin, end)
    assert list(part) == rows[begin:end]
    assert part.nbytes == sum(len(row or b"") for row in rows[begin:end])
    assert bytes(part.content()) == b"".join(row or b"" for row in rows[begin:end])
    assert part.lengths().tolist() == [len(row or b"") for row in rows[begin:end]]
    assert part.to_arrow().to_pylist() == rows[begin:end]
    assert list(Blobs.from_arrow(part.to_arrow())) == rows[begin:end]
    assert list(Blobs.concatenate([part, blobs])) == rows[begin:end] + rows


@given(data=st.data(), rows=ROWS)
def test_taking_rows(data: st.DataObject, rows: list[bytes | None]) -> None:
    blobs = Blobs.from_list([b"before", *rows, None]).slice(1, len(rows) + 1)
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    assert list(blobs.take(np.array(mask, np.bool_))) == [row for row, kept in zip(rows, mask, strict=True) if kept]
    if rows:
        order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
        assert list(blobs.take(np.array(order, np.int64))) == [rows[i] for i in order]


def test_a_row_outside_is_refused() -> None:
    blobs = Blobs.from_list([b"a"])
    for row in (1, -2):
        with pytest.raises(IndexError):
            blobs[row]
    with pytest.raises(IndexError):
        Blobs.from_list([])[0]


def test_arrow_shares_the_bytes() -> None:
    blobs = Blobs.from_list([b"abc", None, b"def"])
    address = np.frombuffer(blobs.data, np.uint8).ctypes.data
    assert blobs.to_arrow().buffers()[2].address == address
    assert blobs.slice(1, 3).to_arrow().buffers()[2].address == address


def test_nothing_private_is_printed() -> None:
    batch = make(range(3), [(("secret", b"secret"),)] * 3)
    assert "secret" not in repr(batch) + repr(batch.values) + repr(Message("t", b"secret", b"secret"))


def make(offsets: range | list[int], headers: list[Headers] | None = None) -> RecordBatch:
    positions = np.array(list(offsets), np.int64)
    values = Blobs.from_list([b"secret %d" % offset for offset in offsets])
    return RecordBatch("t", 1, positions, positions * 10, values, values, None if headers is None else tuple(headers))


def test_a_batch_with_gaps_is_cut_at_any_offset() -> None:
    offsets = [3, 4, 7, 9]
    batch = make(offsets)
    for cut in range(12):
        below, rest = batch.split_at(cut)
        assert below.offsets.tolist() == [o for o in offsets if o < cut] == batch.before(cut).offsets.tolist()
        assert rest.offsets.tolist() == [o for o in offsets if o >= cut]
        assert list(rest.values) == [b"secret %d" % o for o in offsets if o >= cut]


def test_headers_follow_their_rows() -> None:
    tagged: Headers = (("h", b"1"),)
    batch = make([1, 2, 3], [(), tagged, ()])
    assert batch.slice(1, 3).headers == (tagged, ())
    assert batch.slice(2, 3).headers is None
    assert batch.take(np.array([False, True, False])).headers == (tagged,)
    assert batch.take(np.array([True, False, True])).headers is None
    joined = RecordBatch.concatenate([make([0]), batch])
    assert joined.headers == ((), (), tagged, ()) and joined.offsets.tolist() == [0, 1, 2, 3]
    assert joined.nbytes == 2 * sum(len(value or b"") for value in joined.values)
