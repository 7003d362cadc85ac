"""The publisher over an embedded log whose answers get lost: each message once, in order, or a clear end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

from streamdp import messages
from streamdp.daemon import publisher as module
from streamdp.daemon.outputs import OWNERS, output_topics
from streamdp.daemon.publisher import Publisher
from streamdp.engine import Topics
from streamdp.ingest import DeadLetterTopic, Decoded
from streamdp.ingest.decoded import Reason
from streamdp.journal import StoredMessage, message_digest
from streamdp.observe.observer import Observer
from streamdp.transport.base import Fenced, Message, TopicPartition, TopicSpec, Unreachable, Writer
from streamdp.transport.batch import Blobs, RecordBatch
from streamdp.transport.filelog import FileLog

TOPICS = Topics.of("s")


class LossyLog(FileLog):
    """Loses answers: `plan` says, append by append, what goes wrong."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, durable=False)
        self.plan: list[str] = []

    def writer(self, identity: str) -> Writer:
        return LossyWriter(self, super().writer(identity))


class LossyWriter:
    def __init__(self, log: LossyLog, writer: Writer) -> None:
        self._log, self._writer = log, writer

    def append(self, messages: Sequence[Message]) -> list[tuple[TopicPartition, int]]:
        fate = self._log.plan.pop(0) if self._log.plan else "well"
        if fate == "not sent":
            raise Unreachable("gone")
        placed = self._writer.append(messages)
        if fate == "no answer":
            raise Unreachable("gone")
        return placed

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyLog]:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    log = LossyLog(tmp_path)
    log.ensure_topics([*output_topics(TOPICS), TopicSpec("dead")])
    yield log
    log.close()


def point(number: int) -> list[StoredMessage]:
    """What the journal holds of one point."""
    fields = {"time_point": number, "closed": 1000 * number, "journal_id": "j"}
    found = [
        Message(TOPICS.releases, messages.encode({"kind": "repeat", "histogram": "a", **fields}), key=b"a"),
        Message(TOPICS.releases, messages.encode({"kind": "repeat", "histogram": "b", **fields}), key=b"b"),
        Message(TOPICS.head, messages.encode({"kind": "head", **fields}), key=b"s"),
    ]
    return [
        StoredMessage(10 * number + place, number, message, message_digest(message))
        for place, message in enumerate(found)
    ]


