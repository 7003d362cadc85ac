"""Dead letters: every rejected row once, with its reason, and private."""

import base64
import json
import logging
import os
import stat
import time
from dataclasses import replace

import numpy as np
import pytest

from streamdp.domain import Attribute, Domain
from streamdp.errors import StreamdpError
from streamdp.ingest import DeadLetterFile, DeadLetterTopic, Decoder, Reason, last_offsets
from streamdp.transport.base import TopicPartition, TopicSpec
from streamdp.transport.batch import Blobs, RecordBatch
from streamdp.transport.filelog import FileLog
from streamdp.transport.guard import Skip, Skips

DECODER = Decoder(Domain([Attribute.integer("age", 0, 9)]), digest_key=bytes(16))
GOOD = b'{"ts":1,"op":"upsert","record":{"age":3}}'
OUTSIDE = b'{"ts":1,"op":"upsert","record":{"age":30}}'


def batch_of(values, first=0, topic="in", partition=2, keys=None, headers=None):
    count = len(values)
    return RecordBatch(
        topic,
        partition,
        np.arange(first, first + count, dtype=np.int64),
        np.full(count, 99, np.int64),
        Blobs.from_list(keys or [b"k"] * count),
        Blobs.from_list(values),
        headers,
    )


def put(letters, batch):
    letters.write(batch, DECODER.decode(batch, None))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rejected_rows_become_lines_with_their_reason(tmp_path):
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path)
    put(letters, batch_of([GOOD, b"{\n", b"\xff", OUTSIDE], first=10, keys=[b"a", b"b", b"\xfe", b"d"]))
    letters.flush()
    letters.close()
    common = {"format": 2, "topic": "in", "partition": 2, "timestamp": 99}
    assert lines(path) == [
        {**common, "offset": 11, "reason": "BAD_JSON", "key": "b", "value": "{\n"},
        {
            **common,
            "offset": 12,
            "reason": "BAD_JSON",
            "key_base64": base64.b64encode(b"\xfe").decode(),
            "value_base64": base64.b64encode(b"\xff").decode(),
        },
        {**common, "offset": 13, "reason": "OUTSIDE_DOMAIN", "key": "d", "value": OUTSIDE.decode()},
    ]
    assert letters.counts == {Reason.BAD_JSON: 2, Reason.OUTSIDE_DOMAIN: 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_reading_the_input_again_writes_nothing_twice(tmp_path):
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path)
    put(letters, batch_of([b"{", GOOD, b"["]))
    put(letters, batch_of([b"{", GOOD, b"[", b"x"]))
    put(letters, batch_of([b"{"], partition=3))
    letters.close()
    again = DeadLetterFile(path)
    put(again, batch_of([b"{", GOOD, b"[", b"x", b"y"]))
    again.close()
    assert [(line["partition"], line["offset"]) for line in lines(path)] == [(2, 0), (2, 2), (2, 3), (3, 0), (2, 4)]
    assert again.counts == {Reason.BAD_JSON: 1}


