"""An open-addressing hash index from 128-bit digests to row numbers, probed a batch at a time.

Slots hold row numbers only; the digests they stand for are read from the table, so the index can be dropped and built
again from the rows. That is how it grows: the old slots are released before the new ones are allocated, and the
transient peak is never above the new size.

Digests are keyed (nobody can choose them to collide), so their leading bits are the hash. The home slot is monotone
in the digest: a batch sorted by digest walks the slots in order, which is kinder to caches than any other order.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

EMPTY = np.uint32(0xFFFFFFFF)
REMOVED = np.uint32(0xFFFFFFFE)
MAX_ROWS = int(REMOVED)

# Between 1/3 (just built) and 1/2 (about to be built again) of the slots are in use: 8 to 12 bytes a key, and a probe
# for a key that is there looks at 1.25 to 1.5 slots on average.
SLOTS_PER_KEY = 3
MIN_SLOTS = 16

Rows = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]


class SlotIndex:
    """Row numbers by digest. `core` is the table's [rows, 4] array whose first two words are the digest."""

    def __init__(self) -> None:
        self.slots: Rows = np.full(MIN_SLOTS, EMPTY, np.uint32)
        self.keys = 0
        self._used = 0

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes

    def _home(self, low: Words) -> npt.NDArray[np.int64]:
        home = (low >> np.uint64(32)) * np.uint64(len(self.slots))
        home >>= np.uint64(32)
        return home.view(np.int64)

    def _next(self, slot: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        slot = slot + 1
        slot[slot == len(self.slots)] = 0
        return slot

    def find(self, low: Words, high: Words, core: Words) -> tuple[npt.NDArray[np.bool_], Rows, Words]:
        """Whether each digest is there, its slot's row, and that row of `core` (both meaningless where it is not)."""
        slot = self._home(low)
        row = self.slots.take(slot)
        held = core.take(row, axis=0, mode="clip")
        found = held[:, 0] == low
        found &= held[:, 1] == high
        found &= row < REMOVED
        lane = np.flatnonzero(~(found | (row == EMPTY)))
        slot = slot[lane]
        while len(lane):
            slot = self._next(slot)
            row_here = self.slots.take(slot)
            held_here = core.take(row_here, axis=0, mode="clip")
            here = held_here[:, 0] == low[lane]
            here &= held_here[:, 1] == high[lane]
            here &= row_here < REMOVED
            hit = lane[here]
            found[hit] = True
            row[hit] = row_here[here]
            held[hit] = held_here[here]
            on = np.flatnonzero(~(here | (row_here == EMPTY)))
            lane = lane[on]
            slot = slot[on]
        return found, row, held

    def _slots_of(self, low: Words, rows: Rows) -> npt.NDArray[np.int64]:
        """The slots that hold exactly these rows, which must be there."""
        slot = self._home(low)
        lane = np.flatnonzero(self.slots.take(slot) != rows)
        while len(lane):
            slot[lane] = self._next(slot[lane])
            lane = lane[self.slots.take(slot[lane]) != rows[lane]]
        return slot

    def insert(self, low: Words, rows: Rows) -> None:
        """Add keys that are distinct and not there. `has_room` must hold for them."""
        self.keys += len(rows)
        slot = self._home(low)
        while len(rows):
            held = self.slots.take(slot)
            free = np.flatnonzero(held >= REMOVED)
            # Several lanes may claim a slot: the last write stays, and reading it back tells each whether it won.
            self.slots[slot[free]] = rows[free]
            won = self.slots.take(slot[free]) == rows[free]
            self._used += int(np.count_nonzero(won & (held[free] == EMPTY)))
            left = np.ones(len(rows), np.bool_)
            left[free[won]] = False
            slot = self._next(slot[left])
            rows = rows[left]

    def move(self, low: Words, rows: Rows, to: Rows) -> None:
        """Let the keys at `rows` stand at the rows `to` instead; those whose new row is `REMOVED` are forgotten."""
        self.slots[self._slots_of(low, rows)] = to
        self.keys -= int(np.count_nonzero(to == REMOVED))

    def has_room(self, more: int) -> bool:
        return 2 * (self._used + more) <= len(self.slots)

    def rebuild(self, keys: int, chunks: Iterable[tuple[Words, Rows]]) -> None:
        """Start again with room for `keys` and insert what `chunks` yields."""
        self.slots = self.slots[:0].copy()
        self.slots = np.full(max(MIN_SLOTS, SLOTS_PER_KEY * keys), EMPTY, np.uint32)
        self.keys = self._used = 0
        for low, rows in chunks:
            order = np.argsort(low)
            self.insert(low[order], rows[order])
