"""What goes wrong around a command (rights, paths, damaged files) is one line that says what to do, no traceback."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_run_command import CONFIG
from waiting import PATIENCE

from streamdp.cli import check, main
from streamdp.cli._failures import explain

NOBODY = "65534"
COMMANDS = {
    "check": "check s.toml",
    "budget": "budget s.toml",
    "subscribe": "subscribe s.toml --from-beginning",
    "job list": "job list s.toml",
    "job submit": "job submit s.toml kmeans --epsilon 0.1 --set n_clusters=2",
    "journal verify": "journal verify s.toml",
    "journal backup": "journal backup s.toml backup.db",
    "journal write-off": "journal write-off s.toml",
    "record": "record s.toml new.jsonl",
    "record --log": "record --log log --topic in --from-beginning new.jsonl",
    "replay": "replay trace.jsonl --config s.toml",
    "log topics": "log topics --log log",
    "log consume": "log consume --log log --topic in --from-beginning",
    "log produce": "log produce --log log --topic in",
    "run": "run s.toml",
}


def ran(directory: Path) -> Path:
    """The directory of a stream that has run: a log, a journal."""
    directory.mkdir(exist_ok=True)
    (directory / "s.toml").write_text(CONFIG.replace('length = "1h"', 'length = "100ms"'))
    process = subprocess.Popen(
        [sys.executable, "-m", "streamdp", "run", "s.toml"], stderr=subprocess.PIPE, text=True, cwd=directory
    )
    assert process.stderr is not None
    with process.stderr as said:
        try:
            next(line for line in said if "time point closed" in line)
        finally:
            process.terminate()
        said.read()
    assert process.wait(PATIENCE) == 0
    return directory


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def stream(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "stream"
    shutil.copytree(kept, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture(scope="module")
def open_to_all() -> Iterator[Path]:
    """A stream of root's, in a directory that everybody may enter: those of pytest are closed."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield ran(Path(directory))


def assert_is_told(code: int, said: str) -> None:
    assert code in (1, 2), said
    assert said.strip(), "it says why"
    assert "Traceback" not in said
    assert "defect" not in said


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can become another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="NOT TESTED: no setpriv (util-linux)")
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("check", "replay")])
def test_another_user_is_told(open_to_all: Path, name: str) -> None:
    other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    command = [*other, sys.executable, "-m", "streamdp", *COMMANDS[name].split()]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=open_to_all,
        stdin=subprocess.DEVNULL,
    )
    assert_is_told(done.returncode, done.stdout + done.stderr)


def damage_file(path: Path) -> None:
    path.write_bytes(b"\x00damaged" * 100)


def make_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def make_file(path: Path) -> None:
    remove(path)
    path.write_text("a file")


DAMAGE: list[tuple[str, Callable[[Path], None], list[str]]] = [
    ("s.toml", remove, [name for name, words in COMMANDS.items() if "s.toml" in words]),
    ("s.toml", make_directory, [name for name, words in COMMANDS.items() if "s.toml" in words]),
    ("s.toml", damage_file, [name for name, words in COMMANDS.items() if "s.toml" in words]),
    ("journal.db", remove, ["budget", "job list", "journal verify", "journal backup"]),
    ("journal.db", make_directory, ["budget", "job list", "journal verify", "journal backup", "run"]),
    ("journal.db", damage_file, ["budget", "job list", "journal verify", "journal backup", "record", "run"]),
    ("log", remove, ["subscribe", "record --log", "log topics", "log consume"]),
    ("log", make_file, ["subscribe", "job submit", "record --log", "log topics", "log consume", "log produce", "run"]),
    ("log/log.json", damage_file, ["subscribe", "record --log", "log topics", "log consume", "log produce", "run"]),
    ("trace.jsonl", make_directory, ["replay"]),
    ("trace.jsonl", damage_file, ["replay"]),
    ("trace.jsonl", lambda path: None, ["replay"]),
    ("new.jsonl", make_directory, ["record", "record --log"]),
    ("backup.db", make_directory, ["journal backup"]),
    ("backup.db", damage_file, ["journal backup"]),
]


@pytest.mark.parametrize(
    ("place", "harm", "name"), [(place, harm, name) for place, harm, names in DAMAGE for name in names]
)
def test_what_is_missing_damaged_or_a_directory_is_told(
    stream: Path,
    place: str,
    harm: Callable[[Path], None],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    harm(stream / place)
    words = COMMANDS[name].split()
    if name == "run":  # It sets signal handlers and the log of its process.
        command = [sys.executable, "-m", "streamdp", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert_is_told(done.returncode, done.stdout + done.stderr)
    else:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        code = main(words)
        captured = capsys.readouterr()
        assert_is_told(code, captured.out + captured.err)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(13, "Permission denied", "/x"), "/x: permission denied. Run this as the user who owns it"),
        (FileNotFoundError(2, "No such file", "/x"), "/x does not exist. Check the path"),
        (IsADirectoryError(21, "Is a directory", "/x"), "/x is a directory"),
        (OSError(28, "No space left", "/x"), "/x: no room on the disk. Free some space"),
        (OSError(5, "Input/output error", "/x"), "/x: Input/output error"),
        (MemoryError("1,000 users"), "not enough memory"),
        (KeyError("alice"), "stopped by KeyError"),
    ],
)
def test_every_other_failure_is_one_line_without_data(error: Exception, says: str) -> None:
    text = explain(error)
    assert says in text
    assert "alice" not in text
    assert "1,000" not in text
    assert "\n" not in text


def test_a_defect_of_a_command_is_one_line_that_says_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> int:
        raise KeyError("alice")

    monkeypatch.setattr(check, "run", run)
    assert main(["check", "s.toml"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("streamdp: stopped by KeyError at ")
    assert "test_failures.py:" in said
    assert "please report" in said
    assert said.count("\n") == 1
    assert "alice" not in said