def test_a_torn_last_line_is_cut_and_written_again(tmp_path):
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path)
    put(letters, batch_of([b"{", b"["]))
    letters.close()
    whole = path.read_bytes()
    for cut in (1, 20, len(whole) // 2 - 1):
        path.write_bytes(whole[: len(whole) - cut])
        again = DeadLetterFile(path)
        put(again, batch_of([b"{", b"["]))
        again.close()
        assert path.read_bytes() == whole


def test_a_damaged_middle_is_an_error_that_shows_nothing_of_it(tmp_path):
    path = tmp_path / "dead.jsonl"
    path.write_text('secret\n{"topic":"in"}\n')
    with pytest.raises(StreamdpError, match="line 1 of the dead letter file") as caught:
        DeadLetterFile(path)
    assert "secret" not in str(caught.value)


def test_an_existing_file_is_made_private_and_a_link_is_refused(tmp_path):
    path = tmp_path / "dead.jsonl"
    path.touch(mode=0o644)
    DeadLetterFile(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(StreamdpError, match="cannot open"):
        DeadLetterFile(link)


def test_a_full_disk_leaves_whole_lines_only(tmp_path, monkeypatch):
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path)
    put(letters, batch_of([b"{"]))
    real = os.pwrite

    def half(descriptor, content, place):
        real(descriptor, content[: len(content) // 2], place)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(StreamdpError, match="No space left"):
        put(letters, batch_of([b"["], first=5))
    assert [line["offset"] for line in lines(path)] == [0]
    monkeypatch.undo()
    put(letters, batch_of([b"["], first=5))
    letters.close()
    assert [line["offset"] for line in lines(path)] == [0, 5]


def test_a_topic_gets_the_message_as_it_came_with_its_context_in_headers(tmp_path):
    log = FileLog(tmp_path, durable=False)
    log.ensure_topics([TopicSpec("dead")])
    writer = log.writer("letters")
    letters = DeadLetterTopic(writer, "dead", last_offsets(log, "dead"))
    own = (("trace", b"1"),)
    put(letters, batch_of([b"{", GOOD, None], keys=[b"a", b"b", None], headers=(own, (), ())))
    letters.flush()
    put(letters, batch_of([b"{", GOOD, None, b"\xff"], keys=[b"a", b"b", None, b"c"]))
    letters.flush()
    letters.close()
    writer.close()
    (batch,) = log.reader({TopicPartition("dead", 0): 0}).poll()
    assert list(batch.keys) == [b"a", None, b"c"]
    assert list(batch.values) == [b"{", b"", b"\xff"]  # empty: neither key nor value cannot be sent everywhere
    assert batch.timestamps.tolist() == [99, 99, 99]
    assert batch.headers is not None
    assert batch.headers[0] == (
        ("trace", b"1"),
        ("__connect.errors.topic", b"in"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.offset", b"0"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.exception.class.name", b"streamdp.ingest.Reason"),
        ("__connect.errors.exception.message", b"BAD_JSON"),
    )
    assert dict(batch.headers[1])["__connect.errors.exception.message"] == b"NO_USER"
    assert letters.counts == {Reason.BAD_JSON: 2, Reason.NO_USER: 1}
    assert last_offsets(log, "dead") == {TopicPartition("in", 2): 3}
    log.close()


@pytest.mark.parametrize(
    ("value", "own"),
    [(b"{" * 1_100_000, ()), (b"{", (("trace", bytes(1_100_000)),)), (b"{", (("", b""),) * 110_000)],
)
def test_a_letter_is_never_longer_than_any_broker_takes(value, own):
    """One that the output refuses would stop the stream, and every start after it: by one user's message."""

    class Kept:
        def append(self, messages):
            (self.letter,) = messages

    kept = Kept()
    letters = DeadLetterTopic(kept, "dead")
    put(letters, batch_of([value], first=7, headers=(own,)))
    letters.flush()
    letter = kept.letter
    size = sum(len(name) + len(held) for name, held in letter.headers) + len(letter.value) + len(letter.key or b"")
    assert size < 1_000
    context = dict(letter.headers)
    assert context["__connect.errors.offset"] == b"7"
    assert context["streamdp.omitted"] == b"key, value and headers: too long"


def test_a_letter_is_not_dated_in_the_future():
    """Brokers refuse timestamps that are far ahead, and the input's may not have."""

    class Kept:
        def append(self, messages):
            (self.letter,) = messages

    kept = Kept()
    letters = DeadLetterTopic(kept, "dead")
    batch = batch_of([b"{"])
    batch.timestamps[:] = 2**62
    put(letters, batch)
    letters.flush()
    assert kept.letter.timestamp <= time.time() * 1_000


class Kept:
    """A writer that keeps what it is given."""

    def append(self, messages):
        (self.letter,) = messages


def test_what_is_too_large_leaves_only_its_place(tmp_path):
    small = Decoder(
        Domain([Attribute.integer("age", 0, 9)]), max_record_bytes=100, max_key_bytes=10, digest_key=bytes(16)
    )
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path)
    batch = batch_of([b"secret" * 20, GOOD], keys=[b"a", b"secret" * 2])
    letters.write(batch, small.decode(batch, None))
    letters.close()
    assert b"secret" not in path.read_bytes()
    assert [(line["offset"], line["reason"]) for line in lines(path)] == [(0, "TOO_LARGE"), (1, "TOO_LARGE")]
    kept = Kept()
    topic = DeadLetterTopic(kept, "dead")
    one = batch.slice(0, 1)
    topic.write(one, small.decode(one, None))
    topic.flush()
    assert kept.letter.key is None and kept.letter.value == b""
    assert dict(kept.letter.headers)["__connect.errors.exception.message"] == b"TOO_LARGE"


def test_what_is_skipped_is_not_looked_at_and_leaves_only_its_place(tmp_path):
    """Wherever it lies in the batch, its neighbours become what they are without it."""
    batch = batch_of([GOOD, b"secret", GOOD, b"{"], keys=[b"a", b"secret", b"secret", b"d"])
    name = TopicPartition(batch.topic, batch.partition)
    domain = Domain([Attribute.integer("age", 0, 9)])
    skipping = Decoder(domain, digest_key=bytes(16), skips=Skips([Skip(name, 1, 2), Skip(name, 70, 90)]))
    decoded, plain = skipping.decode(batch, None), Decoder(domain, digest_key=bytes(16)).decode(batch, None)
    assert decoded.rows.tolist() == [0] and (decoded.user[0] == plain.user[0]).all()
    assert decoded.rejected_by_reason() == {Reason.SKIPPED: 2, Reason.BAD_JSON: 1}
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path)
    letters.write(batch, decoded)
    letters.close()
    assert b"secret" not in path.read_bytes()
    reasons = [(line["offset"], line["reason"], "omitted" in line) for line in lines(path)]
    assert reasons == [(1, "SKIPPED", True), (2, "SKIPPED", True), (3, "BAD_JSON", False)]
    other = replace(batch, partition=batch.partition + 1)
    assert Reason.SKIPPED not in skipping.decode(other, None).rejected_by_reason()


LIMIT = 2_000


def files_of(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_a_full_file_is_moved_aside_and_the_oldest_goes(tmp_path, caplog):
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path, LIMIT, keep=2)
    with caplog.at_level(logging.WARNING):
        for first in range(0, 100, 5):
            put(letters, batch_of([b"{" * 50] * 5, first=first))
    letters.flush()
    letters.close()
    assert files_of(path) == ["dead.jsonl", "dead.jsonl.1", "dead.jsonl.2"]
    offsets = []
    for name in reversed(files_of(path)):
        file = tmp_path / name
        assert file.stat().st_size <= LIMIT and stat.S_IMODE(file.stat().st_mode) == 0o600
        offsets += [line["offset"] for line in lines(file) if "offset" in line]
    assert len(offsets) > 20 and offsets == list(range(100 - len(offsets), 100))
    assert not caplog.records, "whether it is full depends on what users sent"


@pytest.mark.parametrize("keep", [0, 1])
def test_after_a_rotation_nothing_is_written_twice(tmp_path, keep):
    """The new file knows how far the letters before it go, those of other partitions included."""
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path, LIMIT, keep)
    put(letters, batch_of([b"{"], partition=7))
    for first in range(0, 40, 5):
        put(letters, batch_of([b"{" * 50] * 5, first=first))
    letters.close()
    before = path.read_bytes()
    assert "last" in lines(path)[0] and len(files_of(path)) == 1 + keep
    again = DeadLetterFile(path, LIMIT, keep)
    put(again, batch_of([b"{"], partition=7))
    put(again, batch_of([b"{" * 50] * 40))
    assert not again.counts and path.read_bytes() == before
    put(again, batch_of([b"{"], first=1, partition=7))
    again.close()
    assert lines(path)[-1]["partition"] == 7


