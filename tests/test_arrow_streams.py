"""What a stranger may write where we read Arrow: refused, and in bounded memory."""

from __future__ import annotations

import contextlib
import random

import pyarrow as pa
import pytest

from streamdp import messages
from streamdp.arrow_streams import MAX_BYTES, read_stream, write_stream
from streamdp.result_messages import decode_rows, encode_rows

HEADER = {"format": 1, "kind": "release", "part": 1, "parts": 1}
TEXT = '{"format": 1, "kind": "release", "part": 1, "parts": 1}'
KINDS = pa.dictionary(pa.int32(), pa.string())
NOT_NULL = pa.schema([pa.field("count", pa.int64(), nullable=False)])
OURS = write_stream(HEADER, pa.table([[7] * 1003], schema=NOT_NULL))


def zeros(length: int) -> pa.Buffer:
    return pa.py_buffer(bytes(length))


def stream(*batches: pa.RecordBatch, header: str = TEXT) -> bytes:
    schema = batches[0].schema.with_metadata({"streamdp": header})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()


def one(array: pa.Array, name: str = "count") -> bytes:
    return stream(pa.record_batch([array], names=[name]))


def many_zeros() -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), MAX_BYTES // 8 + 1, [None, zeros(MAX_BYTES + 8)])


def long_names() -> pa.Array:
    names = pa.array(["x" * 1000]).take(pa.array([0] * (MAX_BYTES // 1000)))
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), names)


def claims(claimed: int) -> bytes:
    """Ours, except for what its column says to decompress to."""
    length = (8 * 1003).to_bytes(8, "little")
    assert OURS.count(length) == 1
    return OURS.replace(length, claimed.to_bytes(8, "little", signed=True))


BOMBS = {
    "a column of zeros": one(many_zeros()),
    "a claim of a terabyte": claims(1 << 40),
    "a claim beyond all memory": claims((1 << 63) - 1),
    "many columns": stream(
        pa.record_batch(
            [pa.Array.from_buffers(pa.int64(), 2**17, [None, zeros(2**20)])] * 17, names=list(map(str, range(17)))
        )
    ),
    "categories": one(long_names()),
}
WRONG = {
    "a claim below zero": claims(-2),
    "nulls without end": one(pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])),
    "no column": stream(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))),
    "another type": one(pa.array([1], pa.int8())),
    "a nested type": one(pa.array([[1]])),
    "an extension type": one(pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16], pa.binary(16)))),
    "two batches": stream(*[pa.record_batch([[1]], names=["count"])] * 2),
    "no header": one(pa.array([1])).replace(b"streamdp", b"someones"),
    "a header that is a list": stream(pa.record_batch([[1]], names=["count"]), header="[]"),
    "a deep header": stream(pa.record_batch([[1]], names=["count"]), header="[" * 100_000),
    "a column longer than its bytes": OURS.replace((1003).to_bytes(8, "little"), (2003).to_bytes(8, "little")),
    "cut short": OURS[:-60],
    "only a schema's beginning": b"\xff\xff\xff\xff\x10\x00\x00\x00",
    "too long": bytes(MAX_BYTES + 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_bad_message(name):
    value = BOMBS[name]
    assert len(value) < 60_000
    for decode in (messages.decode, lambda value: decode_rows([value])):
        with pytest.raises(messages.BadMessage, match="not streamdp's"):
            decode(value)


def test_what_a_bomb_claims_is_never_allocated():
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(messages.BadMessage):
        messages.decode(claims(1 << 30))
    assert pa.default_memory_pool().max_memory() - before < 2**20


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_as_we_write_it_is_a_bad_message(name):
    for decode in (messages.decode, lambda value: decode_rows([value])):
        with pytest.raises(messages.BadMessage, match="not streamdp's"):
            decode(WRONG[name])


@pytest.mark.parametrize(
    "value",
    [
        one(pa.array([1, None])),
        one(pa.array([1]), "other"),
        stream(pa.record_batch([[1], [2]], names=["count", "other"])),
        b'{"format":1,"kind":"release","counts":' + b"[" * 100_000,
    ],
)
def test_counts_are_one_column_without_nulls(value):
    with pytest.raises(messages.BadMessage, match="not streamdp's"):
        messages.decode(value)


@pytest.mark.parametrize("names", [["a", "b"], ["a", None]])
def test_a_category_that_is_not_there_is_a_bad_message(names):
    indices = pa.array([0, 2], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(names), safe=False)
    with pytest.raises(messages.BadMessage, match="not streamdp's"):
        decode_rows([one(column)])


@pytest.mark.parametrize("header", ['{"part": [], "parts": 1}', '{"part": 1}', '{"part": "x", "parts": 1}'])
def test_rows_with_a_strange_header_are_a_bad_message(header):
    with pytest.raises(messages.BadMessage, match="not streamdp's"):
        decode_rows([stream(pa.record_batch([[1]], names=["age"]), header=header)])


def test_rows_of_two_kinds_are_a_bad_message():
    parts = [
        stream(pa.record_batch([column], names=["age"]), header=f'{{"part": {number}, "parts": 2}}')
        for number, column in enumerate(([1], ["x"]), start=1)
    ]
    with pytest.raises(messages.BadMessage, match="not streamdp's"):
        decode_rows(parts)


def test_all_rows_together_are_bounded():
    """Many messages, each within its own bound."""
    full = pa.Array.from_buffers(pa.int64(), 2**21, [None, zeros(MAX_BYTES)])
    parts = (
        stream(pa.record_batch([full], names=["age"]), header=f'{{"part": {number}, "parts": 1000}}')
        for number in range(1, 1001)
    )
    before = pa.total_allocated_bytes()
    with pytest.raises(messages.BadMessage, match="not streamdp's"):
        decode_rows(parts)
    assert pa.total_allocated_bytes() - before < 2**20


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_what_we_write_is_read(rows):
    table = pa.table(
        {
            "ward": pa.array(["a", "b", None] * rows, pa.string()).dictionary_encode(),
            "age": pa.array([1, 2, None] * rows, pa.int64()),
            "size": pa.array([0.5, None, 2.5] * rows, pa.float64()),
            "name": pa.array(["x", None, "yy"] * rows, pa.string()),
        }
    )
    types = [pa.int64(), pa.float64(), pa.string(), KINDS]
    header, read = read_stream(write_stream(HEADER, table), types)
    assert header == HEADER
    assert read.equals(table)


def test_changed_bytes_are_a_bad_message_or_a_message():
    """Never another error, and never a crash of the process."""
    rows = pa.table({"ward": pa.array(["a", "b", None] * 30).dictionary_encode(), "age": list(range(90))})
    changes = random.Random(1)
    for value in (write_stream(HEADER, pa.table([[7] * 90], schema=NOT_NULL)), *encode_rows(rows)):
        for _ in range(2_000):
            changed = bytearray(value)
            for _ in range(changes.randint(1, 3)):
                changed[changes.randrange(len(changed))] = changes.choice((0, 1, 127, 128, 255, changes.randrange(256)))
            for decode in (messages.decode, lambda value: decode_rows([value]).to_pylist()):
                with contextlib.suppress(messages.BadMessage):
                    decode(bytes(changed))
