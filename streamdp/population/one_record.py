"""Users who hold one record each: the newest message of a user is what the user holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamdp.population.batch import Batch, Change, newest_of_each
from streamdp.population.index import REMOVED, Rows, SlotIndex
from streamdp.population.table import COUNTED, DELETED, USED, Table, meta_words, partitions_of


class OneRecord:
    """Keeps, per user, the message with the greatest stamp (ts, topic-partition, offset)."""

    def __init__(self, table: Table, index: SlotIndex) -> None:
        self._table = table
        self._index = index

    def apply(self, batch: Batch) -> Change:
        table, index = self._table, self._index
        chosen, sizes = newest_of_each(batch.user, batch.ts)
        low, high, ts = batch.user[:, 0].take(chosen), batch.user[:, 1].take(chosen), batch.ts.take(chosen)
        found, row, held = index.find(low, high, table.core)
        held_ts = held[:, 2].view(np.int64)
        newer = ts > held_ts
        newer |= ~found
        tied = np.flatnonzero((ts == held_ts) & found)
        if len(tied):
            newer[tied] = self._wins_tie(batch, chosen[tied], row[tied])
        stale = 0
        if not newer.all():
            stale = int(sizes.sum() - sizes[newer].sum())
            chosen, low, high, ts = chosen[newer], low[newer], high[newer], ts[newer]
            found, row, held = found[newer], row[newer], held[newer]

        left = table.codes.take(row[found & ((held[:, 3] & np.uint64(COUNTED)) != 0)], axis=0)
        gone = batch.delete.take(chosen)
        packed = table.pack(batch.codes, chosen)
        packed[gone] = 0
        fresh = np.flatnonzero(~found)
        if len(fresh):
            row[fresh] = table.allocate(len(fresh))
        held[:, 0] = low
        held[:, 1] = high
        held[:, 2] = ts.view(np.uint64)
        flags = np.where(gone, USED | DELETED, USED | COUNTED)
        held[:, 3] = meta_words(batch.time_point, batch.partition, flags).view(np.uint64)
        table.write(row, held, batch.offsets.take(chosen), packed)
        if index.has_room(len(fresh)):
            index.insert(low[fresh], row[fresh])
        else:
            index.rebuild(table.used, table.first_rows())
        return Change(left, packed[~gone] if gone.any() else packed, stale)

    def _wins_tie(self, batch: Batch, chosen: npt.NDArray[np.intp], row: Rows) -> npt.NDArray[np.bool_]:
        """Whether messages come after what is held at the same ts."""
        partition = partitions_of(self._table.core[row, 3].view(np.int64))
        later = batch.offsets.take(chosen) > self._table.offset[row]
        wins: npt.NDArray[np.bool_] = (partition < batch.partition) | ((partition == batch.partition) & later)
        return wins

    def forget(self, rows: Rows) -> Change:
        table = self._table
        core = table.core.take(rows, axis=0)
        left = table.codes.take(rows[(core[:, 3] & np.uint64(COUNTED)) != 0], axis=0)
        self._index.move(core[:, 0], rows, np.full(len(rows), REMOVED))
        table.release(rows)
        return Change(left, left[:0])
