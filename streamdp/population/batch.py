"""One batch of messages from one topic-partition, and how its rows are grouped by key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamdp.population.index import Words
from streamdp.population.table import Codes

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, repr=False)
class Batch:
    """Columns of decoded messages. `offsets` ascend strictly."""

    user: Words
    record: Words | None
    ts: npt.NDArray[np.int64]
    delete: npt.NDArray[np.bool_]
    codes: Codes
    partition: int
    offsets: npt.NDArray[np.int64]
    time_point: int


@dataclass(frozen=True, repr=False)
class Change:
    """Packed codes of the records that left the counts and of those that came; `stale` as in `Moved`."""

    left: Words
    came: Words
    stale: int = 0


def by_digest(digests: Words) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Positions sorted by digest (equal ones in order of position), and where in that order a new digest begins.

    Sorting one word that carries the digest's leading bits and the position is several times faster than sorting
    positions by digest. Two digests that differ only in what the word cannot carry are noticed, and sorted in full.
    """
    count = len(digests)
    bits = np.uint64(max(1, (count - 1).bit_length()))
    mask = (np.uint64(1) << bits) - np.uint64(1)
    words = digests[:, 0] & ~mask
    words |= np.arange(count, dtype=np.uint64)
    words.sort()
    order = (words & mask).view(np.intp)
    words >>= bits
    first = np.ones(count, np.bool_)
    np.not_equal(words[1:], words[:-1], out=first[1:])
    again = np.flatnonzero(~first)
    if (digests.take(order[again], axis=0) != digests.take(order[again - 1], axis=0)).any():
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        ordered = digests.take(order, axis=0)
        first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, first


def newest_of_each(digests: Words, ts: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.intp]]:
    """For every distinct digest the position with the greatest ts, the last of equal ones; and how often it occurs."""
    order, first = by_digest(digests)
    count = len(order)
    starts = np.flatnonzero(first)
    sizes = np.diff(starts, append=count)
    if len(starts) == count:
        return order, sizes
    ordered = ts.take(order)
    back = ordered[1:] < ordered[:-1]
    back &= ~first[1:]
    if not back.any():
        return order.take(starts + sizes - 1), sizes
    greatest = np.maximum.reduceat(ordered, starts).repeat(sizes)
    place = np.where(ordered == greatest, np.arange(count), -1)
    return order.take(np.maximum.reduceat(place, starts)), sizes
