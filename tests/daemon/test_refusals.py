"""What a daemon must refuse, and the message that says what to do. Real processes, real files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
from harness import Stream
from waiting import PATIENCE

from streamdp import messages
from streamdp.config import load
from streamdp.config.transports import open_input, open_output
from streamdp.daemon.claims import Owners
from streamdp.daemon.write_off import plan_write_off
from streamdp.journal import JournalReader

pytestmark = pytest.mark.slow


@pytest.fixture
def stream(tmp_path) -> Stream:
    stream = Stream(tmp_path, guarantee="window = 300")
    stream.feed(200)
    stream.run_until(points=4)
    return stream


def refused(stream: Stream) -> str:
    """Starts a daemon that must end by itself with exit code 1 or 2; returns what it said."""
    done = streamdp(stream, "run")
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def streamdp(stream: Stream, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, with the configuration in its place: after a verb, or after `journal` and its verb."""
    verbs = 2 if words[0] == "journal" else 1
    command = [sys.executable, "-m", "streamdp", *words[:verbs], str(stream.path), *words[verbs:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def journal_files(stream: Stream):
    path = stream.config.journal_path
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def copy_journal(stream: Stream, to) -> None:
    to.mkdir()
    for file in journal_files(stream):
        if file.exists():
            shutil.copy2(file, to / file.name)


def restore_journal(stream: Stream, copy) -> None:
    for file in journal_files(stream):
        file.unlink(missing_ok=True)
    for file in copy.iterdir():
        shutil.copy2(file, stream.config.journal_path.parent / file.name)


def test_two_daemons_at_once(stream):
    lines = stream.log_text().count("running")
    first = stream.start()
    stream.wait(lambda: stream.log_text().count("running") > lines, first)
    said = refused(stream)
    assert f"is written by process {first.pid}" in said
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0
    stream.check()


def run_shadow(path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamdp", "run", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_second_daemon_with_a_journal_of_its_own_is_shut_out_of_the_input(stream, tmp_path):
    other = tmp_path / "other.toml"
    text = stream.path.read_text().replace('name = "clinic"', 'name = "shadow"')
    other.write_text(text.replace("state/journal.db", "elsewhere/journal.db"))
    goal = stream.last_published() + 1
    first = stream.start()
    try:
        stream.wait(lambda: stream.last_published() >= goal, first)
        assert run_shadow(other).returncode == 1
    finally:
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE) == 0
    # And also when the first one is not running: the input remembers whose it is.
    shadow = run_shadow(other)
    assert shadow.returncode == 1
    assert "belongs to another journal" in shadow.stderr


def test_an_old_copy_of_the_journal(stream, tmp_path):
    copy_journal(stream, tmp_path / "copy")
    stream.run_until(points=4)
    before = stream.outputs()
    restore_journal(stream, tmp_path / "copy")
    said = refused(stream)
    assert "old copy" in said
    assert "write-off" in said
    assert stream.outputs() == before


def test_a_journal_that_was_deleted_while_output_exists(stream):
    for file in journal_files(stream):
        file.unlink(missing_ok=True)
    before = stream.outputs()
    said = refused(stream)
    assert "another journal" in said
    assert "write-off" in said
    assert stream.outputs() == before


def test_writing_off_lets_an_old_copy_go_on_without_spending_twice(tmp_path):
    stream = Stream(tmp_path, guarantee="window = 70")
    stream.feed(200)
    stream.run_until(points=4)
    copy_journal(stream, tmp_path / "copy")
    stream.run_until(points=4)
    published = stream.last_published()
    restore_journal(stream, tmp_path / "copy")
    plan = streamdp(stream, "journal", "write-off")
    assert plan.returncode == 1
    assert f"nothing is released before time point {published + 70}" in plan.stdout
    done = streamdp(stream, "journal", "write-off", "--yes", "--reason", "restored from a backup")
    assert done.returncode == 0, done.stderr
    before = stream.outputs()
    stream.feed(100)
    stream.run_until(points=75)
    after = [messages.decode(value).header for value in stream.outputs()[len(before) :]]
    assert stream.outputs()[: len(before)] == before
    quiet = [header for header in after if header["time_point"] < published + 70]
    assert {header["kind"] for header in quiet} == {"repeat"}
    assert any(header["kind"] == "release" for header in after if header["time_point"] >= published + 70)
    stream.check_population()
    again = streamdp(stream, "journal", "write-off", "--yes")
    assert (again.returncode, "nothing to write off" in again.stdout) == (0, True)


def test_writing_off_a_lost_journal_begins_a_new_one_that_waits(stream):
    for file in journal_files(stream):
        file.unlink(missing_ok=True)
    published = stream.last_published()
    done = streamdp(stream, "journal", "write-off", "--yes")
    assert done.returncode == 0, done.stderr
    before = stream.outputs()
    stream.run_until(points=3)
    after = [messages.decode(value).header for value in stream.outputs()[len(before) :]]
    # A slow machine may get beyond the window.
    assert {header["kind"] for header in after if header["time_point"] < published + 300} == {"repeat"}
    assert min(header.get("first_missed", header["time_point"]) for header in after) == published + 1
    stream.check_population()


def test_writing_off_when_journal_and_outputs_are_lost(tmp_path):
    """Nobody can tell what was published then, so everything up to now is regarded as spent."""
    stream = Stream(tmp_path, guarantee="window = 30")
    stream.feed(200)
    stream.run_until(points=4)
    shutil.rmtree(stream.config.journal_path.parent)
    for topic in stream.config.output_topics:
        shutil.rmtree(stream.directory / "log" / topic)
    assert "write-off" in refused(stream)
    plan = streamdp(stream, "journal", "write-off")
    assert (plan.returncode, "belongs to another journal" in plan.stdout) == (1, True)
    assert "nothing is released before time point 31" in plan.stdout
    done = streamdp(stream, "journal", "write-off", "--yes")
    assert done.returncode == 0, done.stderr
    stream.run_until(points=35)
    headers = [messages.decode(value).header for value in stream.outputs()]
    assert {header["kind"] for header in headers if header["time_point"] < 31} == {"repeat"}
    assert any(header["kind"] == "release" for header in headers if header["time_point"] >= 31)
    stream.check_population()


def test_a_crash_while_an_input_is_taken_over_does_not_lose_the_write_off(stream, tmp_path, monkeypatch):
    path = tmp_path / "other.toml"
    path.write_text(stream.path.read_text().replace("state/journal.db", "other/journal.db"))
    config = load(path)

    def die(*arguments):
        raise KeyboardInterrupt

    for topic in config.output_topics:
        shutil.rmtree(stream.directory / "log" / topic)
    with closing(open_input(config)) as source, closing(open_output(config)) as target:
        for at in ("take_over", "record"):  # before and after the journal holds it
            with monkeypatch.context() as crash, pytest.raises(KeyboardInterrupt):
                crash.setattr(Owners, at, die)
                with plan_write_off(config, source, target) as plan:
                    plan.carry_out("lost")
            assert run_shadow(path).returncode == 1
        with plan_write_off(config, source, target) as plan:
            assert plan.needed
            plan.carry_out("lost")
            until = plan.until
        with plan_write_off(config, source, target) as plan:
            assert not plan.needed
    with JournalReader.open(config.journal_path) as journal:
        assert journal.written_off_until() == until >= 1


def test_another_streams_spending_counts_until_now_when_its_input_is_taken_over(stream, tmp_path):
    """Its outputs are elsewhere, so those of this stream, long at rest, do not tell how far it came."""
    time.sleep(1.5)  # fifteen points
    other = tmp_path / "other"
    other.mkdir()
    path = other / "clinic.toml"
    path.write_text(stream.path.read_text().replace('path = "log"', 'path = "../log"'))
    taken = subprocess.run(
        [sys.executable, "-m", "streamdp", "journal", "write-off", str(path), "--yes"], capture_output=True, check=False
    )
    assert taken.returncode == 0, taken.stderr
    assert "belongs to another journal" in refused(stream)
    published = stream.last_published()
    plan = streamdp(stream, "journal", "write-off")
    until = int(plan.stdout.split("time point ")[1].split(",")[0])
    assert until > published + 10


def test_writing_off_a_finite_horizon_ends_all_spending(tmp_path):
    stream = Stream(tmp_path, guarantee="horizon = 4000", strategy="dsft", parameters="releases = 5\nthreshold = 20")
    stream.feed(200)
    stream.run_until(points=4)
    copy_journal(stream, tmp_path / "copy")
    stream.run_until(points=4)
    restore_journal(stream, tmp_path / "copy")
    assert "whole budget as spent" in streamdp(stream, "journal", "write-off", "--yes").stdout
    before = stream.outputs()
    stream.feed(200)
    stream.run_until(points=6)
    after = [messages.decode(value).header for value in stream.outputs()[len(before) :]]
    assert {header["kind"] for header in after} == {"repeat"}


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('epsilon = "1"', 'epsilon = "2"', "epsilon"),
        ("window = 300", "window = 10", "window"),
        ("releases = 5", "releases = 6", "does not change"),
        ('length = "100ms"', 'length = "200ms"', "time.length"),
        ("high = 99", "high = 119", "domain.age"),
        ('name = "clinic"', 'name = "hospital"', "stream.name"),
        ('clock = "wall"', 'clock = "event"', "replay"),
    ],
)
def test_what_may_not_change_under_a_ledger(stream, old, new, complaint):
    text = stream.path.read_text()
    if "clock" in old:
        text = text.replace("[time]", '[time]\nclock = "wall"')
    assert old in text
    stream.path.write_text(text.replace(old, new, 1))
    assert complaint in refused(stream)


