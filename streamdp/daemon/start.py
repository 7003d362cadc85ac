"""The order of a start, on any transport: lock, fence, read the outputs, publish what is owed, recover, open.

Whatever a crash left behind, the same order sets right. Nothing is asked of the data before the last step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from streamdp.config import StreamConfig
from streamdp.config.may_change import MAY_SHORTEN, promised
from streamdp.config.transports import open_dead_letters
from streamdp.daemon import steps
from streamdp.daemon.claims import Owners
from streamdp.daemon.clock import check_clock
from streamdp.daemon.in_work import InWork
from streamdp.daemon.output_checks import check_head, check_outputs, publish_owed
from streamdp.daemon.outputs import output_topics, read_head
from streamdp.daemon.publisher import Publisher
from streamdp.daemon.recovery import recover
from streamdp.daemon.schedule import Schedule, now_ms
from streamdp.engine import Topics
from streamdp.errors import ConfigurationError
from streamdp.ingest.dead_letters import DeadLetters, DeadLetterTopic
from streamdp.journal import Journal
from streamdp.observe.observer import Observer
from streamdp.pipeline import Pipeline
from streamdp.privacy import NoiseSource
from streamdp.transport.base import Reader, Transport, Writer


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


def open_journal(config: StreamConfig, source: Transport, target: Transport) -> Journal:
    """The stream's journal under its writer lock, with every histogram's share reserved; refused when a setting changed
    that may not."""
    config.journal_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = Journal.create_or_open(
        config.journal_path,
        input_identity=input_identity(source, config.input.topics),
        output_identity=target.cluster_id(),
        terms=config.terms,
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


def _last_due(config: StreamConfig, journal: Journal) -> int:
    """The last point whose public moment of release has come; later ones wait for theirs, restart or not."""
    opening = journal.opening()
    if opening is None:
        return 0
    return (now_ms() - config.time.publish_after_ms - opening.first_open) // opening.length
