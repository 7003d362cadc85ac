"""The order of a start, on any transport: lock, fence, read the outputs, publish what is owed, recover, open.

Whatever a crash left behind, the same order sets right. Nothing is asked of the data before the last step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamdp import messages
from streamdp.config import StreamConfig
from streamdp.config.may_change import MAY_SHORTEN, promised
from streamdp.config.transports import open_dead_letters
from streamdp.daemon import steps
from streamdp.daemon.claims import ADVICE, Owners
from streamdp.daemon.clock import check_clock
from streamdp.daemon.in_work import InWork
from streamdp.daemon.outputs import Head, output_topics, point_of, read_head, rows_topics
from streamdp.daemon.publisher import Publisher
from streamdp.daemon.schedule import Cut, Schedule, now_ms
from streamdp.daemon.truncation import Remains, say_truncated
from streamdp.engine import JobQueue, Topics
from streamdp.errors import ConfigurationError, StreamdpError
from streamdp.ingest.dead_letters import DeadLetters, DeadLetterTopic
from streamdp.journal import Journal, Opening, message_digest
from streamdp.observe.observer import Observer
from streamdp.pipeline import Pipeline, population_settings
from streamdp.population import load_latest
from streamdp.privacy import NoiseSource
from streamdp.privacy.terms import Terms
from streamdp.transport.base import UNKNOWN_EPOCH, Message, Reader, TopicPartition, Transport, Writer
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard, Skips
from streamdp.transport.tail import tail


@dataclass
class Started:
    """Everything the running daemon holds."""

    journal: Journal
    publisher: Publisher
    owners: Owners
    dead_letters: DeadLetters
    pipeline: Pipeline
    reader: Reader
    schedule: Schedule
    in_work: InWork
    since: int
    """When the dataset was complete: points that closed before were missed."""

    def close(self) -> None:
        self.reader.close()
        self.dead_letters.close()
        self.publisher.close()
        self.owners.close()
        self.in_work.close()
        self.journal.close()


def input_identity(transport: Transport, topics: list[str]) -> str:
    """Names the input data itself: a topic deleted and created again is other data."""
    return json.dumps([transport.cluster_id(), sorted([topic, transport.topic_id(topic)] for topic in topics)])


def terms_of(config: StreamConfig) -> Terms:
    """What the ledger promises, and to whom."""
    user = config.input.user
    if config.horizon is not None:
        return Terms.finite_horizon(config.epsilon, config.horizon, config.records_per_user, user, config.levels)
    assert config.window is not None  # a configuration has one of the two
    return Terms.w_event(config.epsilon, config.window, config.records_per_user, user, config.levels)


def open_journal(config: StreamConfig, source: Transport, target: Transport) -> Journal:
    """The stream's journal under its writer lock, with every histogram's share reserved; refused when a setting changed
    that may not."""
    config.journal_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = Journal.create_or_open(
        config.journal_path,
        input_identity=input_identity(source, config.input.topics),
        output_identity=target.cluster_id(),
        terms=terms_of(config),
        settings=promised(config),
        may_shorten=MAY_SHORTEN,
        step=lambda name: steps.reach("journal." + name.replace(":", ".")),
    )
    try:
        for histogram in config.histogram:
            releases = getattr(histogram.parameters, "releases", None)
            purpose = histogram.strategy + (f", at most {releases} releases" if releases else "")
            journal.reserve(histogram.name, config.share(histogram) * config.epsilon, purpose)
        journal.keep_settings(promised(config))
    except BaseException:
        journal.close()
        raise
    return journal


def start(
    config: StreamConfig,
    source: Transport,
    target: Transport,
    *,
    accept_gap: bool = False,
    accept_clock: bool = False,
    now: Callable[[], int] = now_ms,
    noise: NoiseSource | None = None,
    observer: Observer | None = None,
) -> Started:
    """Makes a stream ready to run. Raises a `StreamdpError` that says what to do when it must not."""
    if config.time.clock != "wall":
        raise ConfigurationError(
            'time.clock: "event" lets the data close time points, which has no guarantee; it is for `streamdp replay`. '
            'Give "wall" to run a daemon'
        )
    journal = open_journal(config, source, target)
    in_work: InWork | None = None
    owners: Owners | None = None
    writer: Writer | None = None
    dead_letters: DeadLetters | None = None
    try:
        steps.reach("start.locked")
        in_work = InWork.beside(journal)
        in_work.require_progress()
        if not accept_clock:
            check_clock(journal, config.time.max_clock_jump_ms, config.privacy.horizon, now())
        topics = Topics.of(config.output_prefix)
        target.ensure_topics(output_topics(topics))
        # Also before fencing anybody: a daemon that was started by mistake must not stop the right one.
        check_head(journal, read_head(target, topics))
        owners = Owners(source, target, config, journal)
        writer = owners.claim()
        steps.reach("start.fenced")
        owners.require_ours()
        head = check_outputs(journal, target, topics)
        steps.reach("start.outputs_read")
        publish_owed(journal, writer, owners, head, target, topics, _last_due(config, journal))
        steps.reach("start.republished")
        dead_letters = open_dead_letters(config, target, writer)
        with in_work.orderly_end():
            pipeline, reader, schedule = recover(config, journal, source, dead_letters, accept_gap, noise, in_work)
        since = now()
        register = owners.on_output()
        publisher = Publisher(target, topics, owners.identity, writer, journal.published_until(), observer, register)
        if isinstance(dead_letters, DeadLetterTopic):
            dead_letters.use(publisher)
        steps.reach("start.recovered")
    except BaseException:
        for held in (dead_letters, writer, owners, in_work):
            if held is not None:
                held.close()
        journal.close()
        raise
    return Started(journal, publisher, owners, dead_letters, pipeline, reader, schedule, in_work, since)


OWED_BYTES = 1 << 20
"""How much of what is owed leaves in one transaction, about."""


def check_head(journal: Journal, head: Head | None) -> None:
    """Refuses when another journal, or a newer copy of this one, wrote the outputs and nobody wrote that off."""
    mine, last = journal.identity.journal_id, journal.last_time_point
    if head is None or head.time_point <= journal.written_off_until():
        return
    if head.journal_id != mine:
        raise StreamdpError(
            f"the output topics were written by another journal, {head.journal_id[:12]}, up to time point "
            f"{head.time_point}; this one is {mine[:12]}. {ADVICE}"
        )
    if head.time_point > last:
        raise StreamdpError(
            f"the output topics hold time point {head.time_point}, but the journal ends with {last}: it is an old "
            f"copy. {ADVICE}"
        )


def check_outputs(journal: Journal, target: Transport, topics: Topics) -> Head | None:
    """Refuses when the outputs hold anything that this journal does not know and nobody wrote off."""
    head = read_head(target, topics)
    written_off = journal.written_off_until()
    if head is None or head.time_point <= written_off:
        return head
    check_head(journal, head)
    for message in tail(target, topics.releases):
        if point_of(message) > written_off and not journal.knows(message):
            raise StreamdpError(
                f"the topic {topics.releases!r} holds a message of time point {point_of(message)} that this journal "
                f"never stored. {ADVICE}"
            )
    if holds_unknown_results(journal, target, topics):
        raise StreamdpError(f"the topic {topics.results!r} holds a result that this journal never stored. {ADVICE}")
    return head


def holds_unknown_results(journal: Journal, target: Transport, topics: Topics) -> bool:
    """Whether a job of another copy of this journal was answered. After the horizon's end the head does not tell."""
    written_off = journal.written_off_until()
    return any(
        messages.decode(message.value or b"").header["published_at"] > written_off and not journal.knows(message)
        for message in tail(target, topics.results)
    )


