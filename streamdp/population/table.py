"""Row storage: what each key holds, in a few wide columns.

A row is touched at random, so everything a decision needs sits in one 32-byte line of `core`:

    word 0, 1   the user's digest
    word 2      ts of the newest message (milliseconds, int64)
    word 3      time point in which it was accepted << 32 | topic-partition << 8 | flags

`offset` is read on equal timestamps only. The attribute codes of a row are packed side by side, in the domain's
smallest unsigned types, into whole 8-byte words. With record ids there are two columns more: `record` (64 bits of the
record's digest: ids only have to differ within one user) and `link` (the user's next row; the index knows the first).

40 bytes a row, 52 with record ids. Columns grow by `realloc`, a 1/32 at a time: the kernel moves pages, nothing is
copied. Freed rows are wiped and used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.errors import StreamdpError
from streamdp.population.index import MAX_ROWS, Rows, Words

USED = 1
DELETED = 2  # a tombstone
COUNTED = 4  # in the histograms and in snapshots

NO_ROW = np.uint32(0xFFFFFFFF)
CHUNK = 1 << 18

Codes = Sequence[npt.NDArray[np.generic]]


def meta_words(
    time_point: int | npt.NDArray[np.int64], partition: int | npt.NDArray[np.int64], flags: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    return (np.int64(time_point) << 32) | (np.int64(partition) << 8) | flags


def points_of(meta: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return meta >> 32


def partitions_of(meta: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (meta >> 8) & 0xFFFF


class Table:
    """Rows of keys. Knows nothing of stamps, bounds or histograms."""

    def __init__(self, dtypes: Sequence[np.dtype[np.unsignedinteger]], record_ids: bool) -> None:
        widest_first = sorted(range(len(dtypes)), key=lambda i: -dtypes[i].itemsize)
        offsets = [0] * len(dtypes)
        size = 0
        for i in widest_first:
            offsets[i] = size
            size += dtypes[i].itemsize
        words = max(1, -(-size // 8))
        self._fields = [f"a{i}" for i in range(len(dtypes))]
        self._layout = np.dtype(
            {"names": self._fields, "formats": list(dtypes), "offsets": offsets, "itemsize": 8 * words}
        )
        self.rows = 0
        self.core: Words = np.zeros((0, 4), np.uint64)
        self.offset: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.codes: Words = np.zeros((0, words), np.uint64)
        self.record: Words | None = np.zeros(0, np.uint64) if record_ids else None
        self.link: Rows | None = np.zeros(0, np.uint32) if record_ids else None
        self._free: Rows = np.zeros(0, np.uint32)
        self._free_rows = 0
        self.used = 0
        self._grow(1)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Every column by name, as far as rows were ever used."""
        found: dict[str, npt.NDArray[Any]] = {
            "core": self.core[: self.rows],
            "offset": self.offset[: self.rows],
            "codes": self.codes[: self.rows],
        }
        if self.record is not None and self.link is not None:
            found |= {"record": self.record[: self.rows], "link": self.link[: self.rows]}
        return found

    def restore(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take what `columns()` gave. Free rows are found by their flag."""
        self.rows = len(columns["offset"])
        for name, column in columns.items():
            if column.shape[1:] != getattr(self, name).shape[1:] or column.dtype != getattr(self, name).dtype:
                raise ValueError(f"column {name} has another layout")
            setattr(self, name, column)
        self._free = np.flatnonzero(~self.flagged(slice(0, self.rows), USED)).astype(np.uint32)
        self._free_rows = len(self._free)
        self.used = self.rows - self._free_rows
        if not self.rows:
            self._grow(1)

    @property
    def nbytes(self) -> int:
        extra = 0 if self.record is None or self.link is None else self.record.nbytes + self.link.nbytes
        return self.core.nbytes + self.offset.nbytes + self.codes.nbytes + self._free.nbytes + extra

    def flagged(self, rows: slice | npt.NDArray[np.integer[Any]], flag: int) -> npt.NDArray[np.bool_]:
        flags: npt.NDArray[np.bool_] = (self.core[rows, 3] & np.uint64(flag)) != 0
        return flags

    def meta(self, rows: slice) -> npt.NDArray[np.int64]:
        return self.core[rows, 3].view(np.int64)

    def due(self, point_of_records: int | None, point_of_tombstones: int) -> Rows:
        """Rows whose last message was accepted in or before the given points, for tombstones the later of the two."""
        if point_of_tombstones < 0 and (point_of_records is None or point_of_records < 0):
            return np.zeros(0, np.uint32)  # no point is that early, so there is no need to look at every row
        found = []
        for rows in self.chunks():
            meta = self.meta(rows)
            points = points_of(meta)
            due = ((meta & DELETED) != 0) & (points <= point_of_tombstones)
            if point_of_records is not None:
                due |= ((meta & USED) != 0) & (points <= point_of_records)
            found.append((np.flatnonzero(due) + rows.start).astype(np.uint32))
        return np.concatenate(found) if found else np.zeros(0, np.uint32)

    def first_rows(self) -> Iterator[tuple[Words, Rows]]:
        """The digest's first word and the row of every key the index should know, a chunk at a time."""
        linked: npt.NDArray[np.bool_] | None = None
        if self.link is not None:
            linked = np.zeros(self.rows, np.bool_)
            for rows in self.chunks():
                to = self.link[rows][self.flagged(rows, USED)]
                linked[to[to != NO_ROW]] = True
        for rows in self.chunks():
            wanted = self.flagged(rows, USED)
            if linked is not None:
                wanted &= ~linked[rows]
            here = np.flatnonzero(wanted) + rows.start
            yield self.core[here, 0], here.astype(np.uint32)

    def chunks(self) -> Iterator[slice]:
        for start in range(0, self.rows, CHUNK):
            yield slice(start, min(start + CHUNK, self.rows))

    def pack(self, codes: Codes, chosen: npt.NDArray[np.intp]) -> Words:
        packed = np.zeros((len(chosen), self.codes.shape[1]), np.uint64)
        fields = packed.view(self._layout)[:, 0]
        for name, column in zip(self._fields, codes, strict=True):
            fields[name] = column.take(chosen)
        return packed

    def unpack(self, packed: Words) -> list[npt.NDArray[np.unsignedinteger]]:
        """One (strided) column for each attribute, in the domain's order."""
        fields = packed.view(self._layout)[:, 0]
        return [fields[name] for name in self._fields]

    def allocate(self, count: int) -> Rows:
        recycled = min(count, self._free_rows)
        rows = np.empty(count, np.uint32)
        rows[:recycled] = self._free[self._free_rows - recycled : self._free_rows]
        self._free_rows -= recycled
        fresh = count - recycled
        if self.rows + fresh > len(self.offset):
            self._grow(self.rows + fresh)
        rows[recycled:] = np.arange(self.rows, self.rows + fresh)
        self.rows += fresh
        self.used += count
        return rows

    def _grow(self, rows: int) -> None:
        capacity = max(1024, rows + rows // 32)
        if capacity >= MAX_ROWS:
            raise StreamdpError("the population table is full; split the input over several streams")
        # Without the reference check no other array may look at these columns now; none is ever kept.
        self.core.resize((capacity, 4), refcheck=False)
        self.offset.resize(capacity, refcheck=False)
        self.codes.resize((capacity, self.codes.shape[1]), refcheck=False)
        if self.record is not None and self.link is not None:
            self.record.resize(capacity, refcheck=False)
            self.link.resize(capacity, refcheck=False)

    def release(self, rows: Rows) -> None:
        """Wipe rows (what is deleted must not linger in memory or checkpoints) and keep them for use again."""
        self.core[rows] = 0
        self.offset[rows] = 0
        self.codes[rows] = 0
        if self.record is not None and self.link is not None:
            self.record[rows] = 0
            self.link[rows] = 0
        end = self._free_rows + len(rows)
        if end > len(self._free):
            self._free = np.concatenate([self._free[: self._free_rows], rows])
        else:
            self._free[self._free_rows : end] = rows
        self._free_rows = end
        self.used -= len(rows)

    def write(self, rows: Rows, core: Words, offset: npt.NDArray[np.int64], packed: Words) -> None:
        places = rows.astype(np.intp)
        # One 32-byte item a row is twice as fast to scatter as four words.
        self.core.view("V32")[:, 0][places] = core.view("V32")[:, 0]
        self.offset[places] = offset
        for word in range(packed.shape[1]):
            self.codes[:, word][places] = packed[:, word]
