"""An input that lost its end: on Kafka, an unclean election of a leader that had not copied everything.

What was read before stays counted: it was its users' own. Reading goes back to where the log was cut, for other records
lie there now. Reading a record again changes nothing, because of a user's records the newest counts. No cut reaches
beyond what the log still has, so no time point waits for records that are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from streamdp.daemon.schedule import Closed, Cut, Missed
from streamdp.transport.base import TopicPartition, Transport
from streamdp.transport.batch import RecordBatch

log = logging.getLogger("streamdp.daemon")


def say_truncated(partitions: Iterable[TopicPartition]) -> None:
    """One line for each partition, without offsets: they describe the input."""
    for topic, partition in sorted(partitions):
        log.error(
            "the input lost messages at its end (an unclean leader election?); those that were read stay counted, and "
            "reading goes on where the log was cut",
            extra={"fields": {"topic": topic, "partition": partition}},
        )


def below(batch: RecordBatch, ends: Mapping[TopicPartition, int]) -> RecordBatch:
    """What of a batch lies before the end of its partition."""
    end = ends.get(TopicPartition(batch.topic, batch.partition))
    return batch if end is None else batch.split_at(end)[0]


def lowered(points: Iterable[Closed | Missed], ends: Mapping[TopicPartition, int]) -> list[Closed | Missed]:
    """Points that wait to be drained, with cuts that the input can reach: none beyond `ends`, where logs were cut, nor
    beyond a later cut, for a high watermark falls only when a log loses its end."""
    found: list[Closed | Missed] = []
    limits = dict(ends)
    for point in reversed(list(points)):
        if isinstance(point, Closed):
            cut = {partition: min(offset, limits.get(partition, offset)) for partition, offset in point.cut.items()}
            limits |= cut
            point = Closed(point.time_point, cut)  # noqa: PLW2901
        found.append(point)
    return found[::-1]


class Remains:
    """What an input still has of what was read of it; `lost` are the partitions that no longer have all."""

    def __init__(self, source: Transport) -> None:
        self._source = source
        self._ends: dict[frozenset[tuple[TopicPartition, int]], Cut] = {}
        self.lost: set[TopicPartition] = set()

    def of(self, cut: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> Cut:
        """The cut, or where the log was cut below it. The log is asked once for each history."""
        key = frozenset(epochs.items())
        if key not in self._ends:
            self._ends[key] = self._source.ends_of(epochs)
        ends = self._ends[key]
        self.lost |= {partition for partition, offset in cut.items() if ends.get(partition, offset) < offset}
        return {partition: min(offset, ends.get(partition, offset)) for partition, offset in cut.items()}