def _last_due(config: StreamConfig, journal: Journal) -> int:
    """The last point whose public moment of release has come; later ones wait for theirs, restart or not."""
    opening = journal.opening()
    if opening is None:
        return 0
    return (now_ms() - config.time.publish_after_ms - opening.first_open) // opening.length


def publish_owed(
    journal: Journal,
    writer: Writer,
    owners: Owners,
    head: Head | None,
    target: Transport,
    topics: Topics,
    last_due: int,
) -> None:
    """Publishes, in order, what is stored, due and absent; marks what is there already.

    All messages of a point leave in one transaction, the head among them, so the head tells what is there. After the
    horizon's end results leave without a head, and their topics tell.
    """
    waiting: list[Message] = []
    sequences: list[int] = []
    there = 0 if head is None else head.time_point
    owed = [time_point for time_point in journal.unpublished_points() if time_point <= max(last_due, there)]
    for time_point in owed:
        stored = journal.unpublished(time_point)
        absent = [message.message for message in stored]
        if time_point <= there:
            absent = _absent_results(absent, target, topics)
        target.ensure_topics(rows_topics(topics, absent))
        waiting += absent
        sequences += [message.sequence for message in stored]
        # Many points are owed after an outage: together they leave faster, and in their order all the same.
        if time_point == owed[-1] or sum(len(message.value or b"") for message in waiting) > OWED_BYTES:
            if waiting:
                writer.append([*waiting, *owners.messages(stored[-1])])
            journal.mark_published(sequences)
            waiting, sequences = [], []


def _absent_results(stored: list[Message], target: Transport, topics: Topics) -> list[Message]:
    """Of the results and rows among `stored`, those that are on no topic."""
    results = [message for message in stored if message.topic == topics.results or topics.is_rows(message.topic)]
    if not results:
        return []
    target.ensure_topics(rows_topics(topics, results))
    there = {message_digest(message) for topic in {m.topic for m in results} for message in tail(target, topic)}
    return [message for message in results if message_digest(message) not in there]


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
            most_waiting=config.jobs.most_waiting,
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
