"""A run of points that were missed, or written off, is one row."""

from __future__ import annotations

from pathlib import Path

import pytest
from journal_samples import fresh_point, missed_points, open_journal

from streamdp.journal import Journal, verify
from streamdp.transport.base import TopicPartition

MONTH = 25_920_000
"""Thirty days of points of 100 ms."""


def test_a_run_is_one_row_and_what_follows_it_goes_on(path: Path, journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    journal.commit_point(missed_points(2, MONTH))
    journal.commit_point(fresh_point(MONTH + 1))
    journal.close()
    assert verify(path) == []
    with open_journal(path) as again:
        runs = [(point.first, point.time_point, point.status, point.cut is None) for point in again.points()]
        assert runs == [
            (1, 1, "closed", False),
            (2, MONTH, "missed", True),
            (MONTH + 1, MONTH + 1, "closed", False),
        ]
        assert again.last_time_point == MONTH + 1
        assert [point.time_point for point in again.points(since=7)] == [MONTH, MONTH + 1]
        assert [time_point for time_point, _ in again.cuts()] == [1, MONTH + 1]
        again.commit_point(fresh_point(MONTH + 2))


def test_what_was_written_off_is_one_row(path: Path, journal: Journal) -> None:
    journal.commit_point(fresh_point(1))
    journal.write_off(MONTH, "another copy ran")
    journal.write_off(MONTH, "and again")
    assert [(point.first, point.time_point) for point in journal.points()] == [(1, 1), (2, MONTH)]
    journal.close()
    assert verify(path) == []


@pytest.mark.parametrize(("first", "last"), [(1, 4), (3, 4), (2, 1)])
def test_a_run_follows_the_last_point(journal: Journal, first: int, last: int) -> None:
    journal.commit_point(fresh_point(1))
    with pytest.raises(ValueError, match="time point 2 comes next"):
        journal.commit_point(missed_points(first, last))
    assert journal.last_time_point == 1


def test_points_that_were_watched_have_rows_of_their_own(journal: Journal) -> None:
    with pytest.raises(ValueError, match="only points that were missed"):
        journal.commit_point(fresh_point(2, first=1, cut={TopicPartition("records", 0): 1}))


def test_what_is_published_ends_before_the_whole_run_that_is_not(journal: Journal) -> None:
    assert journal.published_until() == 0
    journal.commit_point(fresh_point(1))
    assert journal.published_until() == 0
    journal.mark_published([1, 2])
    assert journal.published_until() == 1
    journal.commit_point(missed_points(2, 9))
    assert journal.published_until() == 1
    journal.mark_published([3])
    assert journal.published_until() == 1
    journal.mark_published([4])
    assert journal.published_until() == 9
