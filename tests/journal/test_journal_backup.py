from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from journal_samples import fresh_point, open_journal

from streamdp.journal import Journal, JournalError, JournalReader, Release, backup, backup_into, last_backup, verify
from streamdp.privacy.ledger import Charge


def test_a_backup_beside_a_running_writer_opens_as_a_journal(path: Path, journal: Journal, tmp_path: Path) -> None:
    journal.commit_point(fresh_point(1))
    target = tmp_path / "copies" / "monday"
    target.parent.mkdir()
    mask = os.umask(0)
    try:
        backup(path, target)
    finally:
        os.umask(mask)
    assert [file.name for file in target.parent.iterdir()] == ["monday"]
    assert target.stat().st_mode & 0o777 == 0o600
    journal.commit_point(fresh_point(2))
    assert verify(target) == []
    with open_journal(target) as copy:
        assert copy.identity == journal.identity
        last = copy.last_point()
        assert last is not None
        assert last.time_point == 1
        assert not copy.knows(fresh_point(2).messages[0])  # how a daemon notices that the copy is stale


def test_a_backup_never_overwrites(path: Path, journal: Journal, tmp_path: Path) -> None:
    target = tmp_path / "taken"
    target.write_text("precious")
    for taken in (target, path):
        with pytest.raises(JournalError, match="never overwrites"):
            backup(path, taken)
    assert target.read_text() == "precious"


def test_a_backup_that_fails_leaves_nothing(path: Path, journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"there is no directory .*missing"):
        backup(path, tmp_path / "missing" / "monday")
    with pytest.raises(JournalError, match=r"there is no directory .*missing"):
        backup_into(path, tmp_path / "missing", "visits", keep=1)
    with pytest.raises(JournalError, match="is a directory; name a file in it, or give --every"):
        backup(path, tmp_path)
    with pytest.raises(JournalError, match="no journal"):
        backup(tmp_path / "nothing", tmp_path / "monday")
    assert not (tmp_path / "monday").exists()


def test_a_backup_is_verified_and_an_unsound_one_does_not_stay(path: Path, journal: Journal, tmp_path: Path) -> None:
    journal.commit_point(fresh_point(1))
    target = tmp_path / "copies"
    target.mkdir()
    good, _ = backup_into(path, target, "visits", keep=1)
    made = last_backup(path, journal.identity.journal_id)
    spoiler = sqlite3.connect(path)
    with spoiler:
        spoiler.execute("UPDATE messages SET value = x'00' WHERE sequence = 1")
    spoiler.close()
    with pytest.raises(JournalError, match=r"not sound and was removed \(message 1 of time point 1 .*journal verify"):
        backup(path, target / "monday")
    with pytest.raises(JournalError, match="not sound"):
        backup_into(path, target, "visits", keep=1)
    assert list(target.iterdir()) == [good], "the earlier one stays"
    assert last_backup(path, journal.identity.journal_id) == made


def test_a_series_keeps_the_newest_of_its_own_journal(path: Path, journal: Journal, tmp_path: Path) -> None:
    target = tmp_path / "copies"
    target.mkdir()
    foreign = [target / "visits-00000000-20200101T000000000Z.db", target / "notes.db"]
    for file in foreign:
        file.write_text("another's")
    ours = f"visits-{journal.identity.journal_id[:8]}-"
    ahead = target / f"{ours}29990101T000000000Z.db"  # made while the clock was wrong
    ahead.write_text("")
    killed = target / f"{ours}20200101T000000000Z.db.1.partial"
    for suffix in ("", "-journal"):
        killed.with_name(killed.name + suffix).write_text("")
    made = []
    for time_point in (1, 2, 3, 4):
        journal.commit_point(fresh_point(time_point))
        file, last = backup_into(path, target, "visits", keep=3)
        assert last == time_point
        assert file.stat().st_mode & 0o777 == 0o600
        made.append(file)
        time.sleep(0.002)
    assert sorted(target.iterdir()) == sorted([*foreign, ahead, *made[-2:]])
    assert made == sorted(made)
    assert verify(made[-1]) == []


def test_what_another_backup_writes_now_is_left_alone(path: Path, journal: Journal, tmp_path: Path) -> None:
    target = tmp_path / "copies"
    target.mkdir()
    partial = target / "monday.1.partial"
    with partial.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        backup(path, target / "monday")
        assert partial.exists()
    backup(path, target / "monday2")
    assert partial.exists(), "it is not of this name"
    (target / "monday").unlink()
    backup(path, target / "monday")
    assert not partial.exists()


