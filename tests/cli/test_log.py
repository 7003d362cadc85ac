"""`streamdp log`, run as a shell would."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE

from streamdp.cli import main

Streamdp = Callable[..., tuple[int, bytes, bytes]]


@pytest.fixture
def streamdp(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Streamdp:
    def call(*arguments: object, lines: bytes = b"") -> tuple[int, bytes, bytes]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        try:
            code = main(["log", *map(str, arguments)])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        return (code, *capfdbinary.readouterr())

    return call


@pytest.fixture
def ok(streamdp: Streamdp) -> Callable[..., bytes]:
    def call(*arguments: object, lines: bytes = b"") -> bytes:
        code, printed, errors = streamdp(*arguments, lines=lines)
        assert (code, errors) == (0, b"")
        return printed

    return call


def test_lines_come_back(tmp_path: Path, ok: Callable[..., bytes]) -> None:
    ok("produce", "--log", tmp_path / "l", "--topic", "t", lines=b'{"a": 1}\n\nnot json\xff\nlast without end')
    assert ok("consume", "--log", tmp_path / "l", "--topic", "t", "--from-beginning") == (
        b'{"a": 1}\n\nnot json\xff\nlast without end\n'
    )
    assert ok("consume", "--log", tmp_path / "l", "--topic", "t") == b""
    assert ok("consume", "--log", tmp_path / "l", "--topic", "t", "--from-beginning", "--max", 1) == b'{"a": 1}\n'


def test_keys_and_tombstones(tmp_path: Path, ok: Callable[..., bytes]) -> None:
    to = ("produce", "--log", tmp_path / "l", "--topic", "t")
    ok(*to, "--key-field", "user", lines=b'{"user": "ann"}\n{"user": 7}\n')
    ok(*to, "--key-separator", r"\t", "--tombstones", lines=b"bob\tx\ty\nann\t\n\xff\tz\n")
    printed = ok("consume", "--log", tmp_path / "l", "--topic", "t", "--from-beginning", "--json")
    records = [json.loads(line) for line in printed.splitlines()]
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [
        (0, "ann", '{"user": "ann"}'),
        (1, "7", '{"user": 7}'),
        (2, "bob", "x\ty"),
        (3, "ann", None),
        (4, {"base64": "/w=="}, "z"),
    ]


def test_topics_are_listed(tmp_path: Path, ok: Callable[..., bytes]) -> None:
    ok("produce", "--log", tmp_path, "--topic", "wide", "--partitions", 2, "--partition", 1, lines=b"a\nb\n")
    ok("produce", "--log", tmp_path, "--topic", "narrow", lines=b"a\n")
    listed = [json.loads(line) for line in ok("topics", "--log", tmp_path, "--json").splitlines()]
    assert [(row["topic"], row["partition"], row["begin"], row["end"]) for row in listed] == [
        ("narrow", 0, 0, 1),
        ("wide", 0, 0, 0),
        ("wide", 1, 0, 2),
    ]
    assert len(ok("topics", "--log", tmp_path).splitlines()) == 4


def test_following_prints_what_is_appended(tmp_path: Path, ok: Callable[..., bytes]) -> None:
    to = ("produce", "--log", tmp_path, "--topic", "t")
    ok(*to, lines=b"old\n")
    command = [sys.executable, "-m", "streamdp", "log", "consume", "--log", str(tmp_path), "--topic", "t"]
    process = subprocess.Popen([*command, "--from-beginning", "--follow", "--max", "2"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"old\n"
    ok(*to, lines=b"new\n")
    assert process.stdout.readline() == b"new\n"
    assert process.wait(PATIENCE) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "lines", "code", "says"),
    [
        (("consume", "--topic", "t"), b"", 1, b"no log"),
        (("topics",), b"", 1, b"no log"),
        (("produce", "--topic", "a/b"), b"", 1, b"cannot name a topic"),
        (("produce", "--topic", "t", "--key-field", "user"), b'{"secret": 1}\n', 1, b"line 1 "),
        (("produce", "--topic", "t", "--key-separator", ":"), b"secret\n", 1, b"line 1 "),
        (("produce", "--topic", "t", "--tombstones"), b"", 2, b"--key-separator"),
        (("produce",), b"", 2, b"--topic"),
    ],
)
def test_faults_are_one_line_and_quote_no_data(
    tmp_path: Path, streamdp: Streamdp, arguments: tuple[str, ...], lines: bytes, code: int, says: bytes
) -> None:
    found, _, errors = streamdp(*arguments, "--log", tmp_path / "l", lines=lines)
    assert found == code
    assert says in errors and b"secret" not in errors
