"""The embedded log: the contract of every transport, and its own files."""

from __future__ import annotations

import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from contract import TransportContract, drain, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamdp.transport.base import Message, OffsetGone, TopicPartition, TopicSpec, TransportError, UnknownTopic
from streamdp.transport.filelog import FileLog

NAME = TopicPartition("t", 0)


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[FileLog]:
    with closing(FileLog(tmp_path / "log", durable=False)) as log:
        yield log


class TestFileLogContract(TransportContract):
    pass


def small_log(root: Path, *specs: TopicSpec) -> FileLog:
    log = FileLog(root, segment_bytes=400, durable=False)
    log.ensure_topics(specs or [TopicSpec("t")])
    return log


def append(log: FileLog, *messages: Message) -> None:
    with closing(log.writer("test")) as writer:
        for message in messages:
            writer.append([message])


def test_everything_is_private(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log", segment_bytes=400)
    log.ensure_topics([TopicSpec("t", 2)])
    with closing(log.writer("test")) as writer:
        for _ in range(5):
            writer.append([Message("t", b"v" * 100, partition=0), Message("t", b"v" * 100, partition=1)])
        for path in [tmp_path / "log", *(tmp_path / "log").rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_segments_roll_and_are_read_through(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    append(log, *(Message("t", b"%d" % i * 50) for i in range(20)))
    assert len(list((tmp_path / "t" / "0").glob("*.log"))) > 5
    assert values(drain(log, ["t"])[NAME]) == [b"%d" % i * 50 for i in range(20)]
    for offset in range(21):
        with closing(log.reader({NAME: offset})) as reader:
            found: list[bytes | None] = []
            while reader.positions()[NAME] < 20:
                found += [value for batch in reader.poll() for value in batch.values]
            assert found == [b"%d" % i * 50 for i in range(offset, 20)]


def test_a_deleted_offset_is_gone(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    append(log, *(Message("t", b"v" * 100) for _ in range(20)))
    log.delete_before(NAME, 10)
    begin = log.begin_offsets(["t"])[NAME]
    assert 0 < begin <= 10
    assert len(drain(log, ["t"])[NAME]) == 20 - begin
    with closing(log.reader({NAME: begin - 1})) as reader, pytest.raises(OffsetGone, match="no longer there"):
        reader.poll()


def test_a_reader_finishes_the_segment_it_has_open_then_learns_of_the_gap(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    append(log, *(Message("t", b"v" * 50) for _ in range(20)))
    with closing(log.reader({NAME: 0})) as reader:
        reader.poll(max_bytes=1)
        assert reader.positions()[NAME] == 1
        log.delete_before(NAME, 20)
        reader.poll(max_bytes=1)
        assert reader.positions()[NAME] == 2
        with pytest.raises(OffsetGone):
            reader.poll()


def test_old_segments_go_when_a_new_one_starts(tmp_path: Path) -> None:
    log = small_log(tmp_path, TopicSpec("t", retention_ms=0))
    append(log, *(Message("t", b"v" * 100) for _ in range(20)))
    assert len(list((tmp_path / "t" / "0").glob("*.log"))) == 1
    assert log.begin_offsets(["t"])[NAME] > 10


def test_compaction_keeps_the_newest_of_every_key_at_its_offset(tmp_path: Path) -> None:
    log = small_log(tmp_path, TopicSpec("t", cleanup="compact"))
    messages = [Message("t", b"%d" % i * 30, b"k%d" % (i % 3), i, (("h", b"%d" % i),)) for i in range(30)]
    append(log, Message("t", b"no key"), Message("t", b"only", b"once"), *messages, Message("t", None, b"k0"))
    log.compact("t")
    found = drain(log, ["t"])[NAME]
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets)) and len(found) < 12
    assert found[0][3] == b"no key" and found[1][3] == b"only"
    latest = {row[2]: row for row in found}
    assert latest[b"k0"][3] is None
    assert latest[b"k1"] == (30, 28, b"k1", b"28" * 30, (("h", b"28"),))
    assert log.begin_offsets(["t"])[NAME] == 0 and log.end_offsets(["t"])[NAME] == 33
    for offset in range(34):
        with closing(log.reader({NAME: offset})) as reader:
            seen: list[int] = []
            while reader.positions()[NAME] < 33:
                seen += [o for batch in reader.poll() for o in batch.offsets.tolist()]
            assert seen == [o for o in offsets if o >= offset]


def test_partitions_can_be_added(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    identity = log.topic_id("t")
    log.add_partitions("t", 3)
    assert log.partitions("t") == [0, 1, 2] and log.topic_id("t") == identity
    append(log, Message("t", b"v", partition=2))
    assert log.end_offsets(["t"]) == {NAME: 0, TopicPartition("t", 1): 0, TopicPartition("t", 2): 1}


def test_a_topic_created_again_has_a_new_id_and_an_open_writer_writes_to_it(tmp_path: Path) -> None:
    log = small_log(tmp_path)
    identity = log.topic_id("t")
    with closing(log.writer("test")) as writer:
        writer.append([Message("t", b"old")])
        shutil.rmtree(tmp_path / "t")
        with pytest.raises(UnknownTopic):
            writer.append([Message("t", b"lost")])
        log.ensure_topics([TopicSpec("t")])
        assert log.topic_id("t") != identity
        writer.append([Message("t", b"new")])
    with closing(FileLog(tmp_path)) as other:
        assert values(drain(other, ["t"])[NAME]) == [b"new"]


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "x" * 250, "ä"])
def test_a_topic_name_cannot_leave_the_log(tmp_path: Path, name: str) -> None:
    log = small_log(tmp_path)
    with pytest.raises(TransportError, match="cannot name a topic"):
        log.ensure_topics([TopicSpec(name)])
    with pytest.raises(UnknownTopic):
        log.partitions(name)


def test_another_format_is_refused(tmp_path: Path) -> None:
    small_log(tmp_path).close()
    description = tmp_path / "log.json"
    description.write_text(description.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(TransportError, match="format"):
        FileLog(tmp_path)


def test_a_log_is_not_created_by_looking(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="no log"):
        FileLog(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()


def test_threads_share_a_partition(tmp_path: Path) -> None:
    log = small_log(tmp_path)

    def feed(number: int) -> None:
        with closing(log.writer(f"feeder {number}")) as writer:
            for i in range(50):
                writer.append([Message("t", b"%d.%d" % (number, i))])

    threads = [threading.Thread(target=feed, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = values(drain(log, ["t"])[NAME])
    assert sorted(v or b"" for v in found) == sorted(b"%d.%d" % (n, i) for n in range(4) for i in range(50))


BYTES = st.none() | st.binary(max_size=40)
RECORD = st.tuples(
    st.sampled_from(["a", "b"]),
    BYTES,
    BYTES,
    st.integers(0, 2**62),
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.binary(max_size=5)), max_size=2
    ),
)
STEP = st.lists(RECORD, max_size=8) | st.sampled_from(["reopen", "cut the end short"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=12))
@pytest.mark.slow
def test_any_history_reads_as_a_list_would(tmp_path_factory: pytest.TempPathFactory, steps: list[object]) -> None:
    root = tmp_path_factory.mktemp("model")
    model: dict[str, list[object]] = {"a": [], "b": []}
    log = small_log(root, TopicSpec("a"), TopicSpec("b"))
    writer = log.writer("model")
    for step in steps:
        if isinstance(step, list):
            messages = [Message(t, v, k, ts, tuple(h)) for t, k, v, ts, h in step]
            placed = writer.append(messages)
            for message, (name, offset) in zip(messages, placed, strict=True):
                assert (name.topic, offset) == (message.topic, len(model[message.topic]))
                model[message.topic].append((offset, message.timestamp, message.key, message.value, message.headers))
        else:
            writer.close()
            log.close()
            if step == "cut the end short":
                for segment in root.glob("?/0/*.log"):
                    if segment.name == max(p.name for p in segment.parent.glob("*.log")):
                        with segment.open("ab") as file:
                            file.write(b"SDPF torn")
            log = FileLog(root, segment_bytes=400, durable=False)
            writer = log.writer("model")
        assert {name.topic: found for name, found in drain(log, ["a", "b"]).items()} == model
    writer.close()
    log.close()
