"""What the journal keeps of jobs, and that each has exactly one charge."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from fractions import Fraction

import pytest
from journal_samples import fresh_point, open_journal

from streamdp.engine.job import Job
from streamdp.journal import JobsCommit, JournalReader, verify
from streamdp.privacy.ledger import BudgetExceeded, Charge
from streamdp.transport.base import Message

JOB = Job("a", "kmeans", Fraction(1, 10), {"n_clusters": 3}, "admitted", time_point=1)
CHARGE = Charge(1, "job:a", Fraction(1, 10), "kmeans")


def admit(journal, job: Job = JOB, position: int | None = 7) -> None:
    point = fresh_point(1)
    charges = (*point.charges, Charge(1, job.owner, job.epsilon, job.kind))
    journal.commit_point(replace(point, charges=charges, jobs=[job], jobs_position=position))


def test_a_job_is_admitted_with_its_charge_and_position_in_the_points_transaction(journal, path):
    assert journal.jobs_position() is None
    admit(journal)
    with JournalReader.open(path) as reader:
        assert reader.jobs() == [JOB]
        assert reader.job("a") == JOB
        assert reader.job("b") is None
        assert reader.jobs_under_way() == [JOB]
        assert reader.job_ids() == {"a"}
        assert reader.jobs_position() == 7
        assert reader.read_ledger().spent(1, "job:a") == Fraction(1, 10)
    assert verify(path) == []


def test_a_charge_that_does_not_fit_leaves_nothing_of_the_point(journal):
    with pytest.raises(BudgetExceeded):
        admit(journal, replace(JOB, epsilon=Fraction(3, 5)))
    assert (journal.jobs(), journal.last_time_point, journal.jobs_position()) == ([], 0, None)


def test_an_outcome_is_kept_until_it_is_published(journal, path):
    admit(journal)
    done = replace(JOB, state="done", result=b"result")
    journal.commit_jobs(JobsCommit(1, jobs=[done]))
    journal.close()
    with open_journal(path) as again:
        assert again.jobs_under_way() == [done]
        assert again.jobs() == [replace(done, result=None)]
        published = replace(done, result=None, published_at=2)
        again.commit_point(fresh_point(2, jobs=[published]))
        assert again.jobs_under_way() == []
        assert again.job("a") == published
    assert verify(path) == []


def test_results_after_the_end_are_messages_of_the_last_point(journal):
    admit(journal)
    message = Message("visits.results", b"done", b"a", partition=0)
    done = replace(JOB, state="done", published_at=1)
    journal.mark_published([stored.sequence for stored in journal.unpublished()])
    journal.commit_jobs(JobsCommit(1, [done], (), [message], 8))
    assert [stored.message for stored in journal.unpublished()] == [message]
    assert journal.jobs_position() == 8
    assert journal.knows(message)


def test_jobs_are_charged_at_closed_points_only(journal):
    admit(journal)
    late = Charge(2, "job:b", Fraction(1, 10), "kmeans")
    with pytest.raises(ValueError, match="closed"):
        journal.commit_jobs(JobsCommit(1, [replace(JOB, job_id="b", time_point=2)], [late]))
    with pytest.raises(ValueError, match="closed"):
        journal.commit_jobs(JobsCommit(2))


def test_refused_requests_are_kept_and_do_not_use_up_the_id(journal):
    refused = replace(JOB, state="refused", time_point=None, reason="no", published_at=1)
    journal.commit_point(fresh_point(1, jobs=[refused, replace(refused, reason="no again")]))
    assert journal.job("a").reason == "no again"
    assert journal.job_ids() == set()
    journal.commit_jobs(JobsCommit(1, [JOB], [CHARGE]))
    assert journal.job("a") == JOB
    assert len(journal.jobs()) == 3


def test_a_write_off_ends_jobs_whose_results_may_be_out_already(journal):
    admit(journal)
    journal.write_off(5, "lost")
    assert journal.jobs_under_way() == []
    assert (journal.job("a").state, journal.job("a").reason) == ("failed", "written off")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM charges WHERE counted = 1", "the job 'a' does not have exactly one charge"),
        ("UPDATE charges SET epsilon = '1/20' WHERE counted = 1", "the job 'a' does not have exactly one charge"),
        ("DELETE FROM jobs", "the charge of 'job:a' belongs to no job"),
    ],
)
def test_verify_finds_a_job_without_its_charge_and_a_charge_without_its_job(journal, path, damage, found):
    admit(journal)
    journal.close()
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    assert found in verify(path)