def test_a_journal_of_another_input(stream):
    shutil.rmtree(stream.directory / "log")
    Stream(stream.directory)
    stream.feed(50)
    assert "belongs to the input" in refused(stream)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_stops_the_daemon_and_nothing_is_lost(tmp_path):
    stream = Stream(tmp_path)
    small = tmp_path / "state"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        stream.feed(200)
        process = stream.start()
        code = process.wait(PATIENCE)
        said = stream.log_text()
        assert code == 1, said
        assert "Traceback" not in said
        assert "full" in said or "room" in said or "space" in said
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        stream.run_until(points=3)
        stream.check()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_read_only_journal(stream):
    if os.geteuid() == 0:
        # Root writes through permissions; only an immutable file stops it.
        done = subprocess.run(["chattr", "+i", str(stream.config.journal_path)], check=False)
        if done.returncode:
            pytest.skip("cannot make a file immutable here")
    else:
        stream.config.journal_path.chmod(0o400)
    try:
        said = refused(stream)
        assert "cannot be written" in said or "permission" in said.lower() or "read-only" in said
    finally:
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-i", str(stream.config.journal_path)], check=True)


def test_output_nobody_here_wrote(stream):
    from streamdp.transport.base import Message
    from streamdp.transport.filelog import FileLog

    foreign = messages.encode({"kind": "repeat", "histogram": "wards", "time_point": stream.last_published()})
    log = FileLog(stream.directory / "log")
    writer = log.writer("stranger")
    writer.append([Message("clinic.releases", foreign, key=b"wards")])
    writer.close()
    log.close()
    assert "never stored" in refused(stream)


