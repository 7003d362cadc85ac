"""Finding the records that no process survives, and skipping them for good: `streamdp journal skip`.

Whether a record is skipped depends on that record and on public limits, never on another user's records or on the
population: before it is skipped it is tried **alone**, from an empty population, in a fresh process that may use
`MEMORY_BYTES` more than an empty stream, and `CPU_SECONDS`. So a skip moves a snapshot by its own user's records only,
as any dead letter does, and the sensitivity stays what it was. Larger ranges are tried first, but only to find out
which records need not be.

One thing is shared: records that a producer compressed together are read together. Where that fails, what cannot be
read is skipped to the end of its batch.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamdp.config import StreamConfig, load
from streamdp.config.transports import open_input
from streamdp.daemon.in_work import InWork, Place, died_reading
from streamdp.errors import StreamdpError
from streamdp.ingest.dead_letters import DeadLetterTopic
from streamdp.jobs.executor import JobFailed, Limits, SpawnExecutor
from streamdp.journal import Journal
from streamdp.pipeline import Pipeline
from streamdp.privacy import Ledger
from streamdp.transport.base import Message, TopicPartition, Transport, Unreachable
from streamdp.transport.guard import Skip, Skips

MEMORY_BYTES = 2 << 30
"""What a trial may allocate beyond an empty stream: far more than any record needs that is not lethal."""
_NO_LIMIT = 1 << 60
CPU_SECONDS = 60
"""Time of the processor, not of the clock: how busy the machine is must not decide."""
SILENT_SECONDS = 60
"""After so long without a record, the input does not answer."""
_END = (1 << 63) - 1


@dataclass(frozen=True)
class Search:
    """Tries the suspects of a journal, under its lock."""

    config_path: Path
    journal: Journal
    source: Transport
    say: Callable[[str], None]

    def run(self) -> None:
        """Journals each skip as soon as it is found, and only then forgets the suspects: a crash loses nothing."""
        in_work = InWork.beside(self.journal)
        try:
            if not in_work.suspects:
                self.say("no daemon died while it worked on a record: there is nothing to try")
                return
            for place in in_work.suspects:
                self.say(f"trying {place}")
                self._search(place.name, *self._still_there(place))
            # Also those of an earlier search that was cut off before its end.
            skipped = [s for s in self.journal.skips() if any(Place(*s).overlaps(place) for place in in_work.suspects)]
            in_work.clear()
        finally:
            in_work.close()
        if skipped:
            self.say("journaled: nothing reads these again, and dead letters say SKIPPED. The daemon may start")
            return
        self.say(
            "no record fails alone, so nothing was skipped, and the deaths are no longer counted. Something else ended "
            "the daemon: too little memory for what it holds (see Sizing in docs/operations.md), a kill from outside, "
            "or a defect. Mend that, then start it"
        )

    def _still_there(self, place: Place) -> tuple[int, int]:
        """What of a place the input still holds; nothing, if the first offset is after the last."""
        topic = [place.name.topic]
        begin, end = self.source.begin_offsets(topic), self.source.end_offsets(topic)
        return max(place.first, begin.get(place.name, _END)), min(place.last, end.get(place.name, 0) - 1)

    def _search(self, name: TopicPartition, first: int, last: int) -> None:
        """Finds the records of a range that fail alone, by halving."""
        if first > last or Skips(self.journal.skips()).cover(name, first, last):
            return
        is_sound, unread = self._try(name, first, last)
        if is_sound:
            return
        if first == last:
            # A trial of nothing must live, or it is not the record that fails.
            if not self._try(name, first, first - 1)[0]:
                raise StreamdpError(
                    "a trial fails before it reads anything, so no record is at fault and nothing more is skipped. Is "
                    "there too little memory for the histograms of this stream?"
                )
            skip = Skip(name, first, first if unread is None else max(first, unread.last))
            self.journal.skip(skip)
            self.say(f"fails alone: {Place(*skip)}")
            return
        middle = (first + last) // 2
        self._search(name, first, middle)
        self._search(name, middle + 1, last)

    def _try(self, name: TopicPartition, first: int, last: int) -> tuple[bool, Place | None]:
        """Whether a fresh process survives the range; if not, what it died reading, if that."""
        marker = self.journal.path.with_name(self.journal.path.name + ".trial")
        marker.unlink(missing_ok=True)
        pool = SpawnExecutor(1, Limits(seconds=float("inf"), memory_bytes=_NO_LIMIT, niceness=0))
        try:
            refused = pool.submit(_trial, self.config_path, name, first, last, self.journal.skips(), marker).result()
        except JobFailed:
            return False, died_reading(marker)
        finally:
            pool.shutdown(cancel_futures=True)
            marker.unlink(missing_ok=True)
        if refused:
            raise StreamdpError(refused.decode())
        return True, None


class _Nowhere:
    """Takes the place of the writer of dead letters."""

    def append(self, messages: Sequence[Message]) -> list[tuple[TopicPartition, int]]:
        return []

    def close(self) -> None: ...


def _trial(config_path: Path, name: TopicPartition, first: int, last: int, skips: list[Skip], marker: Path) -> bytes:
    """In a process of its own: reads, decodes and applies these records and no others.

    Returns why it could not try them, or nothing when it did and lived.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    beyond = Skip(name, last + 1, _END)
    guard = InWork(marker, Skips([*skips, beyond]))
    try:
        config = load(config_path)
        source = open_input(config, create=False)
        pipeline = _empty_pipeline(config, guard)
        allowed = _memory_in_use() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        reader = source.reader({name: first}, config.input.max_record_bytes, guard)
        deadline = time.monotonic() + SILENT_SECONDS
        while (position := reader.positions()[name]) <= last:
            pipeline.feed_all(reader.poll(timeout=1.0, until={name: last + 1}), 1, None)
            if reader.positions()[name] > position:
                deadline = time.monotonic() + SILENT_SECONDS
            elif time.monotonic() > deadline:
                raise Unreachable("the input does not answer. Try again later")
    except StreamdpError as error:
        return str(error).encode()
    return b""


def _memory_in_use() -> int:
    """What counts against `RLIMIT_DATA`, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmData:")[1].split()[0]) * 1024


def _empty_pipeline(config: StreamConfig, guard: InWork) -> Pipeline:
    """The daemon's own, without users and without a journal."""
    ledger = Ledger(config.terms)
    for histogram in config.histogram:
        ledger.reserve(histogram.name, config.share(histogram) * config.epsilon, histogram.strategy)
    return Pipeline(
        config,
        journal_id="0" * 32,
        digest_key=bytes(16),
        ledger=ledger,
        dead_letters=DeadLetterTopic(_Nowhere(), "nowhere"),
        guard=guard,
    )
