"""The chain of commits: what is changed, missing or of another copy is found."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from journal_samples import fresh_point, missed_points, open_journal

from streamdp.journal import Commit, Journal, JournalReader, verify
from streamdp.transport.base import TopicPartition
from streamdp.transport.guard import Skip


def test_every_commit_that_promises_or_spends_is_a_link(path: Path, journal: Journal) -> None:
    links = [journal.last_commit()]
    for write in (
        lambda: journal.commit_point(fresh_point(1)),
        lambda: journal.commit_point(missed_points(2, 3)),
        lambda: journal.write_off(5, "lost"),
        lambda: journal.reserve("wards", "0.1", "fixed"),
        lambda: journal.skip(Skip(TopicPartition("visits", 0), 7, 9)),
    ):
        write()
        links.append(journal.last_commit())
        assert links[-1].number == links[-2].number + 1
    for nothing_new in (lambda: journal.mark_published([1, 2]), lambda: journal.prune(1)):
        nothing_new()
        assert journal.last_commit() == links[-1]
    assert len({link.digest for link in links}) == len(links)
    assert all(map(journal.contains, links))
    assert not journal.contains(Commit(links[1].number, links[2].digest))
    assert not journal.contains(Commit(links[-1].number + 1, links[-1].digest))
    assert journal.commit_of(1) == journal.commit_of(2) == links[1]
    assert journal.commit_of(3) == links[2]
    assert verify(path) == []


def test_a_fork_that_did_the_very_same_is_another(path: Path, journal: Journal, tmp_path: Path) -> None:
    journal.commit_point(fresh_point(1))
    common = journal.last_commit()
    journal.close()
    shutil.copy(path, tmp_path / "copy")
    with open_journal(path) as one, open_journal(tmp_path / "copy") as other:
        for each in (one, other):
            each.commit_point(fresh_point(2))
        assert other.contains(common)
        assert not other.contains(one.last_commit())
        assert not one.contains(other.last_commit())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE charges SET epsilon = '1/21' WHERE time_point = 2",
        "UPDATE charges SET id = 100 WHERE time_point = 4",
        "DELETE FROM charges WHERE time_point = 4",
        "DELETE FROM messages WHERE sequence = 8",
        "UPDATE messages SET sha256 = (SELECT sha256 FROM messages WHERE sequence = 1) WHERE sequence = 3",
        "UPDATE releases SET sha256 = x'00' WHERE time_point = 1",
        "DELETE FROM releases WHERE time_point = 4",
        "UPDATE points SET status = 'missed' WHERE time_point = 1",
        "UPDATE points SET first = 0 WHERE time_point = 1",
        "UPDATE settings SET value = '\"3s\"' WHERE name = 'time.length'",
        "UPDATE reservations SET epsilon = '2/5'",
        "INSERT INTO write_offs (until, known, reason, ts) VALUES (1, 1, 'x', 0)",
        "DELETE FROM commits WHERE number = 3",
        "DELETE FROM commits WHERE number = (SELECT max(number) FROM commits)",
    ],
)
def test_verify_finds_what_was_changed_also_after_pruning(path: Path, journal: Journal, change: str) -> None:
    for time_point in (1, 2, 3, 4):
        journal.commit_point(fresh_point(time_point))
    journal.mark_published(range(1, 9))
    journal.prune(1)
    journal.close()
    assert verify(path) == []
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(change)
    connection.close()
    assert [problem for problem in verify(path) if "commit" in problem]


def test_the_salts_stay_in_the_journal(path: Path, journal: Journal) -> None:
    """The digest is public. Without the salt, who guesses what was chained could confirm it."""
    journal.commit_point(fresh_point(1))
    with JournalReader.open(path) as reader:
        salts = [salt for (salt,) in reader.rows("SELECT salt FROM commits")]
    assert len(set(salts)) == len(salts) == journal.last_commit().number
    assert {len(salt) for salt in salts} == {16}
