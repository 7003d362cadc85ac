"""Users who hold several records, told apart by a record id, within a public bound.

A message about a key (user, record id) replaces an older one. Of a user's keys the `keys_per_user` with the greatest
stamps are remembered, tombstones and records beyond the bound included; of those that are not deleted the
`records_per_user` newest are counted. Both rules keep the greatest elements of a set in which an element only ever
grows, so what is kept is a function of the set of the user's messages, however they arrive and are cut into batches,
and no other user has any part in it.

A user's rows are linked. A batch gathers the rows of the users it names, merges them with its messages, and writes
them back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamdp.arrays import Bools, Integers
from streamdp.population.batch import Batch, Change, Positions, by_digest
from streamdp.population.index import REMOVED, Rows, SlotIndex, Words
from streamdp.population.table import COUNTED, DELETED, NO_ROW, USED, Table, meta_words, partitions_of

# With fewer, ids that share them would be common.
MIN_RECORD_BITS = 16


@dataclass(frozen=True, repr=False)
class _Owners:
    """The users at hand: their digests, whether the index knows them, and their first rows."""

    digests: Words
    found: Bools
    head: Rows


@dataclass(frozen=True, repr=False)
class _Entries:
    """What users hold or send. Messages come first, `stored` rows after them.

    `place` is a position in the batch, or a row. Of a message and its own earlier delivery the later entry, the stored
    one, stays.
    """

    owner: Integers
    record: Words
    ts: Integers
    partition: Integers
    offset: Integers
    deleted: Bools
    counted: Bools
    place: Integers
    messages: int

    def newest(self) -> tuple[Positions, Integers]:
        """The newest entry of each key, by owner; and how many messages each key has here."""
        order, same = self._by_key()
        last = np.flatnonzero(~np.append(same, False))
        messages = np.diff(np.cumsum(order < self.messages)[last], prepend=0)
        return order[last], messages

    def by_stamp(self, chosen: Positions) -> Positions:
        """The chosen entries by owner and stamp."""
        owner, ts = self.owner.take(chosen), self.ts.take(chosen)
        order = chosen.take(_sorted_within(owner, np.argsort(ts), None))
        owner = self.owner.take(order)
        self._settle_ties(order, owner[1:] == owner[:-1])
        return order

    def _by_key(self) -> tuple[Positions, Bools]:
        """Positions by owner, record id and stamp, and whether neighbours in that order have the same key."""
        record_bits = _record_bits(self.owner)
        if record_bits >= MIN_RECORD_BITS:
            order = _sorted_within(self.owner, np.argsort(self.ts), self.record)
            owner, record = self.owner.take(order), self.record.take(order)
            same_owner, other_record = owner[1:] == owner[:-1], record[1:] != record[:-1]
            record >>= np.uint64(64 - record_bits)
            # Should two ids of one user agree in the bits the sort saw, their entries may be mixed.
            if not (same_owner & other_record & (record[1:] == record[:-1])).any():
                same = same_owner & ~other_record
                self._settle_ties(order, same)
                return order, same
        order = np.lexsort((self.offset, self.partition, self.ts, self.record, self.owner))
        owner, record = self.owner.take(order), self.record.take(order)
        return order, (owner[1:] == owner[:-1]) & (record[1:] == record[:-1])

    def _settle_ties(self, order: Positions, same: Bools) -> None:
        """Put entries of equal ts, side by side in `order` where `same` holds, in the order of partition and offset."""
        ts = self.ts.take(order)
        tied = same & (ts[1:] == ts[:-1])
        if tied.any():
            run = np.append(False, tied) | np.append(tied, False)
            number = np.cumsum(~np.append(False, tied))[run]
            lanes = order[run]
            # Ascending positions first, because equal stamps must stay in order of position.
            lanes = lanes[np.lexsort((lanes, self.offset[lanes], self.partition[lanes], number))]
            order[run] = lanes


class ManyRecords:
    """Keeps the newest keys of every user; see the module's text for the rule."""

    def __init__(self, table: Table, index: SlotIndex, records_per_user: int, keys_per_user: int) -> None:
        self._table = table
        self._index = index
        self._records_per_user = records_per_user
        self._keys_per_user = keys_per_user

    def apply(self, batch: Batch) -> Change:
        order, first = by_digest(batch.user)
        owner = np.empty(len(order), np.int64)
        owner[order] = np.cumsum(first) - 1
        owners = self._owners(batch.user.take(order[first], axis=0))
        entries = self._entries(owners, owner, batch)
        newest, messages = entries.newest()
        stale = int(messages[newest >= entries.messages].sum())
        return self._settle(owners, entries, newest, batch, stale)

    def forget(self, rows: Rows) -> Change:
        digests = self._table.core[rows, :2]
        order, first = by_digest(digests)
        owners = self._owners(digests.take(order[first], axis=0))
        entries = self._entries(owners, np.zeros(0, np.int64), None)
        due = np.zeros(self._table.rows, np.bool_)
        due[rows] = True
        return self._settle(owners, entries, np.flatnonzero(~due[entries.place]), None, stale=0)

    def _owners(self, digests: Words) -> _Owners:
        found, head, _ = self._index.find(digests[:, 0], digests[:, 1], self._table.core)
        return _Owners(digests, found, head)

    def _entries(self, owners: _Owners, sender: Integers, batch: Batch | None) -> _Entries:
        """The messages of a batch, if any, and every row of the owners."""
        table = self._table
        assert table.record is not None
        owner, row = self._linked(owners)
        core = table.core.take(row, axis=0).view(np.int64)
        meta = core[:, 3]
        count = len(sender)
        none = np.zeros(0, np.int64)
        return _Entries(
            owner=np.concatenate([sender, owner]),
            record=np.concatenate(
                [
                    batch.record[:, 0] if batch and batch.record is not None else none.view(np.uint64),
                    table.record.take(row),
                ]
            ),
            ts=np.concatenate([batch.ts if batch else none, core[:, 2]]),
            partition=np.concatenate([np.full(count, batch.partition if batch else 0), partitions_of(meta)]),
            offset=np.concatenate([batch.offsets if batch else none, table.offset.take(row)]),
            deleted=np.concatenate([batch.delete if batch else none.astype(np.bool_), (meta & DELETED) != 0]),
            counted=np.concatenate([np.zeros(count, np.bool_), (meta & COUNTED) != 0]),
            place=np.concatenate([np.arange(count), row]),
            messages=count,
        )

    def _linked(self, owners: _Owners) -> tuple[Integers, Integers]:
        """Owner and row of all that is stored, by following the links of all owners one step at a time."""
        assert self._table.link is not None
        owner = np.flatnonzero(owners.found)
        row = owners.head[owner]
        owned, rows = [owner], [row]
        while len(row):
            row = self._table.link.take(row)
            on = np.flatnonzero(row != NO_ROW)
            owner, row = owner.take(on), row.take(on)
            owned.append(owner)
            rows.append(row)
        return np.concatenate(owned), np.concatenate(rows).astype(np.int64)

    def _settle(self, owners: _Owners, entries: _Entries, newest: Positions, batch: Batch | None, stale: int) -> Change:
        """Apply both bounds to the newest entry of every key, and write back what differs."""
        table, count = self._table, entries.messages
        kept = entries.by_stamp(newest)[::-1]
        kept = kept[_running_sum(entries.owner.take(kept), np.ones(len(kept), np.int64)) <= self._keys_per_user]
        owner, alive = entries.owner.take(kept), ~entries.deleted.take(kept)
        alive &= _running_sum(owner, alive.astype(np.int64)) <= self._records_per_user
        stays = np.zeros(len(entries.owner), np.bool_)
        stays[kept] = True
        counts = np.zeros(len(entries.owner), np.bool_)
        counts[kept[alive]] = True

        rows = entries.place[count:]
        counted, counts_now = entries.counted[count:], counts[count:]
        left = table.codes.take(rows[counted & ~counts_now], axis=0)
        returned = rows[counts_now & ~counted]
        came = table.codes.take(returned, axis=0)
        table.core[rows[counted != counts_now], 3] ^= np.uint64(COUNTED)
        table.release(rows[~stays[count:]].astype(np.uint32))
        row_of = entries.place.astype(np.uint32)
        if batch is not None:
            sent = np.flatnonzero(stays[:count])
            row_of[sent] = table.allocate(len(sent))
            packed = self._write_messages(batch, sent, row_of[sent], counts[sent])
            came = np.concatenate([came, packed[counts[sent]]])
        self._link(owners, owner, row_of.take(kept))
        return Change(left, came, stale)

    def _write_messages(self, batch: Batch, sent: Positions, rows: Rows, counts: Bools) -> Words:
        table = self._table
        assert table.record is not None and batch.record is not None
        deleted = batch.delete.take(sent)
        flags = USED | np.where(deleted, DELETED, 0) | np.where(counts, COUNTED, 0)
        core = np.empty((len(sent), 4), np.uint64)
        core[:, :2] = batch.user.take(sent, axis=0)
        core[:, 2] = batch.ts.take(sent).view(np.uint64)
        core[:, 3] = meta_words(batch.time_point, batch.partition, flags).view(np.uint64)
        packed = table.pack(batch.codes, sent)
        packed[deleted] = 0
        table.write(rows, core, batch.offsets.take(sent), packed)
        table.record[rows] = batch.record[:, 0].take(sent)
        return packed

    def _link(self, owners: _Owners, owner: Integers, rows: Rows) -> None:
        """Chain the rows of each owner, which stand side by side, and let the index know the first."""
        table, index = self._table, self._index
        assert table.link is not None
        first = np.ones(len(rows), np.bool_)
        first[1:] = owner[1:] != owner[:-1]
        following = np.append(rows[1:], NO_ROW)
        following[np.append(first[1:], True)] = NO_ROW
        table.link[rows] = following

        head = np.full(len(owners.found), REMOVED)
        head[owner[first]] = rows[first]
        come = np.flatnonzero(~owners.found & (head != REMOVED))
        if index.has_room(len(come)):
            moved = np.flatnonzero(owners.found & (head != owners.head))
            index.move(owners.digests[moved, 0], owners.head[moved], head[moved])
            index.insert(owners.digests[come, 0], head[come])
        else:
            index.rebuild(index.keys + len(come), table.first_rows())


