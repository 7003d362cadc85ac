"""Records in, actions out: decode, apply, count, decide. The daemon and a replay are both loops around this.

It does no I/O of its own; the dead letters it is given do theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamdp.config import StreamConfig
from streamdp.config.histograms import HistogramSection
from streamdp.domain import View
from streamdp.engine import Action, CountsLoaded, Engine, JobQueue, Plan, PointClosed, Topics
from streamdp.ingest import Decoded, Decoder
from streamdp.population import Population
from streamdp.privacy import Ledger, NoiseSource
from streamdp.strategies import Strategy, restore_strategy
from streamdp.transport.base import TopicPartition
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard

# A population orders equal timestamps by partition, so a partition's number must be the same in every run.
PARTITIONS_PER_TOPIC = 1 << 10


# Settings that may change under a journal, and what they are in the population.
LIFETIMES = {"time.expire_after": "expire_after", "time.tombstone_points": "tombstone_points"}


class RejectSink(Protocol):
    """Takes what could not be used, with the reason."""

    def write(self, batch: RecordBatch, decoded: Decoded) -> None: ...


class LastRelease(Protocol):
    """What the journal keeps of a histogram's newest release."""

    @property
    def release_id(self) -> str: ...

    @property
    def counts(self) -> NDArray[np.int64]: ...


class Pipeline:
    """The state of one stream between transport and journal.

    `states` and `last_releases` are what the journal holds of the strategies; empty for a new stream. `population` is
    the one recovery loaded, or None for an empty one. `settings` says from which time point on a setting has had which
    value, where that is not the configuration's. `guard` says what to skip, and is told what is worked on. A replay has
    no `jobs`.
    """

    def __init__(
        self,
        config: StreamConfig,
        *,
        journal_id: str,
        digest_key: bytes,
        ledger: Ledger,
        dead_letters: RejectSink,
        population: Population | None = None,
        last_point: int = 0,
        states: Mapping[str, dict[str, Any]] | None = None,
        last_releases: Mapping[str, LastRelease] | None = None,
        settings: Iterable[tuple[int, str, Any]] = (),
        source: NoiseSource | None = None,
        jobs: JobQueue | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.config = config
        self._guard = guard or Guard()
        self._lifetimes = [change for change in settings if change[1] in LIFETIMES]
        self.domain = config.build_domain()
        self.views = config.build_views()
        self.population = population or new_population(config)
        self._dead_letters = dead_letters
        self._numbers = {topic: PARTITIONS_PER_TOPIC * place for place, topic in enumerate(sorted(config.input.topics))}
        self._decoder = Decoder(
            self.domain,
            user=config.input.user_field or "key",
            record_id=config.input.record_id,
            max_record_bytes=config.input.max_record_bytes,
            max_key_bytes=config.input.max_key_bytes,
            digest_key=digest_key,
            skips=self._guard.skips,
        )
        releases, states = last_releases or {}, states or {}
        self.engine = Engine(
            stream=config.stream.name,
            journal_id=journal_id,
            plans=[
                Plan(
                    view=view,
                    kind=histogram.strategy,
                    strategy=_strategy(
                        config,
                        histogram,
                        view,
                        states.get(view.name),
                        releases[view.name].counts if view.name in releases else None,
                        source,
                    ),
                    method=histogram.method,
                    encoding=config.output.format,
                )
                for view, histogram in zip(self.views, config.histogram, strict=True)
            ],
            budget=ledger,
            topics=Topics.of(config.output_prefix),
            horizon=config.privacy.horizon,
            checkpoint_every=config.journal.checkpoint_every,
            last_point=last_point,
            # A write-off drops the states. The last release then is what subscribers are known to hold.
            release_ids={name: release.release_id for name, release in releases.items()}
            | {name: state["release_id"] for name, state in states.items()},
            resumes_at=ledger.resumes_at,
            jobs=jobs,
        )
        for view in self.views:
            self.engine.handle(CountsLoaded(view.name, self.population.counts(view.name)))

    def feed(self, batch: RecordBatch, time_point: int, latest_ts: int | None) -> None:
        """Takes records of the open time point; one with a timestamp after `latest_ts` is a dead letter."""
        self.apply(batch, self.decode(batch, latest_ts), time_point)

    def feed_all(
        self,
        batches: Iterable[RecordBatch],
        time_point: int,
        latest_ts: int | None,
        fed: Callable[[Decoded], None] | None = None,
    ) -> None:
        """`feed` for one batch after the other, faster: while one is applied, the next is decoded."""
        self._guard.rest()
        for batch, decoded in self._decoder.decode_ahead(self._begun(batches), latest_ts):
            self.apply(batch, decoded, time_point)
            self._guard.end()
            if fed is not None:
                fed(decoded)

    def _begun(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            if len(batch):
                self._guard.begin(batch)
                yield batch

    def decode(self, batch: RecordBatch, latest_ts: int | None) -> Decoded:
        """The first half of `feed`, for whoever must see the records' own timestamps before choosing the point."""
        return self._decoder.decode(batch, latest_ts)

    def apply(self, batch: RecordBatch, decoded: Decoded, time_point: int) -> None:
        """The second half of `feed`."""
        moved = self.population.apply(
            user=decoded.user,
            record=decoded.record,
            ts=decoded.ts,
            delete=decoded.delete,
            codes=decoded.codes,
            partition=self.number_of(TopicPartition(batch.topic, batch.partition)),
            offsets=batch.offsets[decoded.rows],
            time_point=time_point,
        )
        for change in moved.changes.values():
            self.engine.handle(change)
        # Last: letters are written once, in the order of offsets, and one of this batch may yet turn out to be skipped.
        self._dead_letters.write(batch, decoded)

    def expire(self, time_point: int) -> None:
        """The public clock's part of a close: what is too old goes. Recovery does only this.

        How old that is may have become less while the stream ran. Each point has what held when it closed.
        """
        for since, name, points in self._lifetimes:
            if since <= time_point:
                setattr(self.population, LIFETIMES[name], points)
        for change in self.population.close(time_point).changes.values():
            self.engine.handle(change)

    def close(self, event: PointClosed) -> list[Action]:
        """Closes the open point: everything below its cut has been fed."""
        self.expire(event.time_point)
        return self.engine.handle(event)

    def number_of(self, partition: TopicPartition) -> int:
        return self._numbers[partition.topic] + partition.partition


def new_population(config: StreamConfig) -> Population:
    return Population(config.build_domain(), config.build_views(), **population_settings(config))


def population_settings(config: StreamConfig) -> dict[str, Any]:
    return {
        "record_ids": config.input.record_id is not None,
        "records_per_user": config.privacy.records_per_user,
        "expire_after": config.time.expire_after,
        "tombstone_points": config.time.tombstones,
    }


def _strategy(
    config: StreamConfig,
    histogram: HistogramSection,
    view: View,
    state: dict[str, Any] | None,
    last: NDArray[np.int64] | None,
    source: NoiseSource | None,
) -> Strategy:
    if state is None:
        return config.build_strategy(histogram, view, source)
    # The last release of all may be from before a write-off, of which the strategy that began then knows nothing.
    last = last if state["released"] else None
    return restore_strategy(**config.strategy_arguments(histogram, view), state=state, last=last, source=source)
