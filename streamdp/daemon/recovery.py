"""Rebuilds the population as it stood at the last committed point. Asks nothing of the data and publishes nothing."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from streamdp.config import StreamConfig
from streamdp.daemon.schedule import Cut, Schedule, now_ms
from streamdp.daemon.truncation import Remains, say_truncated
from streamdp.engine import JobQueue, Topics
from streamdp.errors import StreamdpError
from streamdp.ingest.dead_letters import DeadLetters
from streamdp.journal import Journal, Opening
from streamdp.pipeline import Pipeline, population_settings
from streamdp.population import load_latest
from streamdp.privacy import NoiseSource
from streamdp.transport.base import UNKNOWN_EPOCH, Reader, TopicPartition, Transport
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard, Skips


def recover(
    config: StreamConfig,
    journal: Journal,
    source: Transport,
    dead_letters: DeadLetters,
    accept_gap: bool,
    noise: NoiseSource | None,
    guard: Guard | None = None,
) -> tuple[Pipeline, Reader, Schedule]:
    """The population as it stood at the last committed point, rebuilt without asking or publishing anything."""
    guard = guard or Guard(Skips(journal.skips()))
    checkpoint = load_latest(
        config.checkpoint_path, config.build_domain(), config.build_views(), **population_settings(config)
    )
    opening, last = journal.opening(), journal.last_time_point
    if checkpoint is not None and (opening is None or checkpoint.time_point > last):
        raise StreamdpError(
            f"the checkpoint in {config.checkpoint_path} is of time point {checkpoint.time_point}, but the journal "
            f"ends with {last}: the journal is an old copy or another's. Restore the newest one, or `streamdp journal "
            "write-off CONFIG`"
        )
    if checkpoint is not None and checkpoint.cut["journal_id"] != journal.identity.journal_id:
        raise StreamdpError(
            f"the checkpoints in {config.checkpoint_path} were taken under another journal. Move them away: recovery "
            "then reads the input again from where this stream began"
        )
    releases = {name: journal.last_release(name) for name in (histogram.name for histogram in config.histogram)}
    pipeline = Pipeline(
        config,
        journal_id=journal.identity.journal_id,
        digest_key=journal.digest_key,
        ledger=journal.ledger,
        dead_letters=dead_letters,
        population=None if checkpoint is None else checkpoint.population,
        last_point=last,
        states=journal.engine_state(),
        settings=journal.setting_changes(),
        last_releases={name: release for name, release in releases.items() if release is not None},
        source=noise,
        jobs=JobQueue(
            stream=config.name,
            topics=Topics.of(config.output_prefix),
            budget=journal.ledger,
            max_waiting=config.jobs.max_waiting,
            known=journal.job_ids(),
            jobs=journal.jobs_under_way(),
        ),
        guard=guard,
    )
    if opening is None:
        opening = _first_opening(config, source)
        reader = source.reader(dict(opening.start), config.input.max_record_bytes, guard)
        drain(reader, pipeline, opening.backlog, time_point=1, latest_ts=opening.latest_ts)
        dead_letters.flush()
        schedule = Schedule.beginning(now_ms(), config.time.length_ms, config.time.origin_ms)
        journal.record_opening(opening.at(schedule.first_open))
        return pipeline, reader, schedule
    schedule = Schedule(opening.length, opening.first_open)
    position = opening.start if checkpoint is None else _cut_of(checkpoint.cut["positions"])
    epochs = dict.fromkeys(position, UNKNOWN_EPOCH) if checkpoint is None else _cut_of(checkpoint.cut["epochs"])
    remains = Remains(source)
    since = schedule.first_open if checkpoint is None else schedule.closes(checkpoint.time_point)
    if not accept_gap:
        _require_deletes(source, config.input.topics, since)
    start = positions_from(source, config.input.topics, remains.of(position, epochs), accept_gap, remains.lost)
    reader = source.reader(start, config.input.max_record_bytes, guard, epochs)
    done = 0 if checkpoint is None else checkpoint.time_point
    if checkpoint is None:
        drain(reader, pipeline, remains.of(opening.backlog, epochs), time_point=1, latest_ts=opening.latest_ts)
    for point in journal.points(since=done):
        if point.cut is not None:
            latest = schedule.closes(point.time_point) + config.time.skew_ms
            drain(reader, pipeline, remains.of(point.cut, point.epochs), point.time_point, latest)
        pipeline.expire(point.time_point)
    say_truncated(remains.lost)
    dead_letters.flush()
    return pipeline, reader, schedule


def _first_opening(config: StreamConfig, source: Transport) -> Opening:
    """A new stream: everything that is in the input now, or nothing of it, belongs to the first point."""
    end = source.high_watermarks(config.input.topics)
    begin = source.begin_offsets(config.input.topics) if config.input.start == "earliest" else end
    latest = now_ms() + config.time.length_ms + config.time.skew_ms
    return Opening(first_open=0, length=config.time.length_ms, start=begin, backlog=end, latest_ts=latest)


def _require_deletes(source: Transport, topics: list[str], since: int) -> None:
    """Refuses when compaction may have dropped deletes that came after `since`, where recovery reads on."""
    kept = source.deletes_kept_ms(topics)
    if kept is not None and now_ms() - since > kept:
        raise StreamdpError(
            f"an input topic is compacted and keeps deletes for {kept / 3_600_000:g} hours, and the last checkpoint is "
            "older: users who were deleted since then might be counted for ever. Start with --accept-gap if none was "
            "deleted by a null value; set delete.retention.ms longer than the daemon may ever be down"
        )


def positions_from(
    source: Transport,
    topics: list[str],
    cut: Mapping[TopicPartition, int],
    accept_gap: bool,
    truncated: Container[TopicPartition] = (),
) -> Cut:
    """Where to read on from a cut, for every partition there is now; refused when input is gone in between."""
    begin, end = source.begin_offsets(topics), source.high_watermarks(topics)
    positions = {}
    for partition, first in begin.items():
        position = cut.get(partition, first)
        if position > end[partition]:
            raise StreamdpError(
                f"partition {partition.partition} of the input topic {partition.topic!r} is shorter than what was read "
                "of it: it was truncated or restored from an old copy. Restore it: this journal belongs to what it held"
            )
        if position < first and not accept_gap and partition not in truncated:
            raise StreamdpError(
                f"partition {partition.partition} of the input topic {partition.topic!r} no longer holds what recovery "
                "needs: its oldest records were deleted since the last checkpoint. Restore them, or start with "
                "--accept-gap to go on without them (users in the gap are counted as they last were)"
            )
        positions[partition] = max(position, first)
    return positions


def drain(
    reader: Reader, pipeline: Pipeline, cut: Mapping[TopicPartition, int], time_point: int, latest_ts: int
) -> None:
    """Feeds everything below the cut, and nothing beyond."""
    begun = {partition: 0 for partition in cut if partition not in reader.positions()}
    reader.assign_more(begun)
    pipeline.feed_all(_below(reader, cut), time_point, latest_ts)


def _below(reader: Reader, cut: Mapping[TopicPartition, int]) -> Iterator[RecordBatch]:
    while any(reader.positions()[partition] < offset for partition, offset in cut.items()):
        yield from reader.poll(timeout=1.0, until=cut)


def checkpoint_cut(
    journal: Journal, cut: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
) -> dict[str, Any]:
    """What a checkpoint says of where it stands. Its digests are under the journal's key: another's cannot use it."""
    positions, histories = (
        [[partition.topic, partition.partition, number] for partition, number in sorted(numbers.items())]
        for numbers in (cut, epochs)
    )
    return {"journal_id": journal.identity.journal_id, "positions": positions, "epochs": histories}


def _cut_of(numbers: list[tuple[str, int, int]]) -> Cut:
    return {TopicPartition(topic, partition): number for topic, partition, number in numbers}
