"""The bytes on `<prefix>.results` and `<prefix>.rows.<id>`: what became of a job.

A worker gives back one blob: its result as JSON, and the rows it made, if any, as Arrow IPC streams small enough for a
message each. A result too long for one message leaves as slices of its text. Format 1, as `streamdp.messages`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow

from streamdp import messages
from streamdp.arrow_streams import read_stream, write_stream

# A broker's default limit is 1,048,588 bytes a message, and ours is 900 kB. Escaping at most doubles a slice of ASCII.
TEXT_PER_PART = 400_000
ROWS_BYTES_PER_PART = 800_000
# All rows of a job, read. A job makes 20 MB of them at most, compressed: about eight times that, and every part has the
# categories' names.
MAX_ROWS_BYTES = 512 << 20
_TEXT = pyarrow.string()
_ROW_TYPES = (pyarrow.int64(), pyarrow.float64(), _TEXT, pyarrow.dictionary(pyarrow.int32(), _TEXT))
_LENGTH = struct.Struct("<Q")


def pack(result: Mapping[str, Any], rows: Sequence[bytes] = ()) -> bytes:
    """What a worker gives back."""
    text = json.dumps(result, separators=(",", ":"), allow_nan=False).encode()
    return b"".join(_LENGTH.pack(len(part)) + part for part in (text, *rows))


def unpack(blob: bytes) -> tuple[str, list[bytes]]:
    """The result's text, which is ASCII, and the messages with its rows."""
    parts, place = [], 0
    while place < len(blob):
        (length,) = _LENGTH.unpack_from(blob, place)
        place += _LENGTH.size
        parts.append(blob[place : place + length])
        place += length
    return parts[0].decode("ascii"), parts[1:]


def encode_result(header: Mapping[str, Any], text: str | None) -> list[bytes]:
    """The parts of one result, in order; one part when there is no result or it is short."""
    if text is None:
        return [messages.encode({**header, "part": 1, "parts": 1})]
    if len(text) <= TEXT_PER_PART:
        return [messages.encode({**header, "part": 1, "parts": 1, "result": json.loads(text)})]
    slices = [text[place : place + TEXT_PER_PART] for place in range(0, len(text), TEXT_PER_PART)]
    return [
        messages.encode({**header, "part": number, "parts": len(slices), "result_text": piece})
        for number, piece in enumerate(slices, start=1)
    ]


def join_result(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The whole message from the headers of its parts (any order), or None while some are missing."""
    ordered = sorted(parts, key=lambda part: int(part["part"]))
    if not ordered or len(ordered) != ordered[0]["parts"]:
        return None
    whole = {name: value for name, value in ordered[0].items() if name not in ("part", "parts", "result_text")}
    if "result_text" in ordered[0]:
        whole["result"] = json.loads("".join(part["result_text"] for part in ordered))
    return whole


def encode_rows(table: pyarrow.Table) -> list[bytes]:
    """A table as messages, numbered i of n, none longer than a broker's default limit."""
    each = max(1, ROWS_BYTES_PER_PART * table.num_rows // max(1, table.nbytes))
    starts = range(0, max(1, table.num_rows), each)
    encoded = []
    for number, start in enumerate(starts, start=1):
        header = {"format": messages.FORMAT, "kind": "rows", "part": number, "parts": len(starts)}
        encoded.append(write_stream(header, table.slice(start, each)))
    return encoded


def decode_rows(values: Iterable[bytes]) -> pyarrow.Table:
    """The whole table from its messages, in any order; `BadMessage` for those of a stranger."""
    parts: dict[int, pyarrow.Table] = {}
    wanted = size = 0
    try:
        for value in values:
            header, part = read_stream(value, _ROW_TYPES)
            size += part.get_total_buffer_size()
            if size > MAX_ROWS_BYTES:
                raise ValueError(f"decompresses to more than {MAX_ROWS_BYTES} bytes")
            parts[int(header["part"])] = part
            wanted = int(header["parts"])
        if parts and len(parts) == wanted:
            return pyarrow.concat_tables([parts[number] for number in sorted(parts)])
    except (ValueError, KeyError, TypeError) as error:
        raise messages.BadMessage("a message with rows is not streamdp's: something else writes there") from error
    raise messages.BadMessage("some of the rows are gone from their topic: its retention has deleted them")
