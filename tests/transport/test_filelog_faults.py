"""The embedded log under torn writes, damage, full disks, kills and company."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest
from contract import drain, values
from waiting import PATIENCE

from streamdp.transport.base import LogCorrupted, Message, TopicPartition, TopicSpec
from streamdp.transport.filelog import FileLog
from streamdp.transport.segment import segment_name

HERE = Path(__file__).parent
# Scripts import what tests do.
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
NAME = TopicPartition("t", 0)


def script(path: Path, *arguments: object) -> list[str]:
    return [sys.executable, str(path), *map(str, arguments)]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A log with three frames in one partition."""
    root = tmp_path / "log"
    with closing(FileLog(root, durable=False)) as log:
        log.ensure_topics([TopicSpec("t")])
        with closing(log.writer("test")) as writer:
            for number in range(3):
                writer.append([Message("t", b"value %d" % number, b"key"), Message("t", None)])
    return root


def frame_bounds(root: Path) -> list[int]:
    size = (root / "t/0" / segment_name(0)).stat().st_size
    length = (size - 16) // 3
    assert (size - 16) % 3 == 0
    return [16 + length * number for number in range(4)]


def test_a_torn_tail_is_cut_at_any_byte(three: Path) -> None:
    segment, end = three / "t/0" / segment_name(0), three / "t/0/end"
    begin, before = segment.stat().st_size, end.read_bytes()
    with closing(FileLog(three, durable=False)) as log, closing(log.writer("test")) as writer:
        writer.append([Message("t", b"value", b"key"), Message("t", None)])
        whole = segment.read_bytes()
        for length in range(begin, len(whole) + 1):
            for content in {whole[:length], whole[:length].ljust(len(whole), b"\0")}:
                # A crash in the middle of the append leaves the end as it was.
                segment.write_bytes(content)
                end.write_bytes(before)
                assert log.end_offsets(["t"])[NAME] == 6, "a reader stops before a torn tail"
                with closing(FileLog(three, durable=False)) as opened:
                    assert opened.end_offsets(["t"])[NAME] == (8 if content == whole else 6)
                assert segment.stat().st_size == (len(whole) if content == whole else begin)


def test_damage_anywhere_below_the_end_is_an_error_that_names_the_place(three: Path) -> None:
    segment = three / "t/0" / segment_name(0)
    whole = segment.read_bytes()
    bounds = frame_bounds(three)
    for position in range(len(whole)):
        segment.write_bytes(whole[:position] + bytes([whole[position] ^ 0x40]) + whole[position + 1 :])
        frame = max((bound for bound in bounds[:3] if bound <= position), default=0)
        with (
            pytest.raises(LogCorrupted, match=rf"{segment}: damaged at byte {frame}:"),
            closing(FileLog(three, durable=False)) as log,
        ):
            drain(log, ["t"])


@pytest.mark.parametrize("lost", [1, 30, 100])
def test_committed_records_cut_off_are_an_error(three: Path, lost: int) -> None:
    segment = three / "t/0" / segment_name(0)
    with closing(FileLog(three, durable=False)) as log:
        os.truncate(segment, segment.stat().st_size - lost)
        with pytest.raises(LogCorrupted, match=str(segment)):
            drain(log, ["t"])
        with closing(log.writer("test")) as writer, pytest.raises(LogCorrupted, match=str(segment)):
            writer.append([Message("t", b"v")])


def test_a_damaged_end_is_an_error(three: Path) -> None:
    end = three / "t/0/end"
    end.write_bytes(bytes(len(end.read_bytes())))
    with pytest.raises(LogCorrupted, match=f"{end}: damaged"):
        FileLog(three)


@pytest.mark.parametrize("slot", [0, 64])
def test_an_end_half_written_falls_back_and_catches_up(three: Path, slot: int) -> None:
    end = three / "t/0/end"
    whole = end.read_bytes()
    end.write_bytes(whole[: slot + 20] + b"\xff" + whole[slot + 21 :])
    with closing(FileLog(three)) as log:
        assert log.end_offsets(["t"])[NAME] == 6


def test_an_end_left_behind_by_a_power_cut_catches_up_over_segments(tmp_path: Path) -> None:
    """`end` is not synced at each append, so the disk may hold any earlier one."""
    topics = ["t", "u"]
    with closing(FileLog(tmp_path, segment_bytes=400, durable=False)) as log:
        log.ensure_topics(TopicSpec(topic) for topic in topics)
        ends = []
        with closing(log.writer("test")) as writer:
            for number in range(12):
                ends.append((tmp_path / "t/0/end").read_bytes())
                writer.append([Message(topic, b"%d" % number * 40) for topic in topics[: 1 + number % 2]])
    for end in ends:
        (tmp_path / "t/0/end").write_bytes(end)
        with closing(FileLog(tmp_path, segment_bytes=400, durable=False)) as log:
            assert values(drain(log, topics)[NAME]) == [b"%d" % number * 40 for number in range(12)]


