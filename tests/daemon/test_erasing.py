"""docs/guides/erasing-a-person.md, step by step, on a real stream; then every byte under its directory is looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Stream

from streamdp.ingest.digest import Digester
from streamdp.journal import JournalReader
from streamdp.transport.base import Message
from streamdp.transport.batch import Blobs

KEY, VALUE = "anna-karenina-1828", "a-ward-of-nobody-else"


def streamdp(*words: str | Path, given: str = "") -> str:
    command = [sys.executable, "-m", "streamdp", *map(str, words)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def holding(directory: Path, wanted: bytes) -> set[str]:
    files = (file for file in directory.rglob("*") if file.is_file())
    return {str(file.relative_to(directory)) for file in files if wanted in file.read_bytes()}


def run_until_forgotten(stream: Stream, tombstone_points: int) -> None:
    """Until both checkpoints are of points so far after the first that was closed now, which holds the delete."""
    known = len(stream.log_text())

    def forgotten() -> bool:
        entries = [json.loads(line) for line in stream.log_text()[known:].splitlines()]
        closed = [entry["time_point"] for entry in entries if entry["message"] == "time point closed"]
        kept = [int(path.stem.partition("-")[2]) for path in stream.config.checkpoint_path.glob("*.columns")]
        return bool(closed) and min(kept) >= closed[0] + tombstone_points

    process = stream.start()
    stream.wait(forgotten, process)
    process.terminate()
    assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_after_the_steps_of_the_guide_nothing_of_the_person_is_left(tmp_path: Path) -> None:
    stream = Stream(tmp_path, expiry="tombstone_points = 3")
    stream.feed(200)
    record = {"ward": "north", "age": 50}
    values = [{"op": "upsert", "record": record}, {"op": "upsert", "record": {**record, "ward": VALUE}}]
    stream.append([Message("visits", json.dumps(value).encode(), key=KEY.encode(), partition=0) for value in values])
    stream.run_until(points=4)
    trace, backups = tmp_path / "trace.jsonl", tmp_path / "backups"
    streamdp("record", stream.path, trace)
    backups.mkdir()
    streamdp("journal", "backup", stream.path, backups / "monday.db")
    with JournalReader.open(stream.config.journal_path) as journal:
        digest = Digester(journal.digest_key)(Blobs.from_list([KEY.encode()])).tobytes()
    letters = stream.config.dead_letters_path
    assert letters is not None
    raw = {"log/visits/0/00000000000000000000.log", "state/journal.dead_letters", "trace.jsonl"}
    assert holding(tmp_path, KEY.encode()) == holding(tmp_path, VALUE.encode()) == raw
    assert {name.split("-")[0] for name in holding(tmp_path, digest)} == {"state/checkpoints/checkpoint"}

    # 1. A delete, and time for the stream to forget.
    produce = ("log", "produce", "--log", tmp_path / "log", "--topic", "visits", "--partition", "0")
    streamdp(*produce, "--key-separator", "\\t", "--tombstones", given=f"{KEY}\t\n")
    run_until_forgotten(stream, tombstone_points=3)
    assert holding(tmp_path, digest) == set()
    # 2. The input.
    said = streamdp("log", "erase", "--log", tmp_path / "log", "--topic", "visits", given=f"{KEY}\n")
    assert said == "3 records erased\n"
    # 3. Dead letters and traces.
    for file in letters.parent.glob(letters.name + "*"):
        file.unlink()
    trace.unlink()

    stream.feed(50)
    stream.run_until(points=3)
    streamdp("record", stream.path, trace)
    for wanted in (KEY.encode(), VALUE.encode(), digest):
        assert holding(tmp_path, wanted) == set()
    stream.check()
