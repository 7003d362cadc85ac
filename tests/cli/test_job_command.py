"""`streamdp job` without a daemon: what it says at once, and what it says from the journal."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from streamdp.cli import main
from streamdp.cli.job import _Waiting
from streamdp.config import load
from streamdp.config.transports import open_input, open_output
from streamdp.daemon.start import open_journal
from streamdp.engine import Topics
from streamdp.engine.job import Job
from streamdp.journal import PointCommit
from streamdp.privacy.ledger import Charge
from streamdp.transport.base import TopicPartition, TopicSpec
from streamdp.transport.filelog import FileLog

CONFIG = """\
[stream]
name = "clinic"
[domain.age]
type = "integer"
low = 0
high = 99
bins = 10
[time]
length = "1m"
[privacy]
epsilon = "1"
window = 10
[[histogram]]
name = "ages"
attributes = ["age"]
strategy = "baseline"
[input]
topics = ["visits"]
[jobs]
share = "0.5"
max_epsilon = "0.4"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "clinic.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def topics(config) -> FileLog:
    """The output as a daemon leaves it."""
    names = Topics.of("clinic")
    log = FileLog(load(config).output_log_path)
    log.ensure_topics([TopicSpec(names.jobs), TopicSpec(names.results)])
    yield log
    log.close()