def test_input_that_is_gone(stream):
    checkpoints = stream.config.checkpoint_path
    for path in checkpoints.iterdir():
        path.unlink()
    from streamdp.transport.base import Message, TopicPartition
    from streamdp.transport.filelog import FileLog

    log = FileLog(stream.directory / "log", segment_bytes=1)
    writer = log.writer("feeder")
    writer.append([Message("visits", b"{}", key=b"x", partition=0)])
    writer.append([Message("visits", b"{}", key=b"x", partition=0)])
    end = log.end_offsets(["visits"])[TopicPartition("visits", 0)]
    log.delete_before(TopicPartition("visits", 0), end - 1)
    writer.close()
    log.close()
    said = refused(stream)
    assert "--accept-gap" in said
    goes_on_with_a_gap(stream)


def goes_on_with_a_gap(stream: Stream) -> None:
    goal = stream.last_published() + 2
    process = stream.start(options=("--accept-gap",))
    stream.wait(lambda: stream.last_published() >= goal, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, stream.log_text()


def test_a_release_waits_for_its_public_offset_and_survives_a_stop(tmp_path):
    stream = Stream(tmp_path)
    stream.path.write_text(stream.path.read_text().replace("[time]", '[time]\npublish_after = "1h"'))
    stream.feed(50)
    process = stream.start()
    stream.wait(lambda: "time point closed" in stream.log_text(), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert stream.outputs() == []
    with JournalReader.open(stream.config.journal_path) as journal:
        owed = journal.last_time_point
        assert journal.unpublished()
    # A restart does not let it out any sooner.
    lines = stream.log_text().count("time point closed")
    process = stream.start()
    stream.wait(lambda: stream.log_text().count("time point closed") > lines, process)
    process.kill()
    process.wait(PATIENCE)
    assert stream.outputs() == []
    # Once its moment has come, it leaves as it was stored.
    stream.path.write_text(stream.path.read_text().replace('publish_after = "1h"', 'publish_after = "0s"'))
    stream.run_until(points=owed + 1)
    stream.check()


def test_a_second_signal_ends_a_stop_that_waits_for_a_release(tmp_path):
    stream = Stream(tmp_path)
    stream.path.write_text(stream.path.read_text().replace("[time]", '[time]\npublish_after = "9s"'))
    stream.feed(50)
    process = stream.start()
    stream.wait(lambda: "time point closed" in stream.log_text(), process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 1
    assert "stopped at once" in stream.log_text()
    # What was not due is in the journal, and a start publishes it.
    stream.path.write_text(stream.path.read_text().replace('publish_after = "9s"', 'publish_after = "0s"'))
    stream.run_until(points=3)
    stream.check()
