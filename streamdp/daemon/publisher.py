"""What leaves the daemon: one publication after the other, each until it is certainly there, in a thread of its own.

An output that is slow or gone must not stop the input: meanwhile points go on being committed, and the journal holds
what is owed. After a failure nobody knows whether the messages are visible. A new writer ends the old one's
transaction, a read of the topics tells, and only what is absent is published again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from streamdp.daemon import steps
from streamdp.daemon.outputs import OWNERS, read_head, rows_topics
from streamdp.engine import Topics
from streamdp.ingest.dead_letters import absent_letters
from streamdp.journal import StoredMessage, message_digest
from streamdp.observe.observer import Observer
from streamdp.transport.base import Fenced, Message, TopicPartition, Transport, Unreachable, Writer
from streamdp.transport.tail import newest, tail

log = logging.getLogger("streamdp.daemon")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between attempts while the output does not answer."""
MAX_BYTES, MAX_PUBLICATIONS = 32 << 20, 32
"""How much may wait here, about."""
MESSAGES_AT_ONCE = 1_000
"""Dead letters in one transaction, so that a flood of them does not outlast its time limit."""


@dataclass(frozen=True)
class _Publication:
    """One transaction. Dead letters have no time point."""

    messages: list[Message]
    time_point: int | None = None
    sequences: tuple[int, ...] = ()

    @cached_property
    def register(self) -> dict[bytes, bytes | None]:
        """Its entries for the register of owners."""
        return {each.key: each.value for each in self.messages if each.topic == OWNERS and each.key is not None}

    @cached_property
    def nbytes(self) -> int:
        return sum(len(message.value or b"") + len(message.key or b"") for message in self.messages)


