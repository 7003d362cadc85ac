"""Places in the input: those that are never read again, and those that somebody is at work on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdp.transport.base import TopicPartition
from streamdp.transport.batch import Blobs, RecordBatch


class Skip(NamedTuple):
    """A record that is never read again (`first` is `last`), or what of a stored batch cannot be read, to its end."""

    name: TopicPartition
    first: int
    last: int


class Skips:
    """What is skipped of an input."""

    def __init__(self, skips: Iterable[Skip] = ()) -> None:
        self._skips: dict[TopicPartition, list[Skip]] = defaultdict(list)
        for skip in skips:
            self._skips[skip.name].append(skip)

    def cover(self, name: TopicPartition, first: int, last: int) -> bool:
        """Whether one skip holds all these offsets, so that a reader need not read a byte of them."""
        return name in self._skips and any(each.first <= first and last <= each.last for each in self._skips[name])

    def rows(self, batch: RecordBatch) -> NDArray[np.bool_] | None:
        """The rows of a batch that are skipped; None when there are none, which costs nothing."""
        skips = self._skips.get(TopicPartition(batch.topic, batch.partition))
        if skips is None:
            return None
        found = np.zeros(len(batch), np.bool_)
        for each in skips:
            found[slice(*np.searchsorted(batch.offsets, (each.first, each.last + 1)))] = True
        return found if found.any() else None


class Guard:
    """What readers and the pipeline ask and say about places in the input. This one remembers nothing."""

    def __init__(self, skips: Skips | None = None) -> None:
        self.skips = skips or Skips()

    def reading(self, name: TopicPartition, first: int, last: int) -> None:
        """A reader begins to read, decompress or decode what is stored with these offsets."""

    def read(self) -> None:
        """It is done with that, and works on nothing."""

    def begin(self, batch: RecordBatch) -> None:
        """A batch is about to be decoded and applied, perhaps while the one before it still is."""

    def end(self) -> None:
        """The oldest batch that was begun is applied."""

    def rest(self) -> None:
        """No batch is at work, whatever was begun."""


def unread(name: TopicPartition, offset: int, timestamp: int) -> RecordBatch:
    """One empty record that stands for a skip of which nothing was read."""
    empty = Blobs.from_list([b""])
    return RecordBatch(*name, np.array([offset]), np.array([timestamp]), empty, empty)
