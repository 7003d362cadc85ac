"""Arrow IPC streams on topics: written, and read where a stranger may have written them.

pyarrow allocates what a compressed buffer says that it decompresses to, and believes offsets without a look: a few
kilobytes could ask for terabytes. Here all sizes are added up first, and what was read is checked.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

MAX_BYTES = 16 << 20
"""The most that one message may be, and may decompress to. Ours have about 800 kB, and the categories' names."""

_HEADER_KEY = b"streamdp"
# Places in the tables of Arrow's Message.fbs.
_HEADER = 2
_DATA_OF_DICTIONARY = 1
_BUFFERS = 2


def write_stream(header: Mapping[str, Any], table: pa.Table) -> bytes:
    """A stream of one record batch, compressed, with the header in its schema."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    table = table.combine_chunks().replace_schema_metadata({_HEADER_KEY: text.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def read_stream(value: bytes, types: Collection[pa.DataType]) -> tuple[dict[str, Any], pa.Table]:
    """Header and table. ValueError unless all is as `write_stream` makes it: columns of these types, one record batch,
    one dictionary for each column that has one, up to `MAX_BYTES`, all values valid."""
    if len(value) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    try:
        with pa.ipc.open_stream(value) as reader:
            _, *batches = pa.ipc.MessageReader.open_stream(value)
            _check(reader.schema, batches, types)
            table = reader.read_all()
        table.validate(full=True)
        header = json.loads(table.schema.metadata[_HEADER_KEY])
    except (LookupError, TypeError, OSError, RecursionError, pa.ArrowNotImplementedError, struct.error) as error:
        raise ValueError(str(error)) from error
    if not isinstance(header, dict):
        raise ValueError("the header is no object")
    return header, table.replace_schema_metadata(None)


def _check(schema: pa.Schema, batches: Sequence[pa.ipc.Message], types: Collection[pa.DataType]) -> None:
    """Raises ValueError for what must not be read: before anything is decompressed."""
    if not schema.types or any(kind not in types for kind in schema.types):
        raise ValueError("columns of other types")
    if len(batches) > 1 + sum(map(pa.types.is_dictionary, schema.types)):
        raise ValueError("more than one record batch, or more dictionaries than columns")
    if sum(size for batch in batches for size in _sizes(batch)) > MAX_BYTES:
        raise ValueError(f"decompresses to more than {MAX_BYTES} bytes")


def _sizes(message: pa.ipc.Message) -> Iterator[int]:
    """Of every buffer, decompressed. Each that we write begins with that number, or -1 if it is not compressed."""
    metadata, body = memoryview(message.metadata), memoryview(message.body)
    (root,) = struct.unpack_from("<I", metadata)
    batch = _follow(metadata, root, _HEADER)
    if message.type == "dictionary":
        batch = _follow(metadata, batch, _DATA_OF_DICTIONARY)
    place = _follow(metadata, batch, _BUFFERS)
    (count,) = struct.unpack_from("<I", metadata, place)
    for offset, length in struct.iter_unpack("<qq", metadata[place + 4 : place + 4 + 16 * count]):
        yield max(length, *struct.unpack_from("<q", body, offset)) if length else 0


def _follow(metadata: memoryview, table: int, field: int) -> int:
    """Where the thing begins that a field of a flatbuffers table points to. pyarrow has verified that it is inside."""
    (vtable,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - vtable)
    slot = 4 + 2 * field
    (offset,) = struct.unpack_from("<H", metadata, table - vtable + slot) if slot < size else (0,)
    if not offset:
        raise ValueError("a field is missing")
    place: int = table + offset
    (forward,) = struct.unpack_from("<I", metadata, place)
    return place + int(forward)
