"""`streamdp journal backup`: once, and as a habit beside a running daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from observed import Observed, get, running, samples
from test_failures import ran
from test_run_command import CONFIG
from waiting import until

from streamdp.cli import main
from streamdp.journal import verify


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = ran(tmp_path / "stream")
    monkeypatch.chdir(directory)
    return directory


@contextmanager
def backing_up(config: Path, target: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The command, and the file that its log goes to."""
    log = target.with_name("backup.log")
    command = [sys.executable, "-m", "streamdp", "journal", "backup", str(config), str(target), *options]
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, text=True)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def lines(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def said(log: Path, message: str, times: int = 1) -> Callable[[], bool]:
    return lambda: log.read_text().count(f'"{message}"') >= times


@pytest.mark.slow
def test_a_single_backup_is_verified_and_says_so(stream: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "backup", "s.toml", "monday.db"]) == 0
    assert "copied to monday.db and verified" in capsys.readouterr().out
    assert verify(stream / "monday.db") == []


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_every_beside_a_daemon_until_a_signal_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    stream = Observed(tmp_path, length="250ms")
    target = tmp_path / "backups"
    target.mkdir(mode=0o700)
    age = "streamdp_backup_timestamp_seconds"
    with running(stream, points=1) as (ports, daemon):
        assert samples(get(ports["operator_metrics"], "/metrics")[1])[age] == 0, "never"
        assert age not in samples(get(ports["metrics"], "/metrics")[1])
        began = time.time()
        with backing_up(stream.path, target, "--every", "300ms", "--keep", "2") as (process, log):
            until(said(log, "backed up and verified", 4))
            shown = samples(get(ports["operator_metrics"], "/metrics")[1])[age]
            assert began <= shown <= time.time()
            process.send_signal(signal.SIGHUP)
            until(said(log, "backed up and verified", 5))
            process.send_signal(number)
            assert process.wait(30) == 0, log.read_text()
        assert daemon.poll() is None
    told = lines(log)
    assert {line["level"] for line in told} == {"info"}
    assert told[-1]["message"] == "stopped"
    kept = sorted(target.iterdir())
    assert [str(file) for file in kept] == [line["file"] for line in told[:-1]][-2:]
    assert all(verify(file) == [] for file in kept)
    assert [file.stat().st_mode & 0o777 for file in kept] == [0o600, 0o600]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_backup_that_fails_is_an_error_in_the_log_and_is_tried_again(stream: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    with backing_up(stream / "s.toml", target, "--every", "200ms") as (process, log):
        until(said(log, "no backup was made", 2))
        assert process.poll() is None
        target.mkdir()
        until(said(log, "backed up and verified"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    failed = [line for line in lines(log) if line["level"] == "error"]
    assert all(f"there is no directory {target}" in line["why"] for line in failed)
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("journal backup s.toml . --every 1h", "is the journal's own directory"),
        ("journal backup s.toml s.toml --every 1h", "is a file; with --every, give a directory"),
        ("journal backup s.toml backups --every 1h --keep 0", "--keep is 1 or more"),
        ("journal backup s.toml monday.db --keep 3", "--keep goes with --every"),
    ],
)
def test_wrong_usage_is_told_at_once(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(CONFIG)
    assert main(words.split()) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("every", ["0s", "soon", "-1h"])
def test_a_wrong_interval(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["journal", "backup", "s.toml", "backups", f"--every={every}"])
    assert ended.value.code == 2
    assert "give a duration" in capsys.readouterr().err
