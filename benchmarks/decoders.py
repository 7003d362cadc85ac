"""How fast polars, pyarrow and msgspec parse the same messages: the figures behind docs/adr/0005-json-decoder.md.

    python benchmarks/decoders.py

Each parses with the types known beforehand, to whatever it parses to; msgspec is also timed until there are columns.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.json
from ingest_data import DOMAIN, batches, joined

from streamdp.ingest import Decoder
from streamdp.transport.batch import Blobs, RecordBatch

_POLARS = {"categorical": pl.String, "integer": pl.Int64, "real": pl.Float64}
_ARROW = {"categorical": pa.string(), "integer": pa.int64(), "real": pa.float64()}
_PYTHON = {"categorical": str, "integer": int, "real": float}

POLARS_SCHEMA = {
    "ts": pl.Int64,
    "op": pl.String,
    "record": pl.Struct({a.name: _POLARS[a.kind] for a in DOMAIN.attributes}),
}
ARROW_OPTIONS = pa.json.ParseOptions(
    explicit_schema=pa.schema(
        [
            ("ts", pa.int64()),
            ("op", pa.string()),
            ("record", pa.struct([(a.name, _ARROW[a.kind]) for a in DOMAIN.attributes])),
        ]
    ),
    unexpected_field_behavior="error",
)
RECORD = msgspec.defstruct(
    "Record", [(a.name, _PYTHON[a.kind]) for a in DOMAIN.attributes], forbid_unknown_fields=True, gc=False
)
MESSAGE = msgspec.defstruct(
    "Message", [("ts", int), ("op", str), ("record", RECORD)], forbid_unknown_fields=True, gc=False
)
DECODER = msgspec.json.Decoder(MESSAGE)


def parse_polars(lines: bytes) -> Any:
    return pl.read_ndjson(io.BytesIO(lines), schema=POLARS_SCHEMA)


def parse_pyarrow(lines: bytes) -> Any:
    return pa.json.read_json(pa.BufferReader(lines), parse_options=ARROW_OPTIONS)


def parse_msgspec(lines: bytes) -> Any:
    return DECODER.decode_lines(lines)


PARSERS: dict[str, Callable[[bytes], Any]] = {
    "polars": parse_polars,
    "pyarrow": parse_pyarrow,
    "msgspec": parse_msgspec,
}


def msgspec_columns(lines: bytes) -> Any:
    messages = DECODER.decode_lines(lines)
    records = [message.record for message in messages]
    columns = [np.array([message.ts for message in messages])]
    for attribute in DOMAIN.attributes:
        column = [getattr(record, attribute.name) for record in records]
        columns.append(attribute.encode(column if attribute.kind == "categorical" else np.array(column)))
    return columns


def spoilt(batch: RecordBatch, bad: bytes) -> RecordBatch:
    """The batch with every hundredth message replaced."""
    values = [bad if row % 100 == 0 else value for row, value in enumerate(batch.values)]
    return RecordBatch("input", 0, batch.offsets, batch.timestamps, batch.keys, Blobs.from_list(values))


def main() -> None:
    rows, rounds = 200_000, 5
    (batch,) = batches(100_000, rows, rows, seed=1)
    lines = joined(batch.values)
    decoder = Decoder(DOMAIN, digest_key=bytes(16))
    cut, twice = spoilt(batch, b'{"ts":1,}'), spoilt(batch, b'{"ts":1,"ts":2}')
    runs: dict[str, Callable[[], Any]] = {
        **{name: partial(parse, lines) for name, parse in PARSERS.items()},
        "msgspec, to columns of codes": lambda: msgspec_columns(lines),
        "json.loads": lambda: [json.loads(line) for line in lines.splitlines()],
        "streamdp: decode, check, digest": lambda: decoder.decode(batch, None),
        "streamdp, 1 % of rows bad JSON": lambda: decoder.decode(cut, None),
        "streamdp, 1 % with duplicate keys": lambda: decoder.decode(twice, None),
    }
    elapsed, work = dict.fromkeys(runs, float("inf")), dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            begin, begin_work = time.perf_counter(), time.process_time()
            run()
            work[name] = min(work[name], time.process_time() - begin_work)
            elapsed[name] = min(elapsed[name], time.perf_counter() - begin)
    print(f"{rows} messages of {len(lines) / rows:.0f} bytes, best of {rounds} rounds; nanoseconds a row")
    print(f"{'':34} {'CPU':>8} {'elapsed':>8}")
    for name in runs:
        print(f"{name:34} {work[name] / rows * 1e9:8.0f} {elapsed[name] / rows * 1e9:8.0f}")


if __name__ == "__main__":
    main()
