"""From a parsed table, or rows read one by one, to the columns of a part of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamdp.arrays import Bools, Integers
from streamdp.domain import OUTSIDE, Attribute, Domain
from streamdp.ingest.decoded import Reason
from streamdp.ingest.exact import DEBEZIUM_DELETE, DEBEZIUM_UPSERTS, DELETE, UPSERT, Envelope, Row
from streamdp.transport.batch import Blobs

_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """Some rows of the batch, with the texts that name user and record not yet digested."""

    rows: Integers
    ts: Integers
    delete: Bools
    user: Blobs
    record: Blobs | None
    codes: tuple[NDArray[Any], ...]

    def take(self, kept: Bools) -> Part:
        if kept.all():
            return self
        return Part(
            self.rows[kept],
            self.ts[kept],
            self.delete[kept],
            self.user.take(kept),
            None if self.record is None else self.record.take(kept),
            tuple(column[kept] for column in self.codes),
        )


class Outcome:
    """What has become of the rows of a batch so far."""

    def __init__(self, rows: int) -> None:
        self.unread = np.ones(rows, np.bool_)
        self.parts: list[Part] = []
        self.dropped: list[Integers] = []
        self.rejected: list[tuple[Integers, NDArray[np.uint8]]] = []

    def keep(self, part: Part) -> None:
        self.unread[part.rows] = False
        self.parts.append(part)

    def drop(self, rows: Integers) -> None:
        self.unread[rows] = False
        self.dropped.append(rows)

    def reject(self, rows: Integers, reasons: Sequence[Reason] | Reason) -> None:
        self.unread[rows] = False
        self.rejected.append((rows, np.broadcast_to(np.asarray(reasons, np.uint8), rows.shape)))

    def settle(self, part: Part, domain: Domain) -> None:
        """Keep the rows whose values are inside the domain; reject or drop the others as their attributes say.

        Codes arrive as `encode` gives them, `OUTSIDE` included; those of deletes do not matter.
        """
        rejected = np.zeros(len(part.rows), np.bool_)
        dropped = np.zeros(len(part.rows), np.bool_)
        columns = []
        for attribute, column in zip(domain.attributes, part.codes, strict=True):
            outside = column == OUTSIDE
            if outside.any():
                outside &= ~part.delete
                mask = dropped if attribute.outside == "drop" else rejected
                mask |= outside
            columns.append(column.astype(attribute.dtype))
        if part.delete.any():
            for column in columns:
                column[part.delete] = 0
        dropped &= ~rejected
        if rejected.any():
            self.reject(part.rows[rejected], Reason.OUTSIDE_DOMAIN)
        if dropped.any():
            self.drop(part.rows[dropped])
        settled = Part(part.rows, part.ts, part.delete, part.user, part.record, tuple(columns))
        self.keep(settled.take(~(rejected | dropped)))


@dataclass(eq=False, repr=False)
class Fields:
    """The columns of a parsed table by their meaning, whatever the envelope. `sound` is false where in doubt."""

    upsert: Bools
    delete: Bools
    ts: pa.Array | None
    """Null where the message carries none; None when none does."""
    record: dict[str, pa.Array]
    sound: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.sound = self.upsert | self.delete


def fields_of(table: pa.Table, envelope: Envelope, identifiers: Sequence[str]) -> Fields:
    if envelope == "own":
        op = _codes_of_text(_column(table, "op"), [UPSERT, DELETE])
        return Fields(op == 0, op == 1, _column(table, "ts"), _children(_column(table, "record")))
    if envelope == "wrapped":
        change = _children(_column(table, "payload"))
    else:
        change = {name: _column(table, name) for name in table.column_names}
    op = _codes_of_text(change["op"], [*DEBEZIUM_UPSERTS, DEBEZIUM_DELETE])
    before, record = _children(change["before"]), _children(change["after"])
    fields = Fields((op >= 0) & (op < len(DEBEZIUM_UPSERTS)), op == len(DEBEZIUM_UPSERTS), None, record)
    if fields.delete.any():
        for name in identifiers:
            record[name] = pc.if_else(pa.array(fields.delete), before[name], record[name])
    if envelope == "debezium":
        # With neither it is no change event, and the exact reader says what it is.
        fields.sound &= _valid(change["before"]) | _valid(change["after"])
    else:
        fields.sound &= ~(_valid(_column(table, "before")) | _valid(_column(table, "after")))
    fields.sound &= fields.delete | _valid(change["after"])
    return fields


def timestamps(ts: pa.Array | None, messages: Integers) -> Integers:
    """The record's own timestamp, or the message's."""
    if ts is None:
        return messages
    if not ts.null_count:
        return integers(ts)
    return np.where(_valid(ts), integers(ts), messages)


def attribute_codes(attribute: Attribute, column: pa.Array, needed: Bools) -> tuple[NDArray[Any], Bools]:
    """Codes, and which rows are in doubt: those `needed` that hold null or a number too large for a double."""
    doubt = ~_valid(column) & needed if column.null_count else np.zeros(len(needed), np.bool_)
    if attribute.kind == "categorical":
        return _codes_of_text(column, attribute.values), doubt
    if attribute.kind == "integer":
        return attribute.encode(integers(column)), doubt
    reals = column.fill_null(0.0).to_numpy(zero_copy_only=False) if column.null_count else column.to_numpy()
    finite = np.isfinite(reals)
    if not finite.all():
        doubt |= ~finite
    return attribute.encode(reals), doubt


def texts(column: pa.Array) -> Blobs:
    """The texts of a column of strings or integers, as bytes."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.large_string())
    return Blobs.from_arrow(column.cast(pa.large_binary()))


def part_of_rows(domain: Domain, rows: Sequence[int], read: Sequence[Row]) -> Part:
    """The same columns, from rows read one by one."""
    delete = np.array([row.delete for row in read], np.bool_)
    codes = []
    for place, attribute in enumerate(domain.attributes):
        column = np.zeros(len(read), np.int64)
        column[~delete] = attribute.encode(_encodable(attribute, [row.values[place] for row in read if not row.delete]))
        codes.append(column)
    records = None if any(row.record is None for row in read) else Blobs.from_list([row.record for row in read])
    return Part(
        np.array(rows, np.int64),
        np.array([row.ts for row in read], np.int64),
        delete,
        Blobs.from_list([row.user for row in read]),
        records,
        tuple(codes),
    )


def _encodable(attribute: Attribute, values: list[Any]) -> Any:
    if attribute.kind == "categorical":
        return values
    if attribute.kind == "integer":
        return np.array([min(max(value, _LEAST), _MOST) for value in values], np.int64)
    return np.array([_double(value) for value in values], np.float64)


def _double(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _children(struct: pa.StructArray) -> dict[str, pa.Array]:
    """The fields of a struct, null where the struct is."""
    return dict(zip((child.name for child in struct.type), struct.flatten(), strict=True))


def _valid(column: pa.Array) -> Bools:
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def integers(column: pa.Array) -> Integers:
    found: Integers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return found


def _codes_of_text(column: pa.Array, values: Sequence[str]) -> NDArray[np.int32]:
    codes = pc.index_in(column, value_set=pa.array(values, pa.string()))
    found: NDArray[np.int32] = (codes.fill_null(OUTSIDE) if codes.null_count else codes).to_numpy()
    return found
