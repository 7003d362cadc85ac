"""Jobs in a real daemon: asked for, refused, run, failed, cancelled, and never in anybody's way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from harness import WARDS
from job_harness import JobStream
from waiting import PATIENCE

from streamdp import messages
from streamdp.audit.monte_carlo import is_consistent
from streamdp.daemon.job_runner import REQUESTS_AT_ONCE
from streamdp.jobs.request import encode_request
from streamdp.journal import JournalReader
from streamdp.result_messages import decode_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def stream(tmp_path) -> JobStream:
    stream = JobStream(tmp_path)
    stream.feed(200)
    return stream


@pytest.fixture
def daemon(stream):
    """A running daemon, stopped in good order at the end; then everything must add up."""
    process = stream.start()
    try:
        stream.wait(lambda: stream.last_published() >= 1, process)
        yield process
        assert process.poll() is None, stream.log_text()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, stream.log_text()
    stream.check()


def test_a_job_reads_the_snapshot_it_is_charged_for(stream, daemon):
    stream.ask("a", "0.1")
    (outcome,) = stream.wait_for("a", process=daemon)
    assert (outcome["state"], outcome["epsilon"]) == ("done", "1/10")
    assert outcome["result"]["point"] == outcome["time_point"] <= outcome["published_at"]
    # Nothing is fed meanwhile, so that every snapshot holds the same users.
    counted = sum(stream.count_below_now().values())
    assert outcome["result"]["records"] == counted
    budget = subprocess.run(
        [sys.executable, "-m", "streamdp", "budget", str(stream.path)], capture_output=True, text=True, check=True
    )
    assert "job:a" in budget.stdout
    assert not list(stream.config.snapshot_path.glob("snapshot-*")), "a snapshot outlived its job"


def test_what_is_wrong_is_refused_on_the_results_topic(stream, daemon):
    stream.ask("ok", "0.2")
    stream.ask("ok", "0.2")
    stream.ask("greedy", "0.4")
    stream.ask("unknown", kind="secret-17")
    stream.ask("bad", kind="kmeans", n_clusters="secret-17")
    stream.ask("nothing", "0")
    stream.request(b"secret-17", b"{" * 10_000, None, b'{"id": "no epsilon", "kind": "test"}', b"x" * 100_000)
    stream.ask("last", "0")
    stream.wait(lambda: stream.result("last") and stream.result("ok"), daemon)
    reasons = [(each["id"], each["reason"]) for each in stream.results() if each["state"] == "refused"]
    assert ("ok", "this id was used before; choose another") in reasons
    greedy = dict(reasons)["greedy"]
    assert greedy.startswith("epsilon 0.4 does not fit: 0.3 is left; it fits from time point 10")
    assert dict(reasons)["unknown"].startswith("kind: unknown")
    assert dict(reasons)["bad"].startswith("n_clusters: give")
    assert dict(reasons)["nothing"].startswith("epsilon: nothing")
    assert {job_id for job_id, _ in reasons} == {"ok", "greedy", "unknown", "bad", "nothing", "last"}
    assert not any(b"secret-17" in value for value in stream.outputs("results"))
    assert stream.result("greedy")["epsilon_left"] == "3/10"


@pytest.mark.parametrize("what", ["raise", "die", "hog"])
def test_a_job_that_fails_takes_nobody_with_it(stream, daemon, what):
    stream.ask("bad", "0.1", what=what)
    stream.ask("good", "0.1")
    bad, good = stream.wait_for("bad", "good", process=daemon)
    assert (bad["state"], bad["reason"], bad["epsilon"]) == ("failed", "failed", "1/10")
    assert good["state"] == "done"
    stream.ask("bad", "0.1")
    stream.wait(lambda: len(stream.results()) == 3, daemon)
    assert stream.results()[2]["reason"].startswith("this id was used before")
    assert "quote a record" not in stream.log_text()


def test_a_worker_killed_from_outside_fails_its_job_only(stream, daemon, tmp_path):
    stream.ask("killed", what="hang", runs=str(tmp_path / "killed"))
    stream.ask("other", seconds=3, runs=str(tmp_path / "other"))
    stream.wait(lambda: stream.runs(tmp_path / "killed") and stream.runs(tmp_path / "other"), daemon)
    os.kill(stream.runs(tmp_path / "killed")[0], signal.SIGKILL)
    killed, other = stream.wait_for("killed", "other", process=daemon)
    assert (killed["state"], other["state"]) == ("failed", "done")
    assert len(stream.runs(tmp_path / "killed")) == 1


def test_a_job_that_hangs_past_its_time_has_failed(tmp_path):
    stream = JobStream(tmp_path, jobs='time_limit = "12s"')
    process = stream.start()
    try:
        stream.wait(lambda: stream.last_published() >= 1, process)
        stream.ask("slow", what="hang", runs=str(tmp_path / "runs"))
        (slow,) = stream.wait_for("slow", process=process)
        assert (slow["state"], slow["reason"]) == ("failed", "failed")
        assert not stream.is_alive(stream.runs(tmp_path / "runs")[0])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    stream.check()


def test_cancelling_a_job_ends_its_worker_and_keeps_its_charge(stream, daemon, tmp_path):
    stream.ask("long", "0.1", what="hang", runs=str(tmp_path / "runs"))
    stream.wait(lambda: stream.runs(tmp_path / "runs"), daemon)
    stream.wait(lambda: stream.json("show", "long")["progress"] == "running, step 1 of 3", daemon)
    done = stream.command("cancel", "long")
    assert done.returncode == 0, done.stderr
    (outcome,) = stream.wait_for("long", process=daemon)
    assert (outcome["state"], outcome["epsilon"]) == ("cancelled", "1/10")
    stream.wait(lambda: not stream.is_alive(stream.runs(tmp_path / "runs")[0]))
    assert "no such job" in stream.command("cancel", "long").stderr


def test_wide_results_and_rows_arrive_whole(stream, daemon, tmp_path):
    stream.ask("wide", what="wide")
    (wide,) = stream.wait_for("wide", process=daemon)
    assert wide["result"] == {"numbers": list(range(300_000)), "text": '"' * 1_000}
    assert max(map(len, stream.outputs("results"))) <= 900_000
    for suffix, read in ((".parquet", pyarrow.parquet.read_table), (".csv", pyarrow.csv.read_csv)):
        target = tmp_path / f"rows{suffix}"
        done = stream.command("submit", "test", "--epsilon", "0.01", "--set", "what=rows", "--output", str(target))
        assert done.returncode == 0, done.stderr
        rows = read(target)
        assert rows["age"].to_pylist() == list(range(100_000))
        assert set(rows["ward"].to_pylist()) == {"ä,b"}


def test_copula_makes_rows_of_the_snapshot_on_a_topic_of_their_own_and_in_a_file(stream, daemon, tmp_path):
    target = tmp_path / "people.parquet"
    words = ["copula", "--epsilon", "0.4", "--set", "rows=5000", "--id", "people", "--output", str(target), "--json"]
    done = stream.command("submit", *words)
    assert done.returncode == 0, done.stderr
    assert f"5000 rows written to {target}" in done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["state"], outcome["epsilon"]) == ("done", "2/5")
    assert outcome["result"]["epsilon_spent"] == "2/5"
    topic = stream.outputs("rows.people")
    assert outcome["rows"] == {"topic": "clinic.rows.people", "parts": len(topic)}
    rows = pyarrow.parquet.read_table(target)
    assert rows.equals(decode_rows(topic))
    assert (rows.column_names, rows.num_rows) == (["ward", "age"], 5000)
    assert set(rows["ward"].to_pylist()) <= set(WARDS)
    assert all(0 <= age <= 99 for age in rows["age"].to_pylist())
    # The rows are drawn from the model that was published.
    for ward, share in zip(WARDS, outcome["result"]["margins"]["ward"], strict=True):
        assert is_consistent(np.array(rows["ward"]) == ward, share, risk=1e-11)
    again = tmp_path / "again.csv"
    assert stream.json("show", "people", "--output", str(again))["rows"] == outcome["rows"]
    assert pyarrow.csv.read_csv(again)["age"].to_pylist() == rows["age"].to_pylist()


def test_privpfc_releases_a_grid_and_rows_of_the_snapshot(stream, daemon, tmp_path):
    target = tmp_path / "wards.csv"
    words = ["privpfc", "--epsilon", "0.4", "--set", "target=ward", "--set", "rows=300", "--set", "pool_size=50"]
    done = stream.command("submit", *words, "--id", "wards", "--output", str(target), "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    result = outcome["result"]
    assert (outcome["state"], outcome["epsilon"], result["epsilon_spent"]) == ("done", "2/5", "2/5")
    assert result["classes"] == sorted(WARDS)
    assert sum(result["counts"]) == result["size"]
    assert min(result["counts"]) >= 0
    assert set(result["grid"]) == set(result["labels"]) <= {"age"}
    rows = pyarrow.csv.read_csv(target)
    assert (rows.column_names, rows.num_rows) == ([*result["labels"], "ward"], 300)
    assert rows["ward"].to_pylist() == decode_rows(stream.outputs("rows.wards"))["ward"].to_pylist()
    refused = stream.command("submit", "privpfc", "--epsilon", "0.1", "--set", "target=age")
    assert refused.returncode == 2
    assert "target: name a categorical attribute; there are: ward" in refused.stderr


def test_the_command_submits_waits_lists_and_shows(stream, daemon):
    words = ["kmeans", "--epsilon", "0.2", "--set", "n_clusters=2", "--id", "mine", "--wait", "--json"]
    done = stream.command("submit", *words)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["id"], outcome["state"], outcome["job"]) == ("mine", "done", "kmeans")
    assert len(outcome["result"]["cluster_centers"]) == 2
    shown = stream.json("show", "mine")
    assert shown["result"] == outcome["result"]
    assert (shown["state"], shown["epsilon"], shown["time_point"]) == ("done", "1/5", outcome["time_point"])
    refused = stream.command("submit", "test", "--epsilon", "0.4", "--wait")
    assert refused.returncode == 1
    assert "0.3 is left" in refused.stdout
    listed = stream.command("list").stdout.splitlines()
    assert [line.split()[1] for line in listed[1:]] == ["kmeans", "test"]
    assert "refused" in listed[2]


def test_a_flood_of_requests_is_worked_off_over_several_points(stream, daemon):
    many = REQUESTS_AT_ONCE + 20
    stream.request(*[encode_request(f"greedy-{number}", "test", "0.9", {}) for number in range(many)])
    stream.wait(lambda: len(stream.results()) == many, daemon)
    assert len({each["published_at"] for each in stream.results()}) >= 2


def test_rubbish_delays_no_job_and_leaves_nothing_behind(stream, daemon):
    """3,000 messages that are no requests, 3,000 with an id that ask for nonsense, then a job."""
    rubbish = [b"rubbish", b"[" * 1_000, None, b"{}", b'{"id": "a b"}', b'{"cancel": "nobody"}', b"x" * 70_000]
    nonsense = [encode_request(f"nonsense-{number}", "secret-17", "0.1", {}) for number in range(3_000)]
    real = encode_request("real", "test", "0.1", {})
    stream.request(*[rubbish[number % 6] for number in range(3_000)], *nonsense, rubbish[6], real)
    before = stream.last_published()
    (outcome,) = stream.wait_for("real", process=daemon)
    assert outcome["state"] == "done"
    assert outcome["time_point"] - before <= 15, "30 points and more, when each has to be decided on"
    answers = [each for each in stream.results() if each["id"] != "real"]
    assert 0 < len(answers) <= 10 * REQUESTS_AT_ONCE
    with JournalReader.open(stream.config.journal_path) as journal:
        assert [job.job_id for job in journal.jobs()] == ["real"]
        assert journal.jobs_position() == 6_002


def test_stopping_the_daemon_ends_the_workers_and_the_next_start_runs_them_again(tmp_path):
    stream = JobStream(tmp_path)
    process = stream.start()
    stream.wait(lambda: stream.last_published() >= 1, process)
    stream.ask("long", seconds=4, runs=str(tmp_path / "runs"))
    stream.wait(lambda: stream.runs(tmp_path / "runs"), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, stream.log_text()
    assert not stream.is_alive(stream.runs(tmp_path / "runs")[0])
    assert stream.job("long").is_open
    again = stream.start()
    try:
        (outcome,) = stream.wait_for("long", process=again)
        assert outcome["state"] == "done"
        assert len(stream.runs(tmp_path / "runs")) == 2
    finally:
        again.send_signal(signal.SIGTERM)
        assert again.wait(PATIENCE) == 0
    stream.check()


def test_a_job_under_way_in_a_backup_has_failed_after_the_restore_and_stays_charged_once(tmp_path):
    """A backup holds no snapshots, and any other snapshot would be another dataset."""
    stream = JobStream(tmp_path)
    stream.feed(200)
    process = stream.start()
    stream.wait(lambda: stream.last_published() >= 1, process)
    stream.ask("long", "0.1", what="hang", runs=str(tmp_path / "runs"))
    stream.wait(lambda: stream.runs(tmp_path / "runs"), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, stream.log_text()
    kept = tmp_path / "kept.db"
    backup = [sys.executable, "-m", "streamdp", "journal", "backup", str(stream.path), str(kept)]
    assert subprocess.run(backup, check=False).returncode == 0
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").mkdir(mode=0o700)
    kept.rename(stream.config.journal_path)
    again = stream.start()
    try:
        (outcome,) = stream.wait_for("long", process=again)
        assert (outcome["state"], outcome["reason"], outcome["epsilon"]) == ("failed", "failed", "1/10")
        stream.ask("long", "0.1")
        stream.wait(lambda: len(stream.results()) == 2, again)
        assert stream.results()[1]["reason"].startswith("this id was used before")
    finally:
        again.send_signal(signal.SIGTERM)
        assert again.wait(PATIENCE) == 0
    assert len(stream.runs(tmp_path / "runs")) == 1
    stream.check()


def test_after_the_horizon_jobs_spend_what_is_left_of_it(tmp_path):
    stream = JobStream(tmp_path, guarantee="horizon = 5", strategy="dsft", parameters="releases = 2\nthreshold = 20")
    stream.feed(200)
    process = stream.start()
    try:
        stream.wait(lambda: stream.last_published() == 5, process)
        stream.ask("late", "0.3")
        (late,) = stream.wait_for("late", process=process)
        assert (late["state"], late["time_point"], late["published_at"]) == ("done", 5, 5)
        counted = late["result"]["records"]
        stream.feed(200)  # too late to count
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, stream.log_text()
        process = stream.start()
        stream.ask("later", "0.2")
        stream.ask("too late", "0.1")
        stream.ask("last", "0.1")
        later, last = stream.wait_for("later", "last", process=process)
        assert (later["state"], later["result"]["records"]) == ("done", counted)
        assert last["reason"] == "epsilon 0.1 does not fit: 0 is left; it never will"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    stream.check_ledger()
    stream.check_outputs()


def delays_of_closes(stream: JobStream, seconds: float) -> list[float]:
    """Of every point published meanwhile, how long after its close that was seen."""
    delays, seen = [float("inf")], stream.last_published()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stream.feed(20)
        head = messages.decode(stream.outputs("head")[-1]).header
        if head["time_point"] > seen:
            seen = head["time_point"]
            delays.append(time.time() - head["closed"] / 1_000)
        time.sleep(0.01)
    return delays[1:] or delays


def test_points_close_on_time_while_jobs_use_every_core(tmp_path):
    """The worst delay of an epoch close with both cores busy on jobs is under one second."""
    cores = os.cpu_count() or 1
    stream = JobStream(tmp_path, length="500ms", jobs=f"workers = {cores}")
    stream.path.write_text(stream.path.read_text().replace("[time]", "[time]\npublish_after = 0"))
    stream.feed(200)
    process = stream.start()
    try:
        stream.wait(lambda: stream.last_published() >= 1, process)
        for number in range(cores):
            stream.ask(f"spin{number}", what="spin", runs=str(tmp_path / f"{number}"))
        stream.wait(lambda: all(stream.runs(tmp_path / f"{number}") for number in range(cores)), process)
        # Others may take the machine for a while; a daemon that its jobs hold up is late in every stretch.
        for _ in range(10):
            delays = delays_of_closes(stream, seconds=10)
            if max(delays) < 1:
                break
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert len(delays) >= 5
    assert max(delays) < 1, f"worst delay {max(delays):.3f} s, median {sorted(delays)[len(delays) // 2]:.3f} s"
    stream.check()
    assert Fraction(stream.job("spin0").epsilon) == Fraction(1, 100)
