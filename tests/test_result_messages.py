"""Results and rows: what went in comes out, in parts that a broker takes."""

from __future__ import annotations

import pyarrow
import pytest

from streamdp import messages
from streamdp.result_messages import decode_rows, encode_result, encode_rows, join_result, pack, unpack

MOST = 900_000
HEADER = {"kind": "result", "id": "a", "state": "done"}


def joined(parts: list[bytes]) -> dict | None:
    return join_result([messages.decode(part).header for part in parts])


@pytest.mark.parametrize(
    "result", [{}, {"a": [1, 2.5, None, "ä"]}, {"counts": list(range(300_000))}, {"worst": ['"\\\n'] * 200_000}]
)
def test_a_result_comes_back_from_its_parts_in_any_order(result):
    text, rows = unpack(pack(result))
    parts = encode_result(HEADER, text)
    assert rows == []
    assert max(map(len, parts)) <= MOST
    whole = joined(parts[::-1])
    assert whole == {"format": 1, **HEADER, "result": result}
    if len(parts) > 1:
        assert joined(parts[1:]) is None


def test_without_a_result_there_is_one_part():
    assert joined(encode_result(HEADER, None)) == {"format": 1, **HEADER}


def test_rows_come_back_in_order():
    table = pyarrow.table({"age": list(range(300_000)), "ward": [f"ward {n % 7}" for n in range(300_000)]})
    text, parts = unpack(pack({"made": 300_000}, encode_rows(table)))
    assert text == '{"made":300000}'
    assert len(parts) > 1
    assert max(map(len, parts)) <= MOST
    assert decode_rows(parts[::-1]).equals(table)
    with pytest.raises(messages.BadMessage, match="gone"):
        decode_rows(parts[1:])


def test_no_rows_are_rows_too():
    table = pyarrow.table({"age": pyarrow.array([], pyarrow.int64())})
    assert decode_rows(encode_rows(table)).equals(table)


def test_rubbish_among_the_rows():
    with pytest.raises(messages.BadMessage, match="not streamdp's"):
        decode_rows([b"rubbish"])
