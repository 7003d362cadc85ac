"""Giving up what an old, restored or lost journal does not know, so that a stream may go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamdp.config import StreamConfig
from streamdp.daemon.claims import claim_input, other_owners
from streamdp.daemon.outputs import Head, output_topics, read_head
from streamdp.daemon.schedule import Schedule, now_ms
from streamdp.daemon.start import holds_unknown_results, open_journal
from streamdp.engine import Topics
from streamdp.journal import Journal, Opening
from streamdp.transport.base import Transport


@dataclass
class WriteOff:
    """What would be given up, under the journal's lock."""

    config: StreamConfig
    journal: Journal
    source: Transport
    target: Transport
    head: Head | None
    checkpoints: list[Path]
    owners: set[str]
    """Other journals that the input belongs to."""
    now: int

    @property
    def until(self) -> int:
        """The last point that anybody may have published or asked."""
        published = 0 if self.head is None else self.head.time_point
        known = max(published, self._stored, self.journal.last_time_point)
        if not self._was_asked_elsewhere:
            return known
        today = self._schedule().point_at(self.now)
        return max(known, min(today, self.journal.terms.points) if self.journal.terms.is_finite else today)

    @property
    def _stored(self) -> int:
        """The last point of which there is a checkpoint."""
        return max((int(path.stem.partition("-")[2]) for path in self.checkpoints), default=0)

    @property
    def _was_asked_elsewhere(self) -> bool:
        """Whether the input belongs to a journal whose outputs are not these, so that they tell nothing of it."""
        return bool(self.owners - ({self.head.journal_id} if self.head is not None else set()))

    def _schedule(self) -> Schedule:
        """The journal's time points; those of the outputs where it has none; or the newest checkpoint's is now."""
        length, opening = self.config.time.length_ms, self.journal.opening()
        if opening is not None:
            return Schedule(opening.length, opening.first_open)
        if self.head is not None:
            return Schedule(length, self.head.closed - self.head.time_point * length)
        begins = Schedule.starting(self.now, length, self.config.time.origin_ms)
        return Schedule(length, begins.opens(2 - max(self._stored, 1)))

    @property
    def needed(self) -> bool:
        if self._was_asked_elsewhere:
            return True
        foreign = self.head is not None and self.head.journal_id != self.journal.identity.journal_id
        known = max(self.journal.last_time_point, self.journal.written_off_until())
        if self.until > known or (foreign and self.until > self.journal.written_off_until()):
            return True
        return holds_unknown_results(self.journal, self.target, Topics.of(self.config.output_prefix))

    @property
    def explanation(self) -> str:
        if not self.needed:
            return "the journal knows everything that was published; there is nothing to write off"
        text = (
            f"the journal ends with time point {self.journal.last_time_point}; outputs or checkpoints reach to "
            f"{self.until}.\n"
        )
        if self._was_asked_elsewhere:
            text = (
                "the input belongs to another journal, and these outputs do not tell what that one spent: everything "
                f"up to now, time point {self.until}, may be.\n"
            )
        if self.journal.terms.is_finite:
            return text + (
                "writing that off regards the whole budget as spent: the stream repeats its last release to the end of "
                "its horizon, and no job runs any more"
            )
        return text + (
            f"writing that off regards every window with those points as spent: nothing is released before time point "
            f"{self.until + self.journal.terms.points}"
        )

    def carry_out(self, reason: str) -> None:
        """Makes this journal the owner of the input, which ends any other's writing, and writes off."""
        if self._was_asked_elsewhere:
            # Only the other's claim tells of it: a crash between taking that over and writing off would lose it.
            self._write_off(reason)
        claims = claim_input(self.source, self.target, self.config, self.journal.identity, take_over=True)
        try:
            self.head = read_head(self.target, Topics.of(self.config.output_prefix))
            self.now = now_ms()
            self._write_off(reason)
        finally:
            for claim in claims:
                claim.close()

    def _write_off(self, reason: str) -> None:
        until = self.until
        if self.journal.opening() is None:
            # A new journal has a new key for users' digests, so the old checkpoints are of no use to it.
            for path in self.checkpoints:
                path.unlink()
            begin, schedule = self.source.begin_offsets(self.config.input.topics), self._schedule()
            latest = self.now if self.head is None else self.head.closed
            self.journal.record_opening(Opening(schedule.first_open, schedule.length, begin, begin, latest))
        self.journal.write_off(until, reason)


@contextmanager
def plan_write_off(config: StreamConfig, source: Transport, target: Transport) -> Iterator[WriteOff]:
    """Looks at journal, outputs and checkpoints; holds the journal's lock meanwhile."""
    journal = open_journal(config, source)
    try:
        topics = Topics.of(config.output_prefix)
        target.ensure_topics(output_topics(topics))
        checkpoints = sorted(config.checkpoint_path.glob("checkpoint-*.columns"))
        owners = other_owners(source, target, config, journal.identity)
        yield WriteOff(config, journal, source, target, read_head(target, topics), checkpoints, owners, now_ms())
    finally:
        journal.close()
