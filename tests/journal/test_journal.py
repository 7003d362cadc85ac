from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from journal_samples import fresh_point, open_journal

from streamdp.journal import Journal, JournalError, JournalReader, Opening, Release, verify
from streamdp.journal.errors import JournalCorrupted, JournalFull, JournalLocked, JournalMismatch
from streamdp.privacy.ledger import BudgetExceeded, Charge
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.privacy.terms import Terms, TermsChanged
from streamdp.transport.base import Message, TopicPartition


def contents(journal: JournalReader) -> list[Any]:
    """Every row of every table."""
    tables = [name for (name,) in journal.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [journal.rows(f"SELECT * FROM {table}") for table in tables]


def test_everything_survives_a_restart(path: Path, journal: Journal) -> None:
    for time_point in (1, 2, 3):
        journal.commit_point(fresh_point(time_point))
    journal.commit_point(fresh_point(4, status="missed", charges=(), engine_state={}, releases=(), cut=None))
    before = journal.ledger.state()
    identity, digest_key = journal.identity, journal.digest_key
    journal.close()

    with open_journal(path) as again:
        assert again.ledger.state() == before
        assert (again.identity, again.digest_key) == (identity, digest_key)
        assert len(digest_key) == 16
        last = again.last_point()
        assert last is not None
        assert (last.time_point, last.status, last.cut, last.opened_ts) == (4, "missed", None, 4000)
        assert again.points(2)[0].cut == fresh_point(3).cut
        assert again.cuts(1) == [(2, fresh_point(2).cut), (3, fresh_point(3).cut)]
        assert again.engine_state() == {"ages": {"time_point": 3, "rho": 17}}
        release = again.last_release("ages")
        assert release is not None
        assert (release.release_id, release.time_point) == ("r3", 3)
        assert release.counts.tolist() == [-2, 1, 4, 7]
        assert again.last_release("heights") is None
        again.commit_point(fresh_point(5))


def test_an_empty_journal_has_no_last_point(journal: Journal) -> None:
    assert journal.last_point() is None
    assert journal.cuts() == []
    assert journal.unpublished() == []
    assert journal.written_off_until() == 0


def test_how_the_stream_began_is_remembered(path: Path, journal: Journal) -> None:
    assert journal.opening() is None
    start, backlog = {TopicPartition("records", 0): 3}, {TopicPartition("records", 0): 9, TopicPartition("other", 1): 4}
    opening = Opening(first_open=5000, length=1000, start=start, backlog=backlog, latest_ts=4999)
    journal.record_opening(opening)
    journal.close()
    with open_journal(path) as again:
        assert again.opening() == opening
        assert again.last_time_point == 0


def test_messages_come_back_byte_for_byte_until_marked(path: Path, journal: Journal) -> None:
    odd = (
        Message("t", b"\x00\xff\n", b"", headers=(("a", b"\xff"), ("a", b""))),
        Message("t", None, b"key"),
        Message("t", b"", None),
    )
    journal.commit_point(fresh_point(1))
    journal.commit_point(fresh_point(2, messages=odd))
    journal.close()
    with open_journal(path) as again:
        stored = again.unpublished()
        assert [(s.time_point, s.message) for s in stored] == [
            *((1, message) for message in fresh_point(1).messages),
            *((2, message) for message in odd),
        ]
        assert [s.sequence for s in stored] == sorted(s.sequence for s in stored)
        again.mark_published(s.sequence for s in stored[:2])
        assert again.unpublished() == stored[2:]
        assert again.messages(1) == stored[:2]


def test_knows_exactly_the_bytes_it_stored(journal: Journal) -> None:
    message = Message("t", b"value", b"key", headers=(("name", b"text"),))
    journal.commit_point(fresh_point(1, messages=(message,)))
    assert journal.knows(Message("t", b"value", b"key", 99, (("name", b"text"),), 3))
    for other in (
        Message("u", b"value", b"key", headers=(("name", b"text"),)),
        Message("t", b"valu", b"key", headers=(("name", b"text"),)),
        Message("t", b"value", b"keyv", headers=(("name", b"text"),)),
        Message("t", b"value", None, headers=(("name", b"text"),)),
        Message("t", b"value", b"key", headers=(("name", b""),)),
        Message("t", b"value", b"key"),
    ):
        assert not journal.knows(other)


def test_pruning_drops_old_published_bytes_and_still_knows_them(path: Path, journal: Journal) -> None:
    for time_point in range(1, 7):
        journal.commit_point(fresh_point(time_point))
        if time_point != 5:
            journal.mark_published(s.sequence for s in journal.messages(time_point))
    journal.prune(keep_points=3)
    assert [len(journal.messages(t)) for t in range(1, 7)] == [0, 0, 0, 2, 2, 2]
    journal.prune(keep_points=0)
    assert [len(journal.messages(t)) for t in range(1, 7)] == [0, 0, 0, 0, 2, 2]
    assert [s.time_point for s in journal.unpublished()] == [5, 5]
    assert all(journal.knows(message) for t in range(1, 7) for message in fresh_point(t).messages)
    assert verify(path) == []


def test_only_the_newest_counts_of_a_histogram_are_kept(journal: Journal) -> None:
    for time_point in (1, 2, 3):
        journal.commit_point(fresh_point(time_point, cells=1000))
    kept = journal.rows("SELECT time_point FROM releases WHERE counts IS NOT NULL")
    assert kept == [(3,)]


def test_a_charge_that_does_not_fit_leaves_nothing(journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    before, ledger = contents(journal), journal.ledger.state()
    charges = (*fresh_point(2).charges, Charge(2, "job 1", Fraction(3, 5), "k-means"))
    with pytest.raises(BudgetExceeded):
        journal.commit_point(fresh_point(2, charges=charges))
    assert contents(journal) == before
    assert journal.ledger.state() == ledger
    journal.commit_point(fresh_point(2))


def test_a_row_that_cannot_be_written_leaves_nothing(path: Path, journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    before, ledger = contents(journal), journal.ledger.state()
    with pytest.raises(JournalError):
        journal.commit_point(fresh_point(2, releases=(Release("r1", "ages", np.zeros(4, np.int64)),)))
    assert contents(journal) == before
    assert journal.ledger.state() == ledger
    with pytest.raises(JournalError, match="start again"):
        journal.commit_point(fresh_point(2))
    journal.close()
    with open_journal(path) as again:
        assert again.ledger.state() == ledger
        again.commit_point(fresh_point(2))


@pytest.mark.parametrize(
    "point",
    [
        fresh_point(3),
        fresh_point(1),
        fresh_point(2, charges=()),
        fresh_point(2, charges=(Charge(1, "ages", Fraction(1, 20), "release", counted=False),)),
        fresh_point(2, charges=(*fresh_point(2).charges, Charge(3, "job", Fraction(1, 20), "k-means"))),
    ],
    ids=["a gap", "a point twice", "a release without entry", "an entry at another point", "a charge in the future"],
)
def test_a_point_that_is_not_sound_is_refused(journal: Journal, point: Any) -> None:
    journal.commit_point(fresh_point(1))
    before = contents(journal)
    with pytest.raises(ValueError):
        journal.commit_point(point)
    assert contents(journal) == before


def test_reservations_are_found_again_and_do_not_change(path: Path, journal: Journal) -> None:
    held = journal.reserve("ages", 0.5, "dsat_w C=5")
    assert journal.ledger.reservations == (held,)
    for epsilon, purpose in (("0.4", "dsat_w C=5"), ("0.5", "dsat_w C=6")):
        with pytest.raises(JournalMismatch, match="does not change"):
            journal.reserve("ages", epsilon, purpose)
    with pytest.raises(BudgetExceeded):
        journal.reserve("heights", "0.6", "baseline")
    journal.commit_point(fresh_point(1, charges=(*fresh_point(1).charges, Charge(1, "job", Fraction(1, 5), "p"))))
    with pytest.raises(ValueError, match="charged before"):
        journal.reserve("job", "0.1", "baseline")
    journal.close()
    with open_journal(path) as again:
        assert again.reserve("ages", "1/2", "dsat_w C=5") == held


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"stream": "other"}, JournalMismatch, "belongs to the stream 'visits', not 'other'"),
        ({"input_identity": "cluster-2/records"}, JournalMismatch, "belongs to the input 'cluster-1/records'"),
        ({"domain_fingerprint": "cd" * 32}, JournalMismatch, "another domain"),
        ({"terms": Terms.w_event(1, 11)}, TermsChanged, "is 10, not 11"),
        ({"terms": Terms.finite_horizon(1, 10)}, TermsChanged, "kind of guarantee"),
    ],
)
def test_somebody_elses_journal_is_refused(
    path: Path, journal: Journal, changed: dict[str, Any], error: type[Exception], said: str
) -> None:
    journal.close()
    for _ in range(2):  # the refusal lets go of the lock
        with pytest.raises(error, match=said):
            open_journal(path, **changed)
    open_journal(path).close()


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
    with pytest.raises(JournalCorrupted, match="records of 'ages' pass its reservation"):
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


