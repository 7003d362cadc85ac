"""A journal with levels of privacy: charges by level, preferences that never rise."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from journal_samples import fresh_point, open_journal

from streamdp.engine.job import Job
from streamdp.journal import JournalMismatch, JournalReader, verify
from streamdp.population.levels import LevelTable
from streamdp.privacy.ledger import BudgetExceeded, Charge
from streamdp.privacy.levels import Level
from streamdp.privacy.terms import Terms

TERMS = Terms.w_event(1, 10, levels=(Level("strict", Fraction(1, 5)), Level("open", Fraction(1))))
AMOUNTS = (Fraction(1, 50), Fraction(1, 10))
JOB = Job("a", "personalized", Fraction(1, 10), {}, "admitted", time_point=1, amounts=AMOUNTS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "visits.journal"


def admit(journal, job: Job) -> None:
    point = fresh_point(1)
    charge = Charge(1, job.owner, job.epsilon, job.kind, amounts=job.amounts)
    journal.commit_point(replace(point, charges=(*point.charges, charge), jobs=[job]))


def test_charges_and_jobs_keep_what_each_level_paid(path) -> None:
    with open_journal(path, terms=TERMS) as journal:
        journal.reserve("ages", "0.1", "dsat_w C=5")
        with pytest.raises(BudgetExceeded, match="'strict'"):
            admit(journal, replace(JOB, epsilon=Fraction(1, 2), amounts=(Fraction(1, 2),) * 2))
        assert journal.last_time_point == 0
        admit(journal, JOB)
    with open_journal(path, terms=TERMS) as again:
        assert again.jobs_under_way() == [JOB] == again.jobs()
        assert again.ledger.left_by_level(1) == [Fraction(8, 100), Fraction(8, 10)]
    assert verify(path) == []
    with sqlite3.connect(path) as connection:
        connection.execute('UPDATE jobs SET amounts = \'["1/50", "1/5"]\'')
    assert verify(path) == ["the job 'a' does not have exactly one charge"]


def test_levels_do_not_come_go_or_change_under_a_journal(path) -> None:
    open_journal(path, terms=TERMS).close()
    other = replace(TERMS, levels=(Level("strict", Fraction(1, 4)), Level("open", Fraction(1))))
    for changed in (other, replace(TERMS, levels=())):
        with pytest.raises(JournalMismatch, match="other terms"):
            open_journal(path, terms=changed)


def test_preferences_are_kept(path) -> None:
    users = np.array([[1, 2], [2**63 + 1, 4], [5, 6]], np.uint64)
    with open_journal(path, terms=TERMS) as journal:
        assert len(journal.preferences()) == 0
        first = LevelTable.of_entries(users, np.array([1, 1, 0]))
        journal.keep_preferences(first)
        lower = first.lowered_by(LevelTable.of_entries(users[:2], np.array([0, 1])), complete=False)
        journal.keep_preferences(lower.changed_since(first))
    with JournalReader.open(path) as reader:
        assert reader.preferences().of(users).tolist() == [0, 1, 0]
        assert len(reader.preferences()) == 3
    assert verify(path) == []