@pytest.mark.parametrize("step", ["link", "replace", "fsync"])
def test_a_crash_while_a_file_is_moved_aside_loses_no_place(tmp_path, monkeypatch, step):
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path, LIMIT, keep=3)

    def crash(*_):
        raise KeyboardInterrupt

    put(letters, batch_of([b"{" * 50] * 5))
    with monkeypatch.context() as patch:
        patch.setattr(os, step, crash)
        with pytest.raises(KeyboardInterrupt):
            put(letters, batch_of([b"{" * 50] * 20, first=5))
    letters.close()
    again = DeadLetterFile(path, LIMIT, keep=3)
    put(again, batch_of([b"{" * 50] * 25))
    again.close()
    found = {}
    for name in files_of(path):
        for line in lines(tmp_path / name):
            if "offset" in line:
                found.setdefault(line["offset"], set()).add((tmp_path / name).stat().st_ino)
    assert sorted(found) == list(range(25))
    assert all(len(places) == 1 for places in found.values())


def test_a_letter_too_long_for_the_file_leaves_its_place(tmp_path):
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path, LIMIT, keep=1)
    put(letters, batch_of([b"{" * 5_000, b"{"]))
    letters.close()
    assert path.stat().st_size <= LIMIT
    assert [(line["offset"], "value" in line) for line in lines(path)] == [(0, False), (1, True)]
