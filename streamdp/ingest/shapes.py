"""Messages of one shape, parsed to columns by Arrow's JSON reader.

A *shape* is an envelope and the JSON types of the identifying fields: enough to write down an Arrow schema. Given one,
the reader is strict where it matters (docs/adr/0005-json-decoder.md): it refuses duplicate keys, numbers as strings,
fractions or too long integers for an integer, raw control characters, and unknown fields when told to. It is not
strict about UTF-8 and NaN, it reads `{}{}` as two rows, and it refuses a whole batch for one bad row. Hence the rules:

- only rows that begin with `{`, end with `}`, are UTF-8 and hold no NUL, newline or carriage return are joined, with
  newlines. If all are accepted, every newline stands between two objects (inside a string it is an error, and so is
  `}` newline `{` inside an object), so each message gave at least one row; as many rows as messages then means one
  each, in order;
- a refused batch is sieved, one message at a time in C, by msgspec with the same types. What passes is parsed again,
  and what then still makes Arrow refuse (duplicate keys) is set aside by counting colons, or cornered by halving;
- whoever does not come through is left for the exact reader. Nothing is rejected here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from streamdp.domain import Domain, Kind
from streamdp.ingest.exact import Envelope, envelope_of, record_of
from streamdp.ingest.strict_json import DEEPEST, depth, loads
from streamdp.transport.batch import Blobs

Identifier = Literal["text", "integer"]

_NEWLINE = pa.scalar(b"\n", pa.large_binary())
_BLOCK_BYTES = 1 << 22
_MIN_TO_HALVE = 1024

_ARROW = {"categorical": pa.string(), "integer": pa.int64(), "real": pa.float64()}
_IDENTIFIER_ARROW = {"text": pa.string(), "integer": pa.int64()}

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_SIEVE: dict[Kind, Any] = {"categorical": str, "integer": _Int64, "real": float}
_IDENTIFIER_SIEVE = {"text": str, "integer": _Int64}

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    envelope: Envelope
    identifiers: tuple[tuple[str, Identifier], ...]
    """The fields, other than attributes, that name the user and the record."""


def shape_of(value: bytes, identifiers: tuple[str, ...]) -> Shape | None:
    """The shape of a message, if it has one that could be parsed to columns."""
    try:
        message = loads(value)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    record = record_of(message)
    kinds: list[tuple[str, Identifier]] = []
    for name in identifiers:
        kinds.append((name, "text" if isinstance(record.get(name), str) else "integer"))
    return Shape(envelope_of(message), tuple(kinds))


class ShapeParser:
    """Parses messages of one shape, for one domain."""

    def __init__(self, domain: Domain, shape: Shape) -> None:
        self._domain = domain
        self._shape = shape
        self._options = pa.json.ParseOptions(
            explicit_schema=self._schema(),
            # The columns of somebody's table are theirs; the fields of our own envelope are ours to be strict about.
            unexpected_field_behavior="error" if shape.envelope == "own" else "ignore",
        )

    def parse(self, values: Blobs, rows: Rows) -> Iterator[tuple[Rows, pa.Table]]:
        """Tables of the rows that were accepted, some of `rows` each; any row may be missing."""
        for narrow in (self._readable, self._sieve, self._regular):
            rows = rows[narrow(values, rows)]
            table = self._read(values, rows)
            if table is not None:
                yield rows, table
                return
        yield from self._halve(values, rows)

    def _halve(self, values: Blobs, rows: Rows) -> Iterator[tuple[Rows, pa.Table]]:
        table = self._read(values, rows)
        if table is not None:
            yield rows, table
        elif len(rows) >= _MIN_TO_HALVE:
            middle = len(rows) // 2
            yield from self._halve(values, rows[:middle])
            yield from self._halve(values, rows[middle:])

    def _read(self, values: Blobs, rows: Rows) -> pa.Table | None:
        if not len(rows):
            return None
        chosen = values if len(rows) == len(values) else values.take(rows)
        together = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), chosen.to_arrow())
        joined = pc.binary_join(together, _NEWLINE)[0].as_buffer()
        # One thread: the decoder runs one slice of a batch in each.
        options = pa.json.ReadOptions(
            use_threads=False, block_size=max(_BLOCK_BYTES, 2 * int(chosen.lengths().max()) + 2)
        )
        try:
            table = pa.json.read_json(pa.BufferReader(joined), options, self._options)
        except pa.ArrowInvalid:
            return None
        return table if table.num_rows == len(rows) else None

    def _readable(self, values: Blobs, rows: Rows) -> NDArray[np.bool_]:
        """Which rows hold nothing that Arrow would pass over in the fields it ignores: NaN, Infinity, deep nesting."""
        readable = np.ones(len(rows), np.bool_)
        if self._shape.envelope == "own":
            return readable
        chosen = values.take(rows).to_arrow()
        for literal in (b"NaN", b"Inf"):
            readable &= pc.find_substring(chosen, literal).to_numpy(zero_copy_only=False) < 0
        openers = pc.add(pc.count_substring(chosen, b"{"), pc.count_substring(chosen, b"[")).to_numpy()
        for place in np.flatnonzero(openers > DEEPEST).tolist():
            readable[place] &= depth(chosen[place].as_py()) <= DEEPEST
        return readable

    def _sieve(self, values: Blobs, rows: Rows) -> NDArray[np.bool_]:
        passed = np.zeros(len(rows), np.bool_)
        decode = self._sieve_decoder.decode
        for place, value in enumerate(values.take(rows)):
            try:
                decode(value or b"")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            passed[place] = True
        return passed

    def _regular(self, values: Blobs, rows: Rows) -> NDArray[np.bool_]:
        """Which rows have as many colons as most: what passes the sieve and not Arrow has a field twice."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        colons = pc.count_substring(values.take(rows).to_arrow(), b":").to_numpy()
        regular: NDArray[np.bool_] = colons == np.bincount(colons).argmax()
        return regular

    def _schema(self) -> pa.Schema:
        identifiers = [(name, _IDENTIFIER_ARROW[kind]) for name, kind in self._shape.identifiers]
        row = pa.struct([(a.name, _ARROW[a.kind]) for a in self._domain.attributes] + identifiers)
        if self._shape.envelope == "own":
            return pa.schema([("ts", pa.int64()), ("op", pa.string()), ("record", row)])
        change = [("before", pa.struct(identifiers)), ("after", row), ("op", pa.string())]
        if self._shape.envelope == "debezium":
            return pa.schema(change)
        # A message with these is no wrapped one, whatever its payload; the columns show that they are absent.
        no = pa.struct([])
        return pa.schema([("before", no), ("after", no), ("payload", pa.struct(change))])

    @cached_property
    def _sieve_decoder(self) -> msgspec.json.Decoder[Any]:
        strict = self._shape.envelope == "own"
        identifiers = [(name, _IDENTIFIER_SIEVE[kind]) for name, kind in self._shape.identifiers]
        row = _struct([*((a.name, _SIEVE[a.kind]) for a in self._domain.attributes), *identifiers], strict)
        if strict:
            return msgspec.json.Decoder(_struct([("ts", _Int64), ("op", str), ("record", row)], strict))
        change = _struct([("before", _struct(identifiers, strict)), ("after", row), ("op", str)], strict)
        if self._shape.envelope == "wrapped":
            change = _struct([("payload", change)], strict)
        return msgspec.json.Decoder(change)


def _struct(fields: list[tuple[str, Any]], strict: bool) -> type[msgspec.Struct]:
    """A struct of optional fields; attribute names need not be Python names."""
    places = {f"f{place}": name for place, (name, _) in enumerate(fields)}
    return msgspec.defstruct(
        "Fields",
        [(place, kind | None, None) for place, (_, kind) in zip(places, fields, strict=True)],
        rename=places,
        forbid_unknown_fields=strict,
    )
