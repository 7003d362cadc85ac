"""What the journal keeps, and what it takes in: all of a point or nothing of it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from journal_samples import contents, fresh_point, open_journal

from streamdp.journal import Journal, JournalError, Opening, Release, verify
from streamdp.journal.errors import JournalMismatch
from streamdp.privacy.ledger import BudgetExceeded, Charge
from streamdp.privacy.terms import Terms
from streamdp.transport.base import Message, TopicPartition


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
        journal.commit_point(fresh_point(2, releases=(Release("r1", "ages", np.zeros(4, np.int64), "first"),)))
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
        assert [(p.first, p.time_point, p.status) for p in again.points()] == [
            *((point, point, "closed") for point in (1, 2)),
            (3, 7, "written_off"),
            *((point, point, "missed") for point in range(8, 17)),
        ]
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
