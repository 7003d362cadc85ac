"""A record that kills the daemon: named after three deaths, tried alone, skipped for good."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from harness import Stream

from streamdp.journal import JournalReader, verify
from streamdp.transport.base import Message, TopicPartition
from streamdp.transport.guard import Skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class LethalStream(Stream):
    program: ClassVar[list[str]] = [str(Path(__file__).with_name("lethal_launcher.py"))]

    not_counted = frozenset({b"lethal"})

    def feed_lethal(self) -> TopicPartition:
        """Three records at once, the second of which kills; returns their partition, of which they are 0 to 2."""
        keys = (b"before", b"lethal", b"after")
        record = {"ts": 1, "op": "upsert", "record": {"ward": "north", "age": 5}}
        value = json.dumps(record).encode()
        self.append([Message(self.topic, value, key=key, partition=1) for key in keys])
        return TopicPartition(self.topic, 1)

    def dies(self, how: str) -> int:
        return self.start(LETHAL=how).wait(90)

    def skip(self, how: str, kill_at: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LETHAL": how} | ({"STREAMDP_TEST_KILL": kill_at} if kill_at else {})
        command = [sys.executable, *self.program, "journal", "skip", str(self.path)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def run_with(self, how: str, points: int = 2) -> None:
        os.environ["LETHAL"] = how
        try:
            self.run_until(points)
        finally:
            del os.environ["LETHAL"]

    def records_below(self, cut: dict[TopicPartition, int]) -> Iterator[tuple[int, bytes, bytes]]:
        """What counts: all but the skipped ones."""
        for offset, key, value in super().records_below(cut):
            if key not in self.not_counted:
                yield offset, key, value

    def skips(self) -> list[Skip]:
        with JournalReader.open(self.config.journal_path) as journal:
            return journal.skips()

    def letters(self) -> list[tuple[int, int, str]]:
        lines = map(json.loads, self.config.dead_letters_path.read_text().splitlines())
        return [(line["partition"], line["offset"], line["reason"]) for line in lines]


@pytest.mark.parametrize("how", ["kill", "memory"])
def test_a_lethal_record_is_named_then_skipped_for_good(tmp_path, how):
    stream = LethalStream(tmp_path)
    name = stream.feed_lethal()
    stream.feed(100)
    for _ in range(3):
        assert stream.dies(how) == (-signal.SIGKILL if how == "kill" else 1)
    assert stream.dies(how) == 1
    last = json.loads(stream.log_text().splitlines()[-1])
    assert last["level"] == "critical"
    assert "of partition 1 of topic 'visits'" in last["message"] and "streamdp journal skip" in last["message"]

    done = stream.skip(how)
    assert done.returncode == 0, done.stderr
    assert "fails alone: offset 1 of partition 1 of topic 'visits'" in done.stdout and "lethal" not in done.stdout
    assert stream.skips() == [Skip(name, 1, 1)] and verify(stream.config.journal_path) == []

    stream.run_with(how, points=4)
    stream.check()
    assert (1, 1, "SKIPPED") in stream.letters()

    # A re-read from the beginning skips it again, and writes no second letter.
    shutil.rmtree(stream.config.checkpoint_path)
    stream.feed(100)
    stream.run_with(how)
    stream.check()
    assert [letter for letter in stream.letters() if letter[2] == "SKIPPED"] == [(1, 1, "SKIPPED")]


def test_what_cannot_even_be_read_is_stepped_over(tmp_path):
    """What was appended together is read together: all of it is skipped, and nothing around it."""
    stream = LethalStream(tmp_path)
    stream.append([Message(stream.topic, b"{rubbish", key=b"one", partition=1)])
    name = stream.feed_lethal()
    stream.feed(100)
    for _ in range(3):
        assert stream.dies("read") == -signal.SIGKILL
    assert stream.dies("read") == 1
    done = stream.skip("read")
    assert "fails alone: offsets 1 to 3" in done.stdout, done.stdout + done.stderr
    assert stream.skips() == [Skip(name, 1, 3)]
    stream.run_with("read", points=3)
    stream.not_counted = frozenset({b"before", b"lethal", b"after"})
    stream.check()
    assert [letter for letter in stream.letters() if letter[2] == "SKIPPED"] == [(1, 1, "SKIPPED")]


def test_deaths_from_outside_skip_nothing(tmp_path):
    stream = LethalStream(tmp_path)
    stream.feed_lethal()
    stream.feed(100)
    waiting = tmp_path / "waiting"
    for _ in range(3):
        process = stream.start(LETHAL="wait", WAITING_FILE=str(waiting))
        stream.wait(waiting.exists, process)
        process.kill()
        process.wait()
        waiting.unlink()
    assert stream.dies("") == 1 and "journal skip" in stream.log_text().splitlines()[-1]
    done = stream.skip("")
    assert done.returncode == 0 and "no record fails alone" in done.stdout, done.stderr
    assert stream.skips() == []
    stream.not_counted = frozenset()
    stream.run_with("", points=3)
    stream.check()
    assert "nothing to try" in stream.skip("").stdout


def test_where_a_trial_cannot_even_begin_no_record_is_at_fault(tmp_path):
    stream = LethalStream(tmp_path)
    stream.feed_lethal()
    assert stream.dies("kill") == -signal.SIGKILL
    done = stream.skip("trial")
    assert done.returncode == 1 and "fails before it reads anything" in done.stderr, done.stderr
    assert stream.skips() == []


@pytest.mark.parametrize("step", ["journal.skip.written", "journal.skip.done"])
def test_a_skip_that_is_killed_is_done_again(tmp_path, step):
    stream = LethalStream(tmp_path)
    name = stream.feed_lethal()
    for _ in range(3):
        assert stream.dies("kill") == -signal.SIGKILL
    assert stream.skip("kill", kill_at=step).returncode == -signal.SIGKILL
    assert stream.dies("kill") == 1, "nothing is forgotten before the search has ended"
    assert "dead letters say SKIPPED" in stream.skip("kill").stdout
    assert stream.skips() == [Skip(name, 1, 1)]
    stream.run_with("kill")
    stream.check()


def test_a_running_daemon_keeps_the_command_out_without_a_traceback(tmp_path):
    stream = LethalStream(tmp_path)
    process = stream.start()
    stream.wait(lambda: stream.starts() == 1, process)
    refused = stream.skip("")
    assert refused.returncode == 1 and "stop that one first" in refused.stderr and "Traceback" not in refused.stderr
    process.terminate()
    assert process.wait(60) == 0
