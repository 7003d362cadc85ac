"""Whose journal it is, who may write it, and what a full, read-only or foreign file says."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from journal_samples import contents, fresh_point, open_journal

from streamdp.journal import Journal, JournalError, JournalReader, verify
from streamdp.journal.errors import JournalCorrupted, JournalFull, JournalLocked, JournalMismatch
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.privacy.terms import Terms
from streamdp.transport.base import Message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"input_identity": "cluster-2/records"}, "belongs to the input 'cluster-1/records'"),
        ({"output_identity": "cluster-3"}, "publishes to the log or cluster 'cluster-2', not 'cluster-3'"),
        ({"terms": Terms.w_event(1, 11)}, "other terms"),
        ({"terms": Terms.finite_horizon(1, 10)}, "other terms"),
        ({"settings": {"time.length": "2s"}}, 'time.length is "1s" and does not change under a ledger; found "2s"'),
    ],
)
def test_somebody_elses_journal_is_refused(path: Path, journal: Journal, changed: dict[str, Any], said: str) -> None:
    journal.close()
    for _ in range(2):  # the refusal lets go of the lock
        with pytest.raises(JournalMismatch, match=said):
            open_journal(path, **changed)
    open_journal(path).close()


def test_what_may_shorten_does_so_from_the_next_point(path: Path, journal: Journal) -> None:
    for time_point in (1, 2):
        journal.commit_point(fresh_point(time_point))
    journal.close()
    for longer in (None, 21):
        with pytest.raises(JournalMismatch, match="expire_after is 20 and may only become shorter"):
            open_journal(path, settings={"time.expire_after": longer})
    open_journal(path, settings={"time.expire_after": 5}).close()  # a slip of the hand, before a point closed under it
    with open_journal(path, settings={"time.expire_after": 15}) as again:
        again.commit_point(fresh_point(3))
        assert [again.settings(point)["time.expire_after"] for point in (1, 2, 3, 4)] == [20, 20, 15, 15]
    with pytest.raises(JournalMismatch, match="expire_after is 15 and may only become shorter"):
        open_journal(path, settings={"time.expire_after": 20})
    assert verify(path) == []


def test_unset_is_the_longest(path: Path) -> None:
    open_journal(path, settings={"time.expire_after": None}).close()
    with open_journal(path, settings={"time.expire_after": 7}) as again:
        assert again.settings(1)["time.expire_after"] == 7


def test_two_writers(path: Path, journal: Journal) -> None:
    with pytest.raises(JournalLocked, match=f"process {os.getpid()}"):
        open_journal(path)
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(JournalLocked):
        open_journal(link)
    journal.close()
    open_journal(path).close()


def test_a_forked_worker_does_not_keep_the_lock(path: Path, journal: Journal) -> None:
    read_end, write_end = os.pipe()
    forked, has_forked = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(has_forked, b"x")  # its copy of the lock is dropped by now
        os.read(read_end, 1)
        os._exit(0)
    os.read(forked, 1)
    try:
        with pytest.raises(JournalLocked):
            open_journal(path)  # what the worker closed is still locked by the daemon
        journal.close()
        open_journal(path).close()
    finally:
        os.write(write_end, b"x")
        os.waitpid(worker, 0)
        for descriptor in (read_end, write_end, forked, has_forked):
            os.close(descriptor)


def test_files_are_the_owners_alone(path: Path) -> None:
    mask = os.umask(0)
    try:
        with open_journal(path) as journal:
            journal.reserve("ages", "0.5", "p")
            journal.commit_point(fresh_point(1))
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        assert modes == {path.name + suffix: 0o600 for suffix in ("", "-wal", "-shm", ".lock")}
        path.chmod(0o644)
        open_journal(path).close()
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(mask)


def test_durability_settings(journal: Journal) -> None:
    settings = {name: journal.rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous", "secure_delete")}
    assert settings == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1}


def test_deleted_bytes_are_gone_from_the_file(path: Path, journal: Journal) -> None:
    secret = b"threshold noise 8c41" * 50
    journal.commit_point(fresh_point(1, messages=(Message("t", secret),)))
    journal.mark_published([1])
    journal.commit_point(fresh_point(2))
    journal.prune(keep_points=0)
    assert journal.messages(1) == []
    journal.mark_published([2, 3])
    journal.close()
    assert secret[:200] not in path.read_bytes()


def test_a_journal_that_is_moved_away_takes_no_more(path: Path, journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(JournalError, match="moved, deleted or replaced"):
        journal.commit_point(fresh_point(2))
    path.write_bytes(b"")
    with pytest.raises(JournalError, match="start again"):
        journal.commit_point(fresh_point(2))


def test_not_a_journal(path: Path) -> None:
    path.write_bytes(b"something else entirely, longer than a header of SQLite " * 50)
    with pytest.raises(JournalCorrupted, match="no journal"):
        open_journal(path)
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (x)")
    other.close()
    for opener in (open_journal, JournalReader.open):
        with pytest.raises(JournalCorrupted, match="not a streamdp journal"):
            opener(path)


def test_a_newer_format_is_refused(path: Path, journal: Journal) -> None:
    journal.close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    for opener in (open_journal, JournalReader.open):
        with pytest.raises(JournalError, match="format 99"):
            opener(path)


def test_a_ledger_that_was_tampered_with_is_refused(path: Path, journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    journal.close()
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE charges SET epsilon = '2/1'")
    other.close()
    with pytest.raises(JournalCorrupted, match="what commit 3 wrote"):
        open_journal(path)


def test_a_start_that_died_before_its_first_commit(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(JournalError, match="empty"):
        JournalReader.open(path)
    open_journal(path).close()
    assert verify(path) == []


def test_the_digest_key_comes_from_the_source(tmp_path: Path) -> None:
    keys = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with open_journal(tmp_path / name, source=InsecureSeededSource(seed)) as journal:
            keys.append(journal.digest_key)
            assert keys[-1].hex() not in repr(journal)
    assert keys[0] == keys[1] != keys[2]


def test_disk_full_says_what_to_do_and_loses_nothing(path: Path, journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    before, ledger = contents(journal), journal.ledger.state()
    pages = journal.rows("PRAGMA page_count")[0][0]
    journal.rows(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(JournalFull, match="free some space and start again"):
        journal.commit_point(fresh_point(2, messages=(Message("t", bytes(100_000)),)))
    assert contents(journal) == before
    assert journal.ledger.state() == ledger
    journal.close()
    with open_journal(path) as again:
        assert contents(again) == before
        again.commit_point(fresh_point(2))


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False, capture_output=True
    ).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with open_journal(disk / "journal") as journal:
            journal.reserve("ages", "0.5", "p")
            journal.commit_point(fresh_point(1))
            ledger = journal.ledger.state()
            with pytest.raises(JournalFull, match="free some space"):
                journal.commit_point(fresh_point(2, messages=(Message("t", bytes(2_000_000)),)))
        with open_journal(disk / "journal") as again:
            assert again.ledger.state() == ledger
            again.commit_point(fresh_point(2))
        assert verify(disk / "journal") == []
    finally:
        subprocess.run(["umount", disk], check=True)


READ_ONLY = """
import os, sys
from journal_samples import open_journal
from pathlib import Path
from streamdp.journal import JournalError
if os.geteuid() == 0:  # root may write everything
    os.setgid(65534)
    os.setuid(65534)
try:
    open_journal(Path(sys.argv[1]))
except JournalError as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_journal_says_so(what: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "journal"
        open_journal(path).close()
        if what == "file":
            path.chmod(0o444)
            path.with_name("journal.lock").chmod(0o666)
        folder.chmod(0o777 if what == "file" else 0o555)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        command = [sys.executable, "-c", READ_ONLY, str(path)]
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        assert "cannot be written; make it and its folder writable" in said
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
