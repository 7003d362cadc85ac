"""SIGKILL of the daemon at any moment of a job's life: charged once, one outcome, and the outcome never changes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from job_harness import JobStream
from waiting import PATIENCE

from streamdp.daemon.steps import JOB_STEPS

pytestmark = pytest.mark.slow


def finish(stream: JobStream, jobs: list[str]) -> None:
    """A daemon that lives until every job has its outcome."""
    process = stream.start()
    try:
        stream.wait_for(*jobs, process=process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, stream.log_text()


def die_at(stream: JobStream, step: str) -> None:
    process = stream.start(kill_at=step)
    assert process.wait(PATIENCE) == -signal.SIGKILL, f"{step}: {stream.log_text()}"


def first_points(stream: JobStream) -> None:
    stream.feed(200)
    stream.run_until(points=1)


def test_a_daemon_killed_while_a_job_runs_runs_it_again_for_the_same_charge(tmp_path):
    stream = JobStream(tmp_path)
    first_points(stream)
    process = stream.start()
    stream.ask("long", "0.3", seconds=2, runs=str(tmp_path / "runs"))
    stream.wait(lambda: stream.runs(tmp_path / "runs"), process)
    admitted = stream.job("long")
    process.kill()
    process.wait(PATIENCE)
    (worker,) = stream.runs(tmp_path / "runs")
    stream.wait(lambda: not stream.is_alive(worker))
    stream.feed(200)  # which the snapshot does not hold
    finish(stream, ["long"])
    assert len(stream.runs(tmp_path / "runs")) == 2
    outcome = stream.result("long")
    assert (outcome["state"], outcome["time_point"]) == ("done", admitted.time_point)
    assert outcome["result"]["point"] == admitted.time_point
    stream.check()


def test_killed_at_each_step_of_a_jobs_life(tmp_path):
    stream = JobStream(tmp_path)
    first_points(stream)
    jobs, before = [], []
    for number, step in enumerate(JOB_STEPS):
        jobs.append(f"job-{number}")
        stream.ask(jobs[-1], runs=str(tmp_path / jobs[-1]))
        die_at(stream, step)
        results = stream.outputs("results")
        assert results[: len(before)] == before
        before = results
    finish(stream, jobs)
    assert stream.outputs("results")[: len(before)] == before
    assert [stream.result(job)["state"] for job in jobs] == ["done"] * len(jobs)
    assert not list(stream.config.snapshot_path.glob("snapshot-*"))
    stream.check()


def test_a_stored_outcome_is_published_as_stored_and_never_computed_again(tmp_path):
    stream = JobStream(tmp_path)
    first_points(stream)
    stream.ask("good", runs=str(tmp_path / "good"))
    stream.ask("bad", what="raise", runs=str(tmp_path / "bad"))
    die_at(stream, "result.stored:2")
    stored = [stream.job(job) for job in ("good", "bad")]
    finish(stream, ["good", "bad"])
    assert [job.state for job in stored] == ["done", "failed"]
    assert [stream.result(job.job_id)["state"] for job in stored] == ["done", "failed"]
    assert [len(stream.runs(tmp_path / job.job_id)) for job in stored] == [1, 1]
    stream.check()


def test_killed_after_the_horizon_at_each_step_of_a_job(tmp_path):
    stream = JobStream(tmp_path, guarantee="horizon = 3", strategy="dsft", parameters="releases = 2\nthreshold = 20")
    stream.feed(200)
    stream.run_until(points=3)
    before: list[bytes] = []
    jobs = []
    for number, step in enumerate(["journal.jobs.written", "publish.before", "publish.after", "journal.mark.written"]):
        jobs.append(f"job-{number}")
        stream.ask(jobs[-1], what="rows")
        die_at(stream, step)
        results = stream.outputs("results")
        assert results[: len(before)] == before
        before = results
    finish(stream, jobs)
    assert stream.outputs("results")[: len(before)] == before
    for job in jobs:
        assert stream.result(job)["state"] == "done"
        assert len(stream.outputs(f"rows.{job}")) == stream.result(job)["rows"]["parts"]
    stream.check_ledger()
    stream.check_outputs()


def test_an_old_copy_of_the_journal_is_refused_for_a_result_it_does_not_know(tmp_path):
    stream = JobStream(tmp_path, guarantee="horizon = 3", strategy="dsft", parameters="releases = 2\nthreshold = 20")
    stream.run_until(points=3)
    copy = stream.config.journal_path.read_bytes()
    assert not stream.config.journal_path.with_name("journal.db-wal").exists()
    stream.ask("a")
    finish(stream, ["a"])
    stream.config.journal_path.write_bytes(copy)
    process = stream.start()
    assert process.wait(PATIENCE) == 1
    assert "time point 3 was published by another copy of this journal" in stream.log_text()
    command = [sys.executable, "-m", "streamdp", "journal", "write-off", str(stream.path), "--yes"]
    subprocess.run(command, check=True, capture_output=True)
    # What was asked of the lost part is asked again, and there is nothing left to answer it with.
    process = stream.start()
    stream.wait(lambda: len(stream.results()) == 2, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert stream.results()[1]["reason"].startswith("epsilon 0.01 does not fit: 0 is left")


def campaign(stream: JobStream, kills: int, seed: int) -> None:
    randomness = random.Random(seed)
    first_points(stream)
    jobs: list[str] = []
    before: list[bytes] = []
    for number in range(kills):
        process = stream.start()
        deadline = time.monotonic() + randomness.uniform(0.5, 3)
        while time.monotonic() < deadline:
            stream.feed(20)
            jobs.append(f"job-{number}-{len(jobs)}")
            what = randomness.choice(["count", "count", "raise", "rows"])
            stream.ask(jobs[-1], "0.001", seconds=randomness.random(), what=what)
            time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        results = stream.outputs("results")
        assert results[: len(before)] == before, "a result that was out has changed"
        before = results
    finish(stream, jobs)
    assert stream.outputs("results")[: len(before)] == before
    outcomes = [each["id"] for each in stream.results()]
    assert sorted(outcomes) == sorted(jobs)
    stream.check()


def test_killed_at_random_while_jobs_run(tmp_path):
    campaign(JobStream(tmp_path), kills=3, seed=3)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(5))
def test_killed_a_hundred_times_while_jobs_run(tmp_path, seed):
    campaign(JobStream(tmp_path, jobs="max_waiting = 10000"), kills=20, seed=seed)
