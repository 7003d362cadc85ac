"""Personalised jobs in a real daemon: levels from a public table, charges by level, and none of it lost in a crash."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import pytest
from job_harness import JobStream
from waiting import PATIENCE

from streamdp.ingest import Digester
from streamdp.journal import JournalReader
from streamdp.transport.base import Message
from streamdp.transport.batch import Blobs

pytestmark = pytest.mark.slow

NAMES = ("strict", "normal", "open")
# The histograms take 0.02 of everybody.
LIMITS = (Fraction(3, 100), Fraction(28, 100), Fraction(98, 100))


@dataclass
class PersonalStream(JobStream):
    table: str = 'path = "people.csv"'

    def __post_init__(self) -> None:
        super().__post_init__()
        text = self.path.read_text().replace('share = "0.25"', 'share = "0.01"')
        classes = 'classes = { strict = "0.05", normal = "0.3", open = "1" }'
        text = text.replace("[[histogram]]", f"[privacy.preferences]\n{classes}\n{self.table}\n[[histogram]]", 1)
        self.path.write_text(text)
        self.prefer({user: NAMES[user % 3] for user in range(200)})

    def prefer(self, preferences: dict[int, str]) -> None:
        """Users from 200 on have no entry."""
        lines = [f"user-{user},{preference}" for user, preference in preferences.items()]
        fresh = self.directory / "people.new"
        fresh.write_text("\n".join(["user,preference", *lines, ""]))
        fresh.replace(self.directory / "people.csv")

    def level_of(self, user: int) -> int | None:
        with JournalReader.open(self.config.journal_path) as journal:
            digest = Digester(journal.digest_key)(Blobs.from_list([f"user-{user}".encode()]))
            return int(journal.preferences().of(digest)[0])

    @contextmanager
    def running(self):
        before = self.last_published()
        process = self.start()
        try:
            self.wait(lambda: self.last_published() > before, process)
            yield process
            assert process.poll() is None, self.log_text()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, self.log_text()


@pytest.fixture
def stream(tmp_path) -> PersonalStream:
    stream = PersonalStream(tmp_path)
    stream.feed(300)
    return stream


def amounts(epsilon: str) -> list[str]:
    asked = Fraction(epsilon)
    return [str(asked * limit / LIMITS[-1]) for limit in LIMITS]


def test_each_level_pays_in_proportion_and_the_budget_is_shown_by_level(stream) -> None:
    with stream.running() as daemon:
        stream.ask("first", "0.49", "personalized", target="histogram", attributes=["ward"])
        (first,) = stream.wait_for("first", process=daemon)
        assert first["state"] == "done", first
        assert first["epsilon"] == "49/100"
        assert first["epsilon_by_level"] == amounts("0.49") == ["3/200", "7/50", "49/100"]
        assert len(first["result"]["counts"]) == 4
        spent = [Fraction(each) for each in first["result"]["epsilon_spent_by_level"]]
        assert all(paid <= Fraction(amount) for paid, amount in zip(spent, amounts("0.49"), strict=True))
        # A uniform job asks the same of everybody: 0.015 is left to the strict.
        stream.ask("uniform", "0.02")
        (uniform,) = stream.wait_for("uniform", process=daemon)
        assert uniform["reason"].startswith("epsilon 0.02 does not fit: 0.015 is left to users of the level 'strict'")
        assert uniform["level"] == "strict"
        stream.ask("small", "0.01")
        stream.ask("greedy", "0.49", "personalized", target="mean")
        small, greedy = stream.wait_for("small", "greedy", process=daemon)
        assert (small["state"], greedy["state"]) == ("done", "refused")
        assert "0.005 is left to users of the level 'strict'" in greedy["reason"]
    shown = subprocess.run(
        [sys.executable, "-m", "streamdp", "budget", str(stream.path), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    levels = {row["level"]: (row["epsilon"], row["spent"], row["left"]) for row in json.loads(shown.stdout)["levels"]}
    assert levels == {
        "strict": ("1/20", "9/200", "1/200"),
        "normal": ("3/10", "17/100", "13/100"),
        "open": ("1/1", "13/25", "12/25"),
    }
    stream.check()


def test_what_cannot_be_is_refused_before_it_costs_anything(stream) -> None:
    with stream.running() as daemon:
        asked = {
            "no-target": {},
            "no-range": {"target": "range_counts"},
            "odd-range": {"target": "range_counts", "ranges": [{"age": [3, 7]}]},
            "text": {"target": "mean", "mechanism": "sampling", "threshold": "secret-17"},
            "high": {"target": "mean", "mechanism": "sampling", "threshold": "0.7"},
        }
        for job_id, params in asked.items():
            stream.ask(job_id, "0.5", "personalized", **params)
        outcomes = stream.wait_for(*asked, process=daemon)
        assert {each["state"] for each in outcomes} == {"refused"}
        assert not any(b"secret-17" in value for value in stream.outputs("results"))
    stream.check()


@pytest.mark.parametrize("kill_at", ["admit.frozen", "commit.after", "job.started", "result.before"])
def test_a_crash_loses_neither_charge_nor_levels(stream, kill_at) -> None:
    process = stream.start(kill_at=None)
    stream.wait(lambda: stream.last_published() >= 1, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    killed = stream.start(kill_at=kill_at)
    stream.ask("a", "0.49", "personalized", target="kmeans", n_clusters=2)
    stream.wait(lambda: killed.poll() is not None)
    assert killed.returncode == -signal.SIGKILL, stream.log_text()
    stream.prefer(dict.fromkeys(range(200), "strict"))
    with stream.running() as daemon:
        (outcome,) = stream.wait_for("a", process=daemon)
        assert outcome["state"] == "done", outcome
        assert outcome["epsilon_by_level"] == amounts("0.49")
    stream.check()


def test_a_preference_never_rises(stream) -> None:
    with stream.running() as daemon:
        assert [stream.level_of(user) for user in (0, 1, 2, 250)] == [0, 1, 2, 0]
        stream.prefer({0: "open", 1: "open", 2: "strict", 250: "0.9"})
        stream.ask("a", "0.1", "personalized", target="sum")
        stream.wait_for("a", process=daemon)
        # 250 had no entry, and 5 has none any more.
        assert [stream.level_of(user) for user in (0, 1, 2, 250, 5)] == [0, 1, 0, 1, 0]
        stream.prefer({2: "0"})
        stream.ask("b", "0.1", "personalized", target="sum")
        stream.wait_for("b", process=daemon)
        assert "line 2: zero or below" in stream.log_text()
    refused = stream.start()
    assert refused.wait(PATIENCE) != 0
    assert "zero or below" in stream.log_text()
    stream.prefer(dict.fromkeys(range(300), "open"))
    with stream.running():
        assert [stream.level_of(user) for user in (0, 1, 2, 250, 5, 251)] == [0, 1, 0, 1, 0, 2]
    stream.check()


def test_the_table_may_be_a_topic(tmp_path) -> None:
    stream = PersonalStream(tmp_path, table='topic = "consents"')
    stream.feed(200)
    say = lambda *pairs: stream.append(  # noqa: E731
        [Message("consents", value, key=f"user-{user}".encode(), partition=0) for user, value in pairs]
    )
    with stream.running() as daemon:
        stream.ask("a", "0.1", "personalized", target="sum")
        stream.wait_for("a", process=daemon)
        say((1, b"open"), (2, b'"normal"'), (3, b"0.4"), (4, b"rubbish"), (5, b"open"), (5, None))
        stream.ask("b", "0.1", "personalized", target="sum", mechanism="utility", rounds=2)
        stream.wait_for("b", process=daemon)
        assert [stream.level_of(user) for user in range(6)] == [0, 2, 1, 1, 0, 0]
    say((1, b"normal"), (5, b"open"))
    with stream.running():
        assert [stream.level_of(user) for user in range(6)] == [0, 1, 1, 1, 0, 0]
    stream.check()


def test_after_the_horizon_a_lowered_preference_still_counts(tmp_path) -> None:
    stream = PersonalStream(
        tmp_path, guarantee="horizon = 5", strategy="dsft", parameters="releases = 2\nthreshold = 20"
    )
    stream.feed(200)
    with stream.running() as daemon:
        stream.wait(lambda: stream.last_published() == 5, daemon)
        stream.prefer(dict.fromkeys(range(200), "strict"))
        stream.ask("late", "0.49", "personalized", target="histogram", attributes=["ward"])
        (late,) = stream.wait_for("late", process=daemon)
        assert (late["state"], late["time_point"]) == ("done", 5)
        assert stream.level_of(2) == 0
    stream.check()


def test_the_command_submits_a_personalised_job(stream) -> None:
    with stream.running():
        ranges = '[{"age": [0, 49]}, {"ward": ["north", "south"]}]'
        words = ["personalized", "--epsilon", "0.5", "--set", "target=range_counts", "--set", f"ranges={ranges}"]
        done = stream.command("submit", *words, "--wait", "--json")
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["result"]["counts"]) == 2
    stream.check()


def test_a_stream_without_preferences_refuses_the_kind(tmp_path) -> None:
    stream = JobStream(tmp_path)
    process = stream.start()
    try:
        stream.wait(lambda: stream.last_published() >= 1, process)
        stream.ask("a", "0.1", "personalized", target="mean")
        (outcome,) = stream.wait_for("a", process=process)
        assert outcome["reason"].startswith("kind: this stream has no [privacy.preferences]")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    stream.check()
