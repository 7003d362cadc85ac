"""Batches of messages to columns of good rows: the front door of ingest."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamdp.arrays import Bools, Integers
from streamdp.domain import Domain
from streamdp.ingest.columns import Outcome, Part, attribute_codes, fields_of, part_of_rows, texts, timestamps
from streamdp.ingest.decoded import Decoded, Reason
from streamdp.ingest.digest import Digester
from streamdp.ingest.exact import ExactReader, Row
from streamdp.ingest.keys import users_of_keys
from streamdp.ingest.shapes import Shape, ShapeParser, shape_of
from streamdp.transport.batch import Blobs, RecordBatch
from streamdp.transport.guard import Skips

MAX_RECORD_BYTES = 1 << 20
MAX_KEY_BYTES = 1 << 14

# A topic has one shape of message, or two while producers change over. Rows of further shapes are read one by one.
_MAX_SHAPES = 4
_ROWS_LOOKED_AT = 8

# Slices of a batch are decoded side by side: nearly all of the time is spent in Arrow and numpy, which let other
# threads run. They are small enough that a row which Arrow refuses costs only its slice a second reading.
_MIN_SLICE_ROWS, _MAX_SLICE_ROWS = 1 << 13, 1 << 16

# Arrow wants every message whole in one block. What is longer is rare enough to be read by itself.
_LONGEST_JOINED = 1 << 23

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False, repr=False)
class _Task:
    """A batch being decoded."""

    batch: RecordBatch
    latest_ts: int | None
    users: Blobs | None
    """The users of the keys, when keys name users."""
    outcome: Outcome

    def in_time(self, ts: Integers) -> Bools:
        in_time: Bools = ts >= 0
        if self.latest_ts is not None:
            in_time &= ts <= self.latest_ts
        return in_time


class Decoder:
    """Decodes batches for one domain.

    `user` is "key" or a field of the record, `record_id` a field of the record. What a message becomes depends on the
    message and on `latest_ts` alone: neither on the batch it arrives in nor on what was decoded before. One that
    `skips` names is turned away without a look at it.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        user: str = "key",
        record_id: str | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        max_key_bytes: int = MAX_KEY_BYTES,
        digest_key: bytes,
        skips: Skips | None = None,
    ) -> None:
        self._skips = skips or Skips()
        self._user = None if user == "key" else user
        self._record_id = record_id
        self._identifiers = tuple(name for name in (self._user, record_id) if name is not None)
        if len({*domain.names, *self._identifiers}) != len(domain) + len(self._identifiers):
            raise ValueError("the user and record id fields must differ from each other and from the attributes")
        self._domain = domain
        self._max_record_bytes = max_record_bytes
        self._max_key_bytes = max_key_bytes
        self._digest = Digester(digest_key)
        self._reader = ExactReader(domain, user, record_id)
        self._parsers: dict[Shape, ShapeParser] = {}
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="decode")

    def decode(self, batch: RecordBatch, latest_ts: int | None) -> Decoded:
        """`latest_ts` is the last timestamp allowed, from the public clock; None allows all (clock = "event")."""
        begins = self._begins(batch)
        if len(begins) <= 1:
            return self._decode(batch, latest_ts)
        return Decoded.concatenate(list(self._start(batch, latest_ts)), begins)

    def decode_ahead(
        self, batches: Iterable[RecordBatch], latest_ts: int | None
    ) -> Iterator[tuple[RecordBatch, Decoded]]:
        """Every batch with what it decodes to, in order; while the caller works on one, the next is decoded."""
        current: tuple[RecordBatch, Iterator[Decoded]] | None = None
        for batch in batches:
            following = batch, self._start(batch, latest_ts)
            if current is not None:
                yield current[0], Decoded.concatenate(list(current[1]), self._begins(current[0]))
            current = following
        if current is not None:
            yield current[0], Decoded.concatenate(list(current[1]), self._begins(current[0]))

    def _start(self, batch: RecordBatch, latest_ts: int | None) -> Iterator[Decoded]:
        """Have all slices of a batch decoded in the background."""
        begins = self._begins(batch)
        slices = [batch.slice(begin, begin + begins.step) for begin in begins]
        return self._pool.map(self._decode, slices, [latest_ts] * len(slices))

    def _begins(self, batch: RecordBatch) -> range:
        """Where the slices of a batch begin: at least one."""
        return range(0, max(len(batch), 1), self._slice_rows(len(batch)))

    def _slice_rows(self, rows: int) -> int:
        return min(max(-(-rows // self._threads), _MIN_SLICE_ROWS), _MAX_SLICE_ROWS)

    def _decode(self, batch: RecordBatch, latest_ts: int | None) -> Decoded:
        outcome = Outcome(len(batch))
        keys = batch.keys
        for mask, reason in ((self._skips.rows(batch), Reason.SKIPPED), (self._too_large(batch), Reason.TOO_LARGE)):
            if mask is not None and (turned_away := mask & outcome.unread).any():
                outcome.reject(np.flatnonzero(turned_away), reason)
                keys = keys.emptied(turned_away)
        # Size comes first: nothing that is too large is parsed, keys included.
        users = users_of_keys(keys) if self._user is None else None
        task = _Task(batch, latest_ts, users, outcome)
        self._nulls(task)
        pending = np.flatnonzero(_joinable(batch.values) & outcome.unread)
        tried: set[Shape] = set()
        while len(pending) and len(tried) < _MAX_SHAPES:
            shape = self._new_shape(batch.values, pending, tried)
            if shape is None:
                break
            tried.add(shape)
            refused = np.zeros(len(batch), np.bool_)
            refused[pending] = True
            for rows, table in self._parser(shape).parse(batch.values, pending):
                refused[rows] = False
                self._table(task, shape, rows, table)
            pending = np.flatnonzero(refused)
        self._one_by_one(task)
        return self._decoded(outcome)

    def _too_large(self, batch: RecordBatch) -> Bools:
        keys = batch.keys.lengths()
        too_large: Bools = (keys > self._max_key_bytes) | (keys + batch.values.lengths() > self._max_record_bytes)
        return too_large if batch.oversize is None else too_large | batch.oversize

    def _parser(self, shape: Shape) -> ShapeParser:
        if shape not in self._parsers:
            self._parsers[shape] = ShapeParser(self._domain, shape)
        return self._parsers[shape]

    def _new_shape(self, values: Blobs, pending: Integers, tried: Collection[Shape]) -> Shape | None:
        looked_at = np.unique(np.linspace(0, len(pending) - 1, _ROWS_LOOKED_AT).astype(np.int64))
        for row in pending[looked_at].tolist():
            shape = shape_of(values[row] or b"", self._identifiers)
            if shape is not None and shape not in tried:
                return shape
        return None

    def _nulls(self, task: _Task) -> None:
        """Settle the null values that need no more than key and timestamp."""
        batch, users = task.batch, task.users
        if batch.values.valid is None or users is None or self._record_id is not None:
            return
        good = task.outcome.unread & ~batch.values.valid & (users.lengths() > 0) & task.in_time(batch.timestamps)
        rows = np.flatnonzero(good)
        if len(rows):
            yes = np.ones(len(rows), np.bool_)
            codes = tuple(np.zeros(len(rows), dtype) for dtype in self._domain.dtypes)
            task.outcome.keep(Part(rows, batch.timestamps[rows], yes, users.take(rows), None, codes))

    def _table(self, task: _Task, shape: Shape, rows: Integers, table: pa.Table) -> None:
        """Settle the rows of a parsed table that are beyond doubt."""
        batch = task.batch
        everything = len(rows) == len(batch)
        fields = fields_of(table, shape.envelope, self._identifiers)
        ts = timestamps(fields.ts, batch.timestamps if everything else batch.timestamps[rows])
        sound = fields.sound & task.in_time(ts)
        if task.users is not None:
            user = task.users if everything else task.users.take(rows)
        else:
            assert self._user is not None
            user = texts(fields.record[self._user])
        sound &= user.lengths() > 0
        record = None
        if self._record_id is not None:
            record = texts(fields.record[self._record_id])
            if record.valid is not None:
                sound &= record.valid
        codes = []
        for attribute in self._domain.attributes:
            column, doubt = attribute_codes(attribute, fields.record[attribute.name], fields.upsert)
            sound &= ~doubt
            codes.append(column)
        part = Part(rows, ts, fields.delete, user, record, tuple(codes))
        task.outcome.settle(part.take(sound), self._domain)

    def _one_by_one(self, task: _Task) -> None:
        batch = task.batch
        rows: list[int] = []
        read: list[Row] = []
        rejected: list[int] = []
        reasons: list[Reason] = []
        for row in np.flatnonzero(task.outcome.unread).tolist():
            result = self._reader.read(batch.keys[row], batch.values[row], int(batch.timestamps[row]), task.latest_ts)
            if isinstance(result, Row):
                rows.append(row)
                read.append(result)
            else:
                rejected.append(row)
                reasons.append(result)
        if rejected:
            task.outcome.reject(np.array(rejected, np.int64), reasons)
        if rows:
            task.outcome.settle(part_of_rows(self._domain, rows, read), self._domain)

    def _decoded(self, outcome: Outcome) -> Decoded:
        parts = outcome.parts or [self._nothing()]
        digests = [self._digest(part.user) for part in parts]
        records = [self._digest(part.record) for part in parts if part.record is not None]
        order = _order([part.rows for part in parts])
        rejected = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in outcome.rejected)])
        reasons = np.concatenate([np.zeros(0, np.uint8), *(reasons for _, reasons in outcome.rejected)])
        rejected_order = np.argsort(rejected)
        return Decoded(
            rows=_merge([part.rows for part in parts], order),
            ts=_merge([part.ts for part in parts], order),
            delete=_merge([part.delete for part in parts], order),
            user=_merge(digests, order),
            record=None if self._record_id is None else _merge(records, order),
            codes=tuple(_merge([part.codes[place] for part in parts], order) for place in range(len(self._domain))),
            rejected_rows=rejected[rejected_order],
            rejected_reasons=reasons[rejected_order],
            dropped_rows=np.sort(np.concatenate([np.zeros(0, np.int64), *outcome.dropped])),
        )

    def _nothing(self) -> Part:
        none, never, no_text = np.zeros(0, np.int64), np.zeros(0, np.bool_), Blobs.from_list([])
        codes = tuple(np.zeros(0, dtype) for dtype in self._domain.dtypes)
        return Part(none, none, never, no_text, None if self._record_id is None else no_text, codes)