def test_a_middle_damaged_while_the_end_is_behind_is_not_taken_for_a_torn_tail(tmp_path: Path) -> None:
    with closing(FileLog(tmp_path, segment_bytes=400, durable=False)) as log:
        log.ensure_topics([TopicSpec("t")])
        end = (tmp_path / "t/0/end").read_bytes()
        with closing(log.writer("test")) as writer:
            for _ in range(10):
                writer.append([Message("t", b"v" * 40)])
    (tmp_path / "t/0/end").write_bytes(end)
    segment = tmp_path / "t/0" / segment_name(0)
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    with pytest.raises(LogCorrupted, match="later segment"):
        FileLog(tmp_path)


@pytest.mark.slow
def test_a_crash_at_every_file_operation_leaves_all_or_nothing(tmp_path: Path) -> None:
    subprocess.run(script(HERE / "crash_steps.py", tmp_path / "log"), check=True, cwd=HERE, env=ENVIRONMENT)


@pytest.mark.slow
def test_kills_at_random_leave_all_or_nothing_and_lose_nothing_acknowledged(tmp_path: Path) -> None:
    topics = ["a", "b", "c"]
    chance = random.Random(20)
    with closing(FileLog(tmp_path)) as log:
        log.ensure_topics(TopicSpec(topic) for topic in topics)
        written = 0
        for _ in range(20):
            process = subprocess.Popen(script(HERE / "log_feeder.py", tmp_path, "w", 1 << 30, *topics), stdout=-1)
            assert process.stdout is not None
            process.stdout.readline()
            deadline = time.monotonic() + chance.random() * 0.15
            while time.monotonic() < deadline:
                [ahead] = log.end_offsets(["a"]).values()
                assert min(log.end_offsets(["b", "c"]).values()) >= ahead, "a reader saw part of an append"
            process.kill()
            numbers = process.stdout.read().split()
            process.stdout.close()
            process.wait()
            acknowledged = int(numbers[-1]) + 1 if numbers else written
            survivors = {len(rows) for rows in drain(log, topics).values()}
            assert len(survivors) == 1, "part of an append survived"
            assert min(survivors) >= acknowledged
            written = min(survivors)
        found = [values(rows) for rows in drain(log, topics).values()]
        assert found[0] == found[1] == found[2] == [f"w {n}".encode().ljust(n % 300) for n in range(len(found[0]))]


def test_processes_share_a_partition_while_another_reads(tmp_path: Path) -> None:
    with closing(FileLog(tmp_path)) as log:
        log.ensure_topics([TopicSpec("t")])
        processes = [
            subprocess.Popen(script(HERE / "log_feeder.py", tmp_path, identity, 150, "t"), stdout=subprocess.DEVNULL)
            for identity in "xy"
        ]
        found: list[bytes] = []
        with closing(log.reader({NAME: 0})) as reader:
            deadline = time.monotonic() + PATIENCE
            while len(found) < 300 and time.monotonic() < deadline:
                found += [value or b"" for batch in reader.poll(timeout=1.0) for value in batch.values]
        assert [process.wait() for process in processes] == [0, 0]
        for identity in "xy":
            mine = [value.strip().decode() for value in found if value.startswith(identity.encode())]
            assert mine == [f"{identity} {number}" for number in range(150)]


FULL_DISK = textwrap.dedent(
    """
    import resource, sys
    from contextlib import closing
    from contract import drain, values
    from streamdp.transport.base import DiskFull, Message, TopicSpec
    from streamdp.transport.filelog import FileLog

    root, limit = sys.argv[1], int(sys.argv[2])
    topics = ["a", "b"]
    log = FileLog(root)
    log.ensure_topics(TopicSpec(topic) for topic in topics)
    writer = log.writer("w")
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    expected = {topic: [] for topic in topics}
    refused = 0
    for number in range(1000):
        wanted = topics if number % 3 else ["b"]
        value = b"%06d" % number * (700 if number % 2 else 100)
        try:
            writer.append([Message(topic, value) for topic in wanted])
        except DiskFull:
            refused += 1
            if refused == 8:
                break
        else:
            for topic in wanted:
                expected[topic].append(value)
        found = {name.topic: values(rows) for name, rows in drain(log, topics).items()} if refused else expected
        assert found == expected, number
    assert refused == 8 and len(expected["a"]) > 5, refused
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        writer.append([Message(topic, b"room again") for topic in topics])
        for topic in topics:
            expected[topic].append(b"room again")
    writer.close()
    with closing(FileLog(root)) as again:
        assert {name.topic: values(rows) for name, rows in drain(again, topics).items()} == expected
    """
)


def run_full_disk(root: Path, limit: int) -> None:
    subprocess.run([sys.executable, "-c", FULL_DISK, str(root), str(limit)], check=True, cwd=HERE, env=ENVIRONMENT)


def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    run_full_disk(tmp_path / "log", 100_000)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root; the size limit test stands in")
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    mount, umount = shutil.which("mount"), shutil.which("umount")
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        mount is None
        or umount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("tmpfs cannot be mounted here; the size limit test stands in")
    try:
        run_full_disk(disk / "log", 0)
    finally:
        subprocess.run([umount, str(disk)], check=True)
