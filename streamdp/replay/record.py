"""Recording a trace from a transport, beside the daemon that reads the same input if there is one.

With a daemon's journal the trace gets marks: the journal keeps every point's cut, so every message is written into the
point that counted it, and the trace replays to the same population.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace

from streamdp.journal.contents import Opening
from streamdp.journal.reader import JournalReader
from streamdp.replay.trace import Header, Mark, longest_message
from streamdp.replay.writer import TraceWriter
from streamdp.transport.base import Reader, TopicPartition, Transport
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard, Skips

_WAIT_SECONDS = 0.2

Cut = Mapping[TopicPartition, int]


class Recorder:
    """Copies messages into a trace, `most` at most, until it is stopped: between two writes, so that none is torn.

    A message longer than `longest_message`, or one that the journal skips, becomes an empty one in its place: a dead
    letter too, when it is replayed.
    """

    def __init__(
        self,
        writer: TraceWriter,
        most: int | None,
        on_write: Callable[[int], None] | None = None,
        max_record_bytes: int = 0,
    ) -> None:
        self._writer, self._most, self._on_write = writer, most, on_write
        self.max_message_bytes = longest_message(max_record_bytes)
        self.skips = Skips()
        self.messages = 0
        self._is_stopped = False

    @property
    def full(self) -> bool:
        return self._is_stopped or (self._most is not None and self.messages >= self._most)

    def stop(self) -> None:
        """Takes no more. Safe in a signal's handler."""
        self._is_stopped = True

    def write(self, batch: RecordBatch) -> None:
        left = len(batch) if self._most is None else min(len(batch), self._most - self.messages)
        self._writer.batch(self._shortened(batch.slice(0, left)))
        self.messages += left
        if self._on_write is not None:
            self._on_write(self.messages)

    def _shortened(self, batch: RecordBatch) -> RecordBatch:
        long = batch.keys.lengths() + batch.values.lengths() > self.max_message_bytes
        if (skipped := self.skips.rows(batch)) is not None:
            long |= skipped
        return replace(batch, keys=batch.keys.emptied(long), values=batch.values.emptied(long)) if long.any() else batch

    def mark(self, mark: Mark) -> None:
        self._writer.mark(mark)

    def flush(self) -> None:
        self._writer.flush()

    def drain(self, reader: Reader, cut: Cut) -> None:
        """Everything below the cut, and nothing beyond."""
        known = reader.positions()
        reader.assign_more({partition: 0 for partition in cut if partition not in known})
        while not self.full and any(reader.positions()[partition] < offset for partition, offset in cut.items()):
            for batch in reader.poll(timeout=_WAIT_SECONDS, until=cut):
                self.write(batch)


def record_topics(
    transport: Transport, topics: list[str], recorder: Recorder, *, from_beginning: bool, follow: bool
) -> None:
    """Messages without marks: up to where the topics end now, or (`follow`) until the recorder is full."""
    end = transport.end_offsets(topics)
    start = transport.begin_offsets(topics) if from_beginning else end
    with closing(transport.reader(start, recorder.max_message_bytes)) as reader:
        recorder.drain(reader, end)
        while follow and not recorder.full:
            for batch in reader.poll(timeout=_WAIT_SECONDS):
                recorder.write(batch)


def journal_header(opening: Opening, stream: str, domain: str) -> Header:
    """How the stream began, so that a replay opens its first point as the daemon did."""
    return Header(
        stream=stream,
        domain=domain,
        first_open=opening.first_open,
        length=opening.length,
        backlog_latest_ts=opening.latest_ts,
        marks=True,
    )


def record_journal(
    transport: Transport, topics: list[str], journal: JournalReader, recorder: Recorder, *, follow: bool
) -> None:
    """From where the stream began, with marks; ends with what no closed point holds yet, or goes on (`follow`).

    While following, messages are written when their point is closed: before, nobody knows which it is.
    """
    opening = journal.opening()
    assert opening is not None  # the caller has looked
    guard = Guard(Skips(journal.skips()))
    recorder.skips = guard.skips
    with closing(transport.reader(dict(opening.start), recorder.max_message_bytes, guard)) as reader:
        recorder.drain(reader, opening.backlog)
        recorder.mark(Mark(0, 1, opens=True))
        for time_point, cut in _points(journal, follow, recorder):
            if cut is not None:
                recorder.drain(reader, cut)
            if recorder.full:
                return
            recorder.mark(Mark(0, time_point, missed=cut is None))
            if follow:
                recorder.flush()  # Who follows for days may be killed, or looked at, at any moment.
        recorder.drain(reader, transport.end_offsets(topics))


def _points(journal: JournalReader, follow: bool, recorder: Recorder) -> Iterator[tuple[int, Cut | None]]:
    last, terms = 0, journal.terms
    while True:
        for point in journal.points(since=last):
            last = point.time_point
            yield point.time_point, point.cut
        if not follow or (terms.is_finite and last >= terms.points) or recorder.full:
            return
        time.sleep(_WAIT_SECONDS)