def _order(rows: list[Integers]) -> Integers | None:
    return None if len(rows) == 1 else np.argsort(np.concatenate(rows))


def _merge(columns: Sequence[NDArray[_Scalar]], order: Integers | None) -> NDArray[_Scalar]:
    return columns[0] if order is None else np.concatenate(columns)[order]


def _joinable(values: Blobs) -> Bools:
    """Which values can be joined with newlines and told apart again: see `shapes`."""
    if not values.nbytes:
        return np.zeros(len(values), np.bool_)
    content = np.frombuffer(values.data, np.uint8)
    lengths = values.lengths()
    joinable: Bools = (lengths >= 2) & (lengths <= _LONGEST_JOINED)
    joinable &= content.take(values.starts[:-1], mode="clip") == ord("{")
    joinable &= content.take(values.starts[1:] - 1, mode="clip") == ord("}")
    own = np.frombuffer(values.content(), np.uint8)
    if own.min() < ord(" "):
        breaks = np.flatnonzero((own == 0) | (own == ord("\n")) | (own == ord("\r"))) + values.starts[0]
        joinable[np.searchsorted(values.starts, breaks, side="right") - 1] = False
    if own.max() >= 0x80:
        joinable &= _utf8(values)
    return joinable


def _utf8(values: Blobs) -> Bools:
    """Which values are UTF-8: all, if Arrow says so of the column; else each that is not ASCII is asked itself."""
    column = values.to_arrow()
    try:
        column.cast(pa.large_string())
    except pa.ArrowInvalid:
        pass
    else:
        return np.ones(len(values), np.bool_)
    good = np.ones(len(values), np.bool_)
    content = np.frombuffer(values.content(), np.uint8)
    high = np.flatnonzero(content >= 0x80) + values.starts[0]
    for row in np.unique(np.searchsorted(values.starts, high, side="right") - 1).tolist():
        try:
            (values[row] or b"").decode("utf-8")
        except UnicodeDecodeError:
            good[row] = False
    return good
