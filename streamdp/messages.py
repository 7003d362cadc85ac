"""The bytes on the output topics: made here, read here, the same on every transport.

A message is a JSON object, or, for wide histograms, an Arrow IPC stream whose schema metadata holds that object and
whose one column holds the counts, compressed. A release of many cells comes in parts; how many depends on the public
number of cells only. Nothing here depends on unreleased data.

Format 1. The meaning of a field never changes; a new meaning is a new field. `counts` is what a subscriber should hold:
that of a `release`, in which the data was looked at, or of a `forecast`, which follows from earlier releases, costs
nothing and has a `release_id` of its own, by which it is repeated. Points that nobody watched share one `repeat`, with
the reason `missed`: those from `first_missed` to `time_point`. `noise_scale` is there where each of them is a count
plus noise of that scale; `variance` (missing in older messages, null where nothing is known) is the error to expect of
them, as `streamdp.histograms.variance` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamdp.arrow_streams import read_stream, write_stream
from streamdp.errors import StreamdpError

FORMAT = 1

# A broker's default limit is 1,048,588 bytes a message, and ours is 900 kB. A count takes at most 21 bytes as JSON
# (a sign, 19 digits, a comma) and 8 in an Arrow column, so these never pass it, whatever the noise drew.
JSON_CELLS_PER_PART = 40_000
ARROW_CELLS_PER_PART = 100_000

Encoding = Literal["json", "arrow", "auto"]
_COUNTS_SCHEMA = pa.schema([pa.field("count", pa.int64(), nullable=False)])


class BadMessage(StreamdpError):
    """Bytes on an output topic that no streamdp wrote, or that a newer one did."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One message: its header and, for (a part of) a release or forecast, its counts."""

    header: dict[str, Any]
    counts: NDArray[np.int64] | None

    @property
    def kind(self) -> str:
        return str(self.header["kind"])

    @property
    def missed(self) -> int:
        """How many missed points it is about; 0 when somebody watched the point."""
        first = self.header.get("first_missed")
        return 0 if first is None else int(self.header["time_point"]) - int(first) + 1


def encode(header: Mapping[str, Any]) -> bytes:
    """A message without counts: repeat, ended, head."""
    return _to_json({"format": FORMAT, **header})


def encode_release(header: Mapping[str, Any], counts: NDArray[np.int64], encoding: Encoding = "auto") -> list[bytes]:
    """The parts of one release or forecast, in order."""
    if encoding == "auto":
        encoding = "json" if counts.size <= JSON_CELLS_PER_PART else "arrow"
    size = JSON_CELLS_PER_PART if encoding == "json" else ARROW_CELLS_PER_PART
    parts = max(1, -(-counts.size // size))
    encoded = []
    for part in range(parts):
        chunk = counts[part * size : (part + 1) * size]
        whole = {"format": FORMAT, **header, "part": part + 1, "parts": parts, "first_cell": part * size}
        if encoding == "json":
            encoded.append(_to_json({**whole, "counts": chunk.tolist()}))
        else:
            encoded.append(write_stream(whole, pa.table([chunk], schema=_COUNTS_SCHEMA)))
    return encoded


def decode(value: bytes) -> Decoded:
    """Reads any message of ours; raises `BadMessage` on anything else."""
    try:
        if value[:1] == b"{":
            header = json.loads(value)
            raw = header.pop("counts", None)
            counts = None if raw is None else np.asarray(raw, dtype=np.int64)
        else:
            header, table = read_stream(value, _COUNTS_SCHEMA.types)
            if table.schema != _COUNTS_SCHEMA or table["count"].null_count:
                raise ValueError("the columns are not those of a release")
            counts = table["count"].to_numpy()
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadMessage(
            "a message on an output topic is not streamdp's: something else writes to that topic"
        ) from error
    if not isinstance(header.get("format"), int) or "kind" not in header:
        raise BadMessage("a message on an output topic is not streamdp's: something else writes to that topic")
    if header["format"] > FORMAT:
        raise BadMessage(f"a message has format {header['format']}, newer than {FORMAT}: upgrade streamdp")
    return Decoded(header, counts)


def join_parts(parts: Iterable[Decoded]) -> Decoded | None:
    """The whole release or forecast from its parts (any order), or None while some are missing."""
    ordered = sorted(parts, key=lambda part: int(part.header["part"]))
    if not ordered or len(ordered) != ordered[0].header["parts"]:
        return None
    if len({part.header["release_id"] for part in ordered}) != 1:
        return None
    header = {key: value for key, value in ordered[0].header.items() if key not in ("part", "first_cell")}
    arrays = [part.counts for part in ordered if part.counts is not None]
    return Decoded(header, np.concatenate(arrays))


def _to_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
