"""`streamdp run` as far as it can be seen without waiting for time points."""

from __future__ import annotations

import json
import logging
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from waiting import PATIENCE

from streamdp import __version__
from streamdp.cli import main
from streamdp.daemon.daemon import Daemon

CONFIG = """\
[stream]
name = "s"
[domain.a]
type = "integer"
low = 0
high = 9
[time]
length = "1h"
[privacy]
epsilon = "1"
window = 5
[[histogram]]
name = "h"
attributes = ["a"]
strategy = "baseline"
[input]
topics = ["in"]
[input.log]
path = "log"
[journal]
path = "journal.db"
"""


@pytest.fixture
def signals_as_before():
    """And the log: `run` sets both for its whole process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_a_defect_ends_the_daemon_without_quoting_the_data(tmp_path, monkeypatch, capfd):
    def run(self: Daemon) -> None:
        self._held.close()
        users = 417329000 + 1
        raise MemoryError(f"Unable to allocate 3.1 GiB for an array with shape ({users},)")

    monkeypatch.setattr(Daemon, "run", run)
    path = tmp_path / "s.toml"
    path.write_text(CONFIG)
    limits: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr("resource.setrlimit", lambda what, limit: limits.append((what, limit)))
    assert main(["run", str(path)]) == 1
    assert (resource.RLIMIT_CORE, (0, 0)) in limits, "a core dump would hold the data"
    said = capfd.readouterr().err
    assert "417329001" not in said
    last = json.loads(said.splitlines()[-1])
    assert last["level"] == "critical"
    assert last["type"] == "MemoryError"
    assert "stopped by MemoryError" in last["message"]
    assert "test_run_command.py" in last["frames"][-1], "where it happened is told"


def test_who_subscribes_too_early_is_told_what_makes_the_topic(tmp_path, capsys):
    path = tmp_path / "s.toml"
    path.write_text(CONFIG)
    assert main(["subscribe", str(path)]) == 1
    said = capsys.readouterr().err
    assert "there is no log" in said
    assert f"start `streamdp run {path}`" in said


@pytest.mark.usefixtures("signals_as_before")
def test_points_that_data_could_close_are_refused_before_anything_is_made(tmp_path, capsys):
    path = tmp_path / "s.toml"
    path.write_text(CONFIG.replace('length = "1h"', 'length = "1h"\nclock = "event"'))
    assert main(["run", str(path)]) == 2
    assert "no guarantee" in capsys.readouterr().err
    assert not (tmp_path / "journal.db").exists()


@contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, with its log in a pipe; ended with the block, however it goes."""
    command = [sys.executable, "-m", "streamdp", "run", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def records_until(process: subprocess.Popen[str], message: str) -> list[dict[str, object]]:
    assert process.stderr is not None
    found = []
    for line in process.stderr:
        found.append(json.loads(line))
        if found[-1]["message"] == message:
            return found
    raise AssertionError(found)


def rest(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    assert process.stderr is not None
    return [json.loads(line) for line in process.stderr]


def test_the_first_lines_say_what_runs_and_a_hangup_ends_nothing(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(CONFIG.replace('"1h"', '"200ms"'))
    with running(path) as process:
        first, *_, opened = records_until(process, "running")
        assert first["message"] == "starting"
        assert first["version"] == __version__
        assert first["configuration"] == str(path)
        assert first["input"] == ["in"]
        assert first["output"] == "s"
        assert first["journal"] == str(tmp_path / "journal.db")
        process.send_signal(signal.SIGHUP)
        records_until(process, "time point closed")
        assert opened["time_point"] == 1
        due = datetime.fromisoformat(str(opened["first_release"]))
        assert abs(due - datetime.fromisoformat(str(opened["time"]))) < timedelta(minutes=1)
        process.send_signal(signal.SIGHUP)
        records_until(process, "time point closed")
        process.terminate()
        assert rest(process)[-1]["message"] == "stopped"
        assert process.wait(PATIENCE) == 0


def test_the_last_line_of_a_refused_start_is_a_record_with_what_to_do(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(CONFIG.replace('epsilon = "1"', 'epsilon = "-1"'))
    with running(path) as process:
        [last] = rest(process)
        assert process.wait(PATIENCE) == 2
    assert last["level"] == "critical"
    assert last["exit_code"] == 2
    assert "epsilon" in last["message"]
    assert last["time"]


def test_the_last_line_after_a_second_signal_is_a_record(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(CONFIG.replace('length = "1h"', 'length = "200ms"\npublish_after = "9s"'))
    with running(path) as process:
        records_until(process, "time point closed")
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(PATIENCE) == 1
        last = rest(process)[-1]
    assert last["level"] == "critical"
    assert last["message"] == "stopped at once; the next start sets right what was under way"