def test_the_time_of_the_last_verified_backup_is_beside_the_journal(
    path: Path, journal: Journal, tmp_path: Path
) -> None:
    mine = journal.identity.journal_id
    assert last_backup(path, mine) == 0
    before = time.time()
    backup(path, tmp_path / "monday")
    assert before <= last_backup(path, mine) <= time.time()
    assert last_backup(path, "another's") == 0
    record = path.with_name(path.name + ".backup")
    assert record.stat().st_mode & 0o777 == 0o600
    for text in ("", "[]", "7", '{"format": 1}', json.dumps({"format": 1, "journal_id": mine, "made": None})):
        record.write_text(text)
        assert last_backup(path, mine) == 0
    record.unlink()
    record.mkdir()
    with pytest.raises(JournalError, match=r"the backup is sound, but .*\.backup cannot be written"):
        backup(path, tmp_path / "tuesday")
    assert verify(tmp_path / "tuesday") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: mounting a small tmpfs needs root")
def test_a_full_disk_is_named_and_left_as_it_was(path: Path, journal: Journal, tmp_path: Path) -> None:
    for time_point in range(1, 60):
        journal.commit_point(fresh_point(time_point))
    disk = tmp_path / "small"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        with pytest.raises(JournalError, match=rf"no room for {disk}/monday\. Free some space"):
            backup(path, disk / "monday")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert verify(path) == []


SPOILED = {
    "does not match its hash": "UPDATE messages SET value = x'00' WHERE sequence = 1",
    "records of 'ages' pass": "UPDATE charges SET epsilon = '3/4' WHERE time_point = 2",
    "time point 2 is missing": "DELETE FROM points WHERE time_point = 2",
    "has no entry": "DELETE FROM charges WHERE time_point = 2",
    "lie beyond": "UPDATE charges SET time_point = 4 WHERE time_point = 3",
    "are damaged": "UPDATE releases SET counts = x'00' WHERE time_point = 3",
    "last release of 'ages'": "UPDATE releases SET cells = cells + 1 WHERE time_point = 3",
}


@pytest.mark.parametrize("problem", SPOILED)
def test_verify_finds(path: Path, journal: Journal, problem: str) -> None:
    for time_point in (1, 2, 3):
        journal.commit_point(fresh_point(time_point))
    journal.close()
    assert verify(path) == []
    spoiler = sqlite3.connect(path)
    with spoiler:
        assert spoiler.execute(SPOILED[problem]).rowcount > 0
    spoiler.close()
    assert any(problem in found for found in verify(path))


def test_verify_finds_open_files_and_damaged_pages(path: Path, journal: Journal) -> None:
    for time_point in range(1, 40):
        journal.commit_point(fresh_point(time_point))
    journal.close()
    path.chmod(0o640)
    assert verify(path) == [f"{path.name} is open to others; chmod 600 it"]
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)
    assert any("damaged pages" in found for found in verify(path))


def test_reading_after_the_writer_is_gone(path: Path, journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    journal.close()
    with JournalReader.open(path) as reader:
        assert reader.read_ledger().spent(1, "ages") > 0
        assert reader.terms == journal.ledger.terms
    with pytest.raises(JournalError, match="there is no journal"):
        JournalReader.open(path.with_name("other"))


def committed(journal: Journal, time_point: int, reason: str | None, *purposes: str) -> None:
    """A point at which "ages" pays a quarter for each purpose, and releases when there is a reason."""
    charges = tuple(Charge(time_point, "ages", Fraction(1, 4), purpose, counted=False) for purpose in purposes)
    releases = () if reason is None else (Release(f"r{time_point}", "ages", np.zeros(4, np.int64), reason),)
    journal.commit_point(fresh_point(time_point, charges=charges, releases=releases))


@pytest.mark.parametrize(("second", "is_over"), [("above", True), ("scheduled", False)])
def test_verify_counts_a_sparse_vector_in_every_window_that_it_meets(
    path: Path, journal: Journal, second: str, is_over: bool
) -> None:
    """The ledger books it at point 1; the window of points 4 to 13 holds two releases and, unless an "above" at point 2
    has ended it, the vector: three quarters, where a half is reserved."""
    committed(journal, 1, None, "decisions")
    committed(journal, 2, second, "release")
    for time_point in range(3, 12):
        committed(journal, time_point, None)
    for time_point in (12, 13):
        committed(journal, time_point, "scheduled", "release")
    problems = verify(path)
    if is_over:
        assert problems == []
    else:
        assert len(problems) == 1
        assert "cost 0.75" in problems[0]