def test_a_write_off_under_w_event(path: Path, journal: Journal) -> None:
    for time_point in (1, 2):
        journal.commit_point(fresh_point(time_point))
    journal.write_off(7, "restored the backup of Monday")
    assert journal.written_off_until() == 7
    assert journal.ledger.resumes_at == 17
    assert journal.unpublished() == []
    assert journal.engine_state() == {}
    assert journal.last_release("ages") is not None
    with pytest.raises(BudgetExceeded, match="written off"):
        journal.commit_point(fresh_point(8))
    quiet: dict[str, Any] = {"charges": (), "releases": (), "engine_state": {}, "messages": ()}
    for time_point in range(8, 17):
        with pytest.raises(BudgetExceeded, match="fits at time point 17"):
            journal.commit_point(fresh_point(time_point))
        journal.commit_point(fresh_point(time_point, status="missed", **quiet))
    journal.close()
    assert verify(path) == []
    with open_journal(path) as again:
        assert again.ledger.resumes_at == 17
        assert [p.status for p in again.points()] == ["closed"] * 2 + ["written_off"] * 5 + ["missed"] * 9
        again.commit_point(fresh_point(17))


def test_a_write_off_under_a_finite_horizon_ends_releases(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j", terms=Terms.finite_horizon(1, 30)) as journal:
        journal.reserve("ages", "0.5", "dsft C=5")
        journal.write_off(3, "the journal was lost")
        with pytest.raises(BudgetExceeded, match="nothing comes back"):
            journal.commit_point(fresh_point(4))
        last = journal.last_point()
        assert last is not None
        assert (last.time_point, last.status, last.cut) == (3, "written_off", None)


def test_a_write_off_reaches_at_least_to_the_last_point(journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    journal.commit_point(fresh_point(2))
    for until in (0, 1):
        with pytest.raises(JournalError, match="at least to the journal's last time point, 2"):
            journal.write_off(until, "why")
    journal.write_off(2, "the same point was published twice")
    assert journal.ledger.left(11) == 0


def test_a_commit_touches_no_more_pages_as_history_grows(journal: Journal) -> None:
    """Pages written a commit, from SQLite's own write-ahead log: the cost does not grow with history."""

    def pages(first: int, last: int) -> int:
        journal.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        journal.rows("PRAGMA wal_autocheckpoint = 0")
        for time_point in range(first, last + 1):
            journal.commit_point(fresh_point(time_point))
            journal.mark_published(s.sequence for s in journal.unpublished())
        written = journal.rows("PRAGMA wal_checkpoint(PASSIVE)")[0][1]
        journal.rows("PRAGMA wal_autocheckpoint = 1000")
        return int(written)

    journal.rows("PRAGMA synchronous = OFF")
    pages(1, 50)
    early = pages(51, 100)
    for time_point in range(101, 1500):
        journal.commit_point(fresh_point(time_point))
    journal.mark_published(s.sequence for s in journal.unpublished())
    assert pages(1500, 1549) < 1.5 * early


def test_queries_of_every_point_use_an_index(journal: Journal) -> None:
    for query in (
        "UPDATE releases SET counts = NULL WHERE histogram = 'a' AND counts IS NOT NULL",
        "SELECT 1 FROM messages WHERE status = 'stored' ORDER BY sequence",
        "SELECT 1 FROM messages WHERE sha256 = x'00'",
        "SELECT 1 FROM charges WHERE time_point > 5",
        "UPDATE messages SET status = 'pruned' WHERE time_point > 1 AND time_point <= 2",
    ):
        plan = " ".join(row[3] for row in journal.rows(f"EXPLAIN QUERY PLAN {query}"))
        assert "USING" in plan, plan


def test_memory_of_an_endless_stream_is_bounded(path: Path) -> None:
    with open_journal(path, terms=Terms.w_event(1, 3)) as journal:
        journal.reserve("ages", "0.5", "p")
        journal.rows("PRAGMA synchronous = OFF")
        for time_point in range(1, 2200):
            journal.commit_point(fresh_point(time_point, messages=(), releases=(), engine_state={}))
        assert len(journal.ledger.entries) < 2 * 1024 + 3
        settled = journal.ledger.settled_before
        assert settled > 1000
    with open_journal(path, terms=Terms.w_event(1, 3)) as again:
        assert again.ledger.settled_before >= settled
        assert len(again.ledger.entries) <= 1024 + 3
        assert again.ledger.left(2199, "ages") == Fraction(1, 2) - Fraction(3, 20)
    assert verify(path) == []


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


@pytest.mark.slow
def test_killed_at_random_moments_every_point_is_whole_or_absent(path: Path) -> None:
    last = 0
    for delay in (0.0, 0.003, 0.01, 0.05, 0.11):
        writer = start_writer(path)
        with pytest.raises(JournalLocked, match=f"process {writer.pid}"):
            open_journal(path)
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
    assert last > 0


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
    assert steps == [f"{name}:{at}" for name in ("reserve", "commit", "mark") for at in ("written", "done")]


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