def _bits_for(values: int) -> int:
    return max(1, (values - 1).bit_length())


def _record_bits(owner: Integers) -> int:
    """How many leading bits of a record id fit a sort word beside its owner and its rank."""
    return 64 - _bits_for(int(owner.max()) + 1) - _bits_for(len(owner))


def _sorted_within(owner: Integers, by_ts: Positions, record: Words | None) -> Positions:
    """Positions by owner, by the leading bits of the record id if given, and by rank in `by_ts`.

    Sorting words that carry all three is many times faster than sorting positions by several columns.
    """
    if not len(owner):
        return by_ts
    rank_bits = _bits_for(len(owner))
    words = owner.take(by_ts).view(np.uint64) << np.uint64(64 - _bits_for(int(owner.max()) + 1))
    if record is not None:
        words |= (record.take(by_ts) >> np.uint64(64 - _record_bits(owner))) << np.uint64(rank_bits)
    words |= np.arange(len(owner), dtype=np.uint64)
    words.sort()
    words &= (np.uint64(1) << np.uint64(rank_bits)) - np.uint64(1)
    return by_ts.take(words.view(np.intp))


def _running_sum(owner: Integers, weight: Integers) -> Integers:
    """The running sum of `weight` within each run of equal owners."""
    total = np.cumsum(weight)
    first = np.ones(len(owner), np.bool_)
    first[1:] = owner[1:] != owner[:-1]
    starts = np.flatnonzero(first)
    before = total[starts] - weight[starts]
    return total - before.repeat(np.diff(starts, append=len(owner)))
