"""Writers that die, and readers that look meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from journal_samples import fresh_point, open_journal
from waiting import PATIENCE

from streamdp.journal import JournalError, JournalReader, verify
from streamdp.journal.errors import JournalLocked

WRITER = """
import sys
from pathlib import Path
from journal_samples import fresh_point, open_journal
from streamdp.transport.base import Message
with open_journal(Path(sys.argv[1])) as journal:
    journal.reserve("ages", "0.5", "p")
    journal.mark_published(s.sequence for s in journal.unpublished())
    last = journal.last_point()
    time_point = last.time_point if last else 0
    print("ready", flush=True)
    while True:
        time_point += 1
        point = fresh_point(time_point, cells=50 * time_point)
        journal.commit_point(point)
        journal.mark_published(s.sequence for s in journal.unpublished())
"""


def start_writer(path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def wait_for_points(path: Path, points: int) -> None:
    """However busy the machine is, so many are committed before the writer is killed."""
    deadline = time.monotonic() + PATIENCE
    with JournalReader.open(path) as journal:
        while journal.last_time_point < points:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.slow
def test_killed_at_random_moments_every_point_is_whole_or_absent(path: Path) -> None:
    last = 0
    for delay in (0.0, 0.003, 0.01, 0.05, 0.11, None):
        writer = start_writer(path)
        with pytest.raises(JournalLocked, match=f"process {writer.pid}"):
            open_journal(path)
        if delay is None:
            wait_for_points(path, last + 3)
        else:
            time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        assert verify(path) == []
        with open_journal(path) as journal:
            found = journal.last_point()
            now = found.time_point if found else 0
            assert now >= last
            last = now
            assert [p.time_point for p in journal.points()] == list(range(1, now + 1))
            assert {e.time_point for e in journal.ledger.entries} == set(range(1, now + 1))
            for time_point in range(1, now + 1):
                assert [s.message for s in journal.messages(time_point)] == list(fresh_point(time_point).messages)
            if now:
                release = journal.last_release("ages")
                assert release is not None
                assert release.time_point == journal.engine_state()["ages"]["time_point"] == now
                assert np.array_equal(release.counts, fresh_point(now, cells=50 * now).releases[0].counts)
            assert {s.time_point for s in journal.unpublished()} <= {now}
    assert last >= 3


@pytest.mark.slow
def test_a_reader_sees_whole_commits_while_another_process_writes(path: Path) -> None:
    writer = start_writer(path)
    try:
        with JournalReader.open(path) as reader:
            seen = set()
            for _ in range(40):
                with reader.one_commit():
                    last = reader.last_point()
                    ledger = reader.read_ledger()
                    now = last.time_point if last else 0
                    assert [e.time_point for e in ledger.entries] == list(range(1, now + 1))
                    if now:
                        assert reader.engine_state()["ages"]["time_point"] == now
                    seen.add(now)
                assert verify(path) == []
            assert len(seen) > 1
            with pytest.raises(JournalError, match="cannot be written"):
                reader.rows("DELETE FROM charges")
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()


def test_steps_are_named_for_crash_tests(path: Path) -> None:
    steps: list[str] = []
    with open_journal(path, step=steps.append) as journal:
        journal.reserve("ages", "0.5", "p")
        journal.commit_point(fresh_point(1))
        journal.mark_published([1, 2])
    assert steps == [f"{name}:{at}" for name in ("settings", "reserve", "commit", "mark") for at in ("written", "done")]


@pytest.mark.parametrize(("at", "kept"), [("commit:written", 1), ("commit:done", 2)])
def test_an_interrupt_leaves_the_file_to_decide(path: Path, at: str, kept: int) -> None:
    armed = False

    def interrupt(step: str) -> None:
        if armed and step == at:
            raise KeyboardInterrupt

    with open_journal(path, step=interrupt) as journal:
        journal.reserve("ages", "0.5", "p")
        journal.commit_point(fresh_point(1))
        armed = True
        with pytest.raises(KeyboardInterrupt):
            journal.commit_point(fresh_point(2))
        armed = False
        with pytest.raises(JournalError, match="start again"):
            journal.commit_point(fresh_point(2))
    with open_journal(path) as again:
        assert again.last_time_point == kept
        assert [entry.time_point for entry in again.ledger.entries] == list(range(1, kept + 1))
    assert verify(path) == []