def run(capsys, *words) -> tuple[int, str, str]:
    code = main(["job", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def requests(log: FileLog) -> list[dict]:
    reader = log.reader({TopicPartition("clinic.jobs", 0): 0})
    found = [json.loads(value) for batch in reader.poll() for value in batch.values]
    reader.close()
    return found


def test_submit_writes_the_request_and_prints_its_id(config, topics, capsys):
    words = ["submit", config, "kmeans", "--epsilon", "0.3", "--set", "n_clusters=5", "--set", "method=eugkm"]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert requests(topics) == [
        {
            "id": out.strip(),
            "kind": "kmeans",
            "epsilon": "0.3",
            "params": {"n_clusters": 5, "method": "eugkm"},
        }
    ]
    code, out, _ = run(capsys, *words, "--id", "mine", "--json")
    assert json.loads(out) == {"id": "mine"}
    assert [each["id"] for each in requests(topics)][1] == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["median", "--epsilon", "0.1"], "kind: unknown; there are: copula, kmeans, personalized, privpfc"),
        (["kmeans", "--epsilon", "0.1"], "n_clusters: missing"),
        (["kmeans", "--epsilon", "0", "--set", "n_clusters=3"], "more than 0"),
        (["kmeans", "--epsilon", "0.41", "--set", "n_clusters=3"], "at most 0.4"),
        (["kmeans", "--epsilon", "0.1", "--set", "n_clusters"], "give NAME=VALUE"),
        (["kmeans", "--epsilon", "0.1", "--set", "n_clusters=3", "--id", "a b"], "id: give"),
        (["kmeans", "--epsilon", "0.1", "--set", "n_clusters=3", "--output", "rows.txt"], ".parquet or .csv"),
        (["kmeans", "--epsilon", "0.1", "--set", "n_clusters=3", "--output", "rows.csv"], "makes no rows"),
        (["copula", "--epsilon", "0.1", "--output", "no/such/directory/rows.csv"], "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(config, topics, capsys, words, said):
    code, _, err = run(capsys, "submit", config, *words)
    assert code == 2
    assert said in err
    assert requests(topics) == []


def test_before_the_daemon_ran_there_is_nowhere_to_ask(config, capsys):
    FileLog(load(config).output_log_path).close()
    code, _, err = run(capsys, "submit", config, "kmeans", "--epsilon", "0.1", "--set", "n_clusters=3")
    assert code == 1
    assert "start its daemon once" in err


@pytest.fixture
def jobs(config, topics):
    """A journal with a job that runs, one that was refused and one that is done."""
    settings = load(config)
    source, target = open_input(settings), open_output(settings)
    running = Job("running", "kmeans", Fraction(1, 10), {"n_clusters": 2}, "admitted", time_point=1)
    refused = Job("refused", "kmeans", Fraction(1, 2), {}, "refused", reason="too much", published_at=1)
    failed = replace(running, job_id="failed", state="failed", reason="failed", published_at=1)
    with open_journal(settings, source, target) as journal:
        charges = [Charge(1, job.owner, job.epsilon, job.kind) for job in (running, failed)]
        journal.commit_point(PointCommit(1, 0, 60_000, {}, charges=charges, jobs=[running, refused, failed]))
    target.close()
    source.close()


def test_list_shows_what_became_of_each(config, jobs, capsys):
    code, out, _ = run(capsys, "list", config)
    assert code == 0
    lines = [line.split(maxsplit=5) for line in out.splitlines()[1:]]
    assert lines == [
        ["running", "kmeans", "0.1", "1", "admitted"],
        ["refused", "kmeans", "0.5", "-", "refused", "too much"],
        ["failed", "kmeans", "0.1", "1", "failed"],
    ]
    _, out, _ = run(capsys, "list", config, "--json")
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["admitted", "refused", "failed"]


def test_show_one(config, jobs, capsys):
    progress = load(config).snapshot_path / "progress.json"
    progress.parent.mkdir()
    progress.write_text('{"running": [2, 7]}')
    code, out, _ = run(capsys, "show", config, "running")
    assert code == 0
    assert "running, step 2 of 7" in out
    code, out, _ = run(capsys, "show", config, "failed", "--json")
    assert json.loads(out)["reason"] == "failed"
    code, _, err = run(capsys, "show", config, "nobody")
    assert code == 1
    assert "no such job" in err
    code, _, err = run(capsys, "show", config, "failed", "--output", progress.with_suffix(".csv"))
    assert (code, "has no rows" in err) == (1, True)


def test_whoever_waits_at_a_terminal_is_told_how_far_the_job_is(config, capsys, monkeypatch):
    progress = load(config).snapshot_path / "progress.json"
    progress.parent.mkdir(parents=True)
    waiting = _Waiting(load(config), "mine")
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda is_terminal=is_terminal: is_terminal)
        for told in ('{"other": [1, 7]}', '{"mine": [2, 7]}', '{"mine": [2, 7]}', '{"mine": [3, 7]}', "{}"):
            progress.write_text(told)
            waiting.look()
        assert capsys.readouterr().err.splitlines() == (
            ["running, step 2 of 7", "running, step 3 of 7"] if is_terminal else []
        )


def test_cancel_writes_a_request_for_a_job_that_is_open(config, topics, jobs, capsys):
    code, out, _ = run(capsys, "cancel", config, "running")
    assert code == 0
    assert "stays spent" in out
    assert requests(topics) == [{"cancel": "running"}]
    for job_id in ("failed", "refused", "nobody"):
        code, _, err = run(capsys, "cancel", config, job_id)
        assert (code, "no such job is running" in err) == (1, True)
    assert len(requests(topics)) == 1


def test_the_budget_shows_jobs_beside_histograms(config, jobs, capsys):
    assert main(["budget", str(config)]) == 0
    out = capsys.readouterr().out
    assert "0.5 reserved, 0.2 charged, 0.3 left" in out
    assert "job:running" in out


def test_kinds_are_documented_from_their_types(config, capsys):
    code, out, _ = run(capsys, "kinds")
    assert code == 0
    assert "kmeans: private k-means" in out
    assert 'n_clusters (needed): an integer from 1 to 1000 or "auto"' in out
    config.write_text(CONFIG + "kinds = []\n")
    assert run(capsys, "kinds", config)[1] == "this stream allows no jobs\n"
    _, out, _ = run(capsys, "kinds", "--json")
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["copula", "kmeans", "personalized", "privpfc"]


def test_check_says_what_one_job_may_ask(config, capsys):
    assert main(["check", str(config)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "epsilon 0.5 in every window of 10 points (50 % of the whole). One job may ask for at most 0.4." in out
