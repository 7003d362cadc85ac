"""The current dataset: who holds what right now, and the counts that moved.

What a user holds is a function of that user's own messages and of the public clock, never of another user's messages,
of batch boundaries, or of the order in which partitions were read:

- Messages about a key (user, or user and record id) are ordered by their stamp (ts, topic-partition, offset); the
  greatest wins. Delivering a message again changes nothing.
- A delete leaves a tombstone with its stamp, so that older messages stay refused for `tombstone_points` points.
- `expire_after = L`: a key, tombstone included, is gone from the snapshot L points after the point in which its last
  message was accepted, so all of a user's state is gone at the latest L points after the user's last message.
- With record ids the newest `records_per_user` of a user's records are counted (`many_records`).

So a snapshot moves by at most `records_per_user` in L1 when one user's messages come or go: the sensitivity
everywhere else in this package rests on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.domain import Domain, View
from streamdp.population.batch import Batch, Change
from streamdp.population.counts import Counts
from streamdp.population.index import SlotIndex, Words
from streamdp.population.many_records import ManyRecords
from streamdp.population.moved import Moved
from streamdp.population.one_record import OneRecord
from streamdp.population.table import COUNTED, Table

MAX_PARTITIONS = 1 << 16
MAX_POINTS = 1 << 31
# Room for tombstones and for records that wait beyond the bound.
EXTRA_KEYS = 32


class Population:
    """Users and their newest encoded records, with counts for every view. Everything it holds is private.

    `record_ids` says whether messages carry record ids (by default when `records_per_user` is above 1).
    `keys_per_user` is how many of a user's keys are remembered then, deleted ones included (default `records_per_user
    + 32`).
    """

    def __init__(
        self,
        domain: Domain,
        views: Sequence[View],
        *,
        records_per_user: int = 1,
        record_ids: bool | None = None,
        keys_per_user: int | None = None,
        expire_after: int | None = None,
        tombstone_points: int = 1,
    ) -> None:
        if record_ids is None:
            record_ids = records_per_user > 1
        if keys_per_user is None:
            keys_per_user = records_per_user + EXTRA_KEYS
        if records_per_user < 1 or keys_per_user < records_per_user:
            raise ValueError("records_per_user must be at least 1 and keys_per_user at least as many")
        if records_per_user > 1 and not record_ids:
            raise ValueError("without record ids a user holds one record")
        if tombstone_points < 1 or (expire_after is not None and expire_after < 1):
            raise ValueError("expire_after and tombstone_points must be at least one time point")
        if any(view.domain != domain for view in views):
            raise ValueError("every histogram must be a view of the population's own domain")
        self.domain = domain
        self.records_per_user = records_per_user
        self.record_ids = record_ids
        self.keys_per_user = keys_per_user if record_ids else 1
        self.expire_after = expire_after
        self.tombstone_points = tombstone_points
        self.closed_point: int | None = None
        self.open_point_began = False
        self._table = Table(domain.dtypes, record_ids)
        self._index = SlotIndex()
        self._rows: OneRecord | ManyRecords = (
            ManyRecords(self._table, self._index, records_per_user, keys_per_user)
            if record_ids
            else OneRecord(self._table, self._index)
        )
        self._counts = Counts(views)

    def apply(
        self,
        user: npt.NDArray[np.uint64],
        record: npt.NDArray[np.uint64] | None,
        ts: npt.NDArray[np.int64],
        delete: npt.NDArray[np.bool_],
        codes: Sequence[npt.NDArray[Any]],
        *,
        partition: int,
        offsets: npt.NDArray[np.int64],
        time_point: int,
    ) -> Moved:
        """Take a batch of messages of one topic-partition into the open point `time_point`.

        `user` and `record` are 128-bit digests as uint64[n, 2]; `codes` has one column for each attribute of the
        domain, ignored where `delete` is set; `partition` numbers the stream's topic-partitions, the same way for
        ever.
        """
        if (record is not None) != self.record_ids:
            raise ValueError("record ids must be given exactly when the population was told to expect them")
        if not 0 <= partition < MAX_PARTITIONS or not 0 <= time_point < MAX_POINTS:
            raise ValueError("the partition or the time point is out of range")
        if self.closed_point is not None and time_point <= self.closed_point:
            raise ValueError("a closed time point never changes")
        if (offsets[1:] <= offsets[:-1]).any():
            raise ValueError("offsets must ascend within a batch")
        if not len(ts):
            return self._moved(self._nothing())
        self.open_point_began = True
        return self._moved(self._rows.apply(Batch(user, record, ts, delete, codes, partition, offsets, time_point)))

    def close(self, time_point: int) -> Moved:
        """Close the point: drop what expires and tombstones whose time is over. The snapshot is what is left."""
        if self.closed_point is not None and time_point <= self.closed_point:
            raise ValueError("time points close in order, each once")
        self.closed_point = time_point
        self.open_point_began = False
        last_record = None if self.expire_after is None else time_point - self.expire_after
        due = self._table.due(last_record, time_point - self.tombstone_points)
        return self._moved(self._rows.forget(due) if len(due) else self._nothing())

    def _nothing(self) -> Change:
        nothing = self._table.codes[:0]
        return Change(nothing, nothing)

    def _moved(self, change: Change) -> Moved:
        table = self._table
        return Moved(self._counts.move(table.unpack(change.left), table.unpack(change.came)), change.stale)

    def counts(self, histogram: str) -> npt.NDArray[np.int64]:
        """A copy of the exact counts as they stand. Private."""
        return self._counts.of(histogram)

    @property
    def users(self) -> int:
        """Users with any state, tombstones included. Private: for the operator's own metrics only."""
        return self._index.keys

    @property
    def nbytes(self) -> int:
        """Memory of the table and its index, attribute columns included. Private, as it follows the number of users."""
        return self._table.nbytes + self._index.nbytes

    @property
    def attribute_bytes(self) -> int:
        """Bytes of one user's attributes, in the smallest types the domain allows."""
        return sum(dtype.itemsize for dtype in self.domain.dtypes)

    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """The stored columns, for checkpoints. Views: use them before the next batch."""
        return self._table.columns()

    def restore(
        self, columns: Mapping[str, npt.NDArray[Any]], closed_point: int | None, *, open_point_began: bool
    ) -> None:
        """Take over the columns of a checkpoint: the index and the counts follow from them."""
        table = self._table
        table.restore(columns)
        self.closed_point = closed_point
        self.open_point_began = open_point_began
        self._index.rebuild(table.used, table.first_rows())
        nothing = table.unpack(table.codes[:0])
        for _, codes in self.counted_chunks():
            self._counts.move(nothing, codes)

    def counted_chunks(self) -> Iterator[tuple[Words, list[npt.NDArray[Any]]]]:
        """Users' digests and columns of codes of the records that are counted, a chunk of rows at a time."""
        table = self._table
        for rows in table.chunks():
            here = np.flatnonzero(table.flagged(rows, COUNTED)) + rows.start
            yield table.core[here, :2], table.unpack(table.codes.take(here, axis=0))