class Publisher:
    """The only user of the output's writer once a stream runs. It closes the writer.

    `last_point` is the last point the outputs hold, `register` the entries of the register of owners there, by key, as
    this daemon wrote or found them (None: no entry). As a `Writer` it takes dead letters, and returns at once.
    """

    def __init__(
        self,
        target: Transport,
        topics: Topics,
        identity: str,
        writer: Writer,
        last_point: int,
        observer: Observer | None = None,
        register: Mapping[bytes, bytes | None] | None = None,
    ) -> None:
        self._observer = observer or Observer()
        self._target, self._topics, self._identity = target, topics, identity
        self._writer: Writer | None = writer
        self._last_point = last_point
        self._register = dict(register or {})
        self._last_sequence = 0
        self._is_lost = False
        self._changed = threading.Condition()
        self._waiting: deque[_Publication] = deque()
        self._waiting_bytes = 0
        self._published: list[int] = []
        self._failure: BaseException | None = None
        self._stop_asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    # For the daemon's thread

    @property
    def is_full(self) -> bool:
        with self._changed:
            return self._waiting_bytes >= MAX_BYTES or len(self._waiting) >= MAX_PUBLICATIONS

    @property
    def is_full_of_letters(self) -> bool:
        """Whether dead letters take up the room. Unlike points, which the journal holds, they have no other place."""
        with self._changed:
            letters = [publication for publication in self._waiting if publication.time_point is None]
            return len(letters) >= MAX_PUBLICATIONS or sum(each.nbytes for each in letters) >= MAX_BYTES

    @property
    def is_idle(self) -> bool:
        with self._changed:
            return not self._waiting

    def publish(self, stored: Sequence[StoredMessage], register: Sequence[Message] = ()) -> None:
        """Queues what the journal holds of one point, or of a run of missed ones, and its entries for the register of
        owners: one transaction.

        What is queued already, as results after the horizon's end may be, is left out.
        """
        fresh = [message for message in stored if message.sequence > self._last_sequence]
        if fresh:
            self._last_sequence = fresh[-1].sequence
            sequences = tuple(message.sequence for message in fresh)
            leaving = [*(message.message for message in fresh), *register]
            self._put(_Publication(leaving, fresh[-1].time_point, sequences))

    def append(self, messages: Sequence[Message]) -> list[tuple[TopicPartition, int]]:
        """Queues dead letters. Where they will go is not known yet."""
        for begin in range(0, len(messages), MESSAGES_AT_ONCE):
            self._put(_Publication(list(messages[begin : begin + MESSAGES_AT_ONCE])))
        return []

    def published(self) -> list[int]:
        """The sequence numbers of what has become visible since the last call; raises what ended the thread."""
        with self._changed:
            self._raise_failure()
            found, self._published = self._published, []
            return found

    def letters_safe(self, seconds: float) -> bool:
        """Whether no dead letter waits any more; waits for that, but not while the output does not answer."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._is_lost or not self._holds_letters(), seconds)
            return not self._holds_letters()

    def close(self) -> None:
        """Gives up what is queued. An attempt under way is left to end with the process: the next start sees to it."""
        self._stop_asked.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(0.5)
        if not self._thread.is_alive() and self._writer is not None:
            self._writer.close()

    def _holds_letters(self) -> bool:
        return any(publication.time_point is None for publication in self._waiting)

    def _put(self, publication: _Publication) -> None:
        with self._changed:
            self._raise_failure()
            self._waiting.append(publication)
            self._waiting_bytes += publication.nbytes
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # The thread

    def _run(self) -> None:
        try:
            while (publication := self._next()) is not None:
                if not self._publish(publication):
                    return
                with self._changed:
                    self._waiting.popleft()
                    self._waiting_bytes -= publication.nbytes
                    self._published += publication.sequences
                    self._changed.notify_all()
        except BaseException as failure:
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _next(self) -> _Publication | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stop_asked.is_set() or self._waiting)
            return None if self._stop_asked.is_set() else self._waiting[0]

    def _publish(self, publication: _Publication) -> bool:
        """Whether it is visible; False when told to stop before it was."""
        messages, pause = publication.messages, FIRST_PAUSE
        rows = rows_topics(self._topics, messages)
        while True:
            try:
                if rows:
                    self._target.ensure_topics(rows)
                if self._writer is None:
                    self._writer = self._target.writer(self._identity)
                    self._require_alone(publication)
                    messages = self._absent(publication)
                if messages:
                    self._append(messages, publication.time_point is not None)
                break
            except Unreachable as error:
                self._lost(error)
                if self._stop_asked.wait(pause):
                    return False
                self._observer.publish_retried()
                pause = min(2 * pause, LONGEST_PAUSE)
        if self._is_lost:
            self._is_lost = False
            self._observer.publish_recovered()
            log.warning("the output answers again")
        if publication.time_point is not None:
            self._last_point = publication.time_point
            self._register |= publication.register
        return True

    def _append(self, messages: list[Message], is_point: bool) -> None:
        assert self._writer is not None
        if is_point:
            steps.reach("publish.before")
        self._writer.append(messages)
        if is_point:
            steps.reach("publish.after")

    def _lost(self, error: Unreachable) -> None:
        """Says so once, and gives up the writer: what it was about is settled by opening the next."""
        if not self._is_lost:
            log.warning("the output fails; what is owed waits in the journal", extra={"fields": {"why": str(error)}})
        self._observer.publish_failed()
        with self._changed:
            self._is_lost = True
            self._changed.notify_all()
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _require_alone(self, publication: _Publication) -> None:
        """A new writer has fenced any other daemon. If one published meanwhile, this one must not go on.

        The register tells also after a horizon's end, where the head no longer moves.
        """
        for key, found in newest(self._target, OWNERS, self._register).items() if self._register else ():
            if found.value not in (self._register[key], publication.register.get(key)):
                raise Fenced("another copy of this daemon's journal has published meanwhile")

    def _absent(self, publication: _Publication) -> list[Message]:
        """What of it the topics do not hold. A transaction is there wholly or not at all; nobody else writes them."""
        if publication.time_point is None:
            return absent_letters(self._target, publication.messages)
        topic = publication.messages[0].topic
        mine = [message_digest(message) for message in publication.messages if message.topic == topic]
        if _digests(tail(self._target, topic, len(mine))) == mine:
            return []
        head = read_head(self._target, self._topics)
        if head is not None and head.time_point > self._last_point:
            raise Fenced(
                f"the outputs hold time point {head.time_point}, which this daemon did not publish: a second one ran "
                "on a copy of its journal"
            )
        return publication.messages


def _digests(messages: Iterable[Message]) -> list[bytes]:
    return [message_digest(message) for message in messages]
