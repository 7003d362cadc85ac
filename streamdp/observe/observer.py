"""Where the daemon says what happens to it. This one looks away; `watch.Watch` shows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from streamdp.engine import Action, Plan
from streamdp.engine.job import Job
from streamdp.ingest import Decoded
from streamdp.journal import Journal, StoredMessage
from streamdp.population import Population
from streamdp.transport.base import TopicPartition, Transport

Work = Literal["ingest", "commit", "checkpoint"]


class Observer:
    """Called by the daemon, in its thread unless it says otherwise. Nothing here may fail the daemon or slow it."""

    def opened(self, journal: Journal, population: Population, target: Transport, plans: Mapping[str, Plan]) -> None:
        """The start is done."""

    def running(self, next_opens: int) -> None:
        """Time points are being closed, the next one opens then (ms since 1970)."""

    def clock_held(self, held: bool) -> None:
        """The clock jumped, and no time point closes; or it is right again. Called by the thread that saw it."""

    def stopping(self) -> None:
        """A stop was asked. Called by a signal handler: it sets a flag and no more."""

    def timed(self, work: Work) -> AbstractContextManager[None]:
        """Around a piece of work."""
        return nullcontext()

    def fed(self, decoded: Decoded) -> None:
        """A batch of input was decoded and applied."""

    def lagging(self, cut: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> None:
        """A point closed with this cut while reading had come so far."""

    def truncated(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions of the input lost messages at their end that were read before."""

    def decided(self, time_point: int, actions: Iterable[Action]) -> None:
        """Decisions were committed. Nobody may learn of them before they are published."""

    def queued(self, stored: Iterable[StoredMessage]) -> None:
        """These messages are due; they are not out yet."""

    def published(self, sequences: Iterable[int]) -> None:
        """Those of these numbers are on the output topics."""

    def publish_failed(self) -> None:
        """The output did not take a publication. Called by the publisher's thread."""

    def publish_recovered(self) -> None:
        """The output takes publications again. Called by the publisher's thread."""

    def publish_retried(self) -> None:
        """A publication is tried again. Called by the publisher's thread."""

    def requests_dropped(self, count: int) -> None:
        """So many messages on the topic of requests got no answer: malformed, or too many at once."""

    def jobs(self, open_jobs: Iterable[Job], running: Collection[str]) -> None:
        """Admitted jobs, and the ids of those that a worker has; called now and then."""