def values(log: FileLog, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    reader = log.reader({partition: 0})
    found: list[bytes | None] = []
    while reader.positions()[partition] < log.end_offsets([topic])[partition]:
        found += [value for batch in reader.poll() for value in batch.values]
    reader.close()
    return found


def wait(publisher: Publisher) -> None:
    deadline = time.monotonic() + PATIENCE
    while not publisher.is_idle:
        publisher.published()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("fate", ["well", "not sent", "no answer"])
def test_each_point_is_there_once_and_in_order(log, fate):
    log.plan = ["well", fate, "not sent", fate]
    publisher = Publisher(log, TOPICS, "me", log.writer("me"), 0)
    for number in (1, 2, 3):
        publisher.publish(point(number))
    deadline = time.monotonic() + PATIENCE
    marked: list[int] = []
    while len(marked) < 9:
        marked += publisher.published()
        assert time.monotonic() < deadline
    publisher.close()
    assert marked == [stored.sequence for number in (1, 2, 3) for stored in point(number)]
    expected = [stored.message.value for number in (1, 2, 3) for stored in point(number)[:2]]
    assert values(log, TOPICS.releases) == expected


class Heard(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def publish_failed(self) -> None:
        self.said.append("failed")

    def publish_recovered(self) -> None:
        self.said.append("recovered")


def test_it_says_when_the_output_fails_and_when_it_takes_something_again(log):
    log.plan = ["well", "not sent", "no answer", "well", "well"]
    heard = Heard()
    publisher = Publisher(log, TOPICS, "me", log.writer("me"), 0, observer=heard)
    for number in (1, 2, 3):
        publisher.publish(point(number))
        wait(publisher)
    publisher.close()
    assert heard.said == ["failed", "failed", "recovered"]


def test_what_is_queued_is_not_queued_again(log):
    publisher = Publisher(log, TOPICS, "me", log.writer("me"), 0)
    publisher.publish(point(1))
    publisher.publish(point(1))
    wait(publisher)
    publisher.close()
    assert len(values(log, TOPICS.head)) == 1


def test_another_daemon_that_published_meanwhile_ends_this_one(log):
    writer = log.writer("other")
    writer.append([stored.message for stored in point(2)])
    writer.close()
    log.plan = ["not sent"]
    publisher = Publisher(log, TOPICS, "me", log.writer("me"), 0)
    publisher.publish(point(1))
    with pytest.raises(Fenced, match="hold time point 2"):
        wait(publisher)
    publisher.close()
    assert len(values(log, TOPICS.head)) == 1


@pytest.mark.parametrize("what", ["a point", "dead letters"])
def test_the_register_tells_of_another_daemon_too(log, what):
    """After a horizon's end the head does not move, and results of another copy look like nothing at all."""
    log.ensure_topics([TopicSpec(OWNERS, cleanup="compact")])
    writer = log.writer("other")
    writer.append([Message(OWNERS, b"mine", key=b"input")])
    log.plan = ["well", "not sent"]
    publisher = Publisher(log, TOPICS, "me", log.writer("me"), 0, register={b"input": b"mine"})
    publisher.publish(point(1), [Message(OWNERS, b"mine, at point 1", key=b"input")])
    wait(publisher)
    log.plan = ["well", "not sent"]
    writer.append([Message(OWNERS, b"a copy's", key=b"input")])
    writer.close()
    if what == "a point":
        publisher.publish(point(2), [Message(OWNERS, b"mine, at point 2", key=b"input")])
    else:
        letters(publisher, 0, 3)
    with pytest.raises(Fenced, match="another copy"):
        wait(publisher)
    publisher.close()
    assert len(values(log, TOPICS.head)) == 1


def letters(publisher: Writer, first: int, count: int) -> None:
    sink = DeadLetterTopic(publisher, "dead")
    blobs = Blobs.from_list([b"bad-%d" % (first + i) for i in range(count)])
    offsets = np.arange(first, first + count, dtype=np.int64)
    batch = RecordBatch("in", 0, offsets, np.zeros(count, np.int64), blobs, blobs)
    none = np.zeros(0, np.int64)
    decoded = Decoded(
        rows=none,
        user=np.zeros((0, 2), np.uint64),
        record=None,
        ts=none,
        delete=np.zeros(0, np.bool_),
        codes=(),
        dropped_rows=none,
        rejected_rows=np.arange(count, dtype=np.int64),
        rejected_reasons=np.full(count, Reason.BAD_JSON.value),
    )
    sink.write(batch, decoded)
    sink.flush()


@pytest.mark.parametrize("fate", ["not sent", "no answer"])
def test_each_dead_letter_is_there_once(log, fate):
    log.plan = ["well", fate, fate]
    publisher = Publisher(log, TOPICS, "me", log.writer("me"), 0)
    letters(publisher, 0, 2_500)
    wait(publisher)
    assert publisher.letters_safe(0)
    publisher.close()
    assert values(log, "dead") == [b"bad-%d" % i for i in range(2_500)]


def test_dead_letters_fill_it_and_points_do_not_count(log, monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(module, "MAX_PUBLICATIONS", 3)
    log.plan = ["not sent"]
    publisher = Publisher(log, TOPICS, "me", log.writer("me"), 0)
    for number in (1, 2, 3):
        publisher.publish(point(number))
    assert publisher.is_full
    assert not publisher.is_full_of_letters
    letters(publisher, 0, 3_000)
    assert publisher.is_full_of_letters
    assert not publisher.letters_safe(5), "it does not wait for an output that does not answer"
    publisher.close()
