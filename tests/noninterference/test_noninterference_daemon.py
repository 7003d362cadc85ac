"""Two real daemons on different data, one clock, the same answers: nobody outside can tell them apart.

Compared are every byte on the output topics, what mechanisms were asked, the journal's charges and states, public
metrics, health, the status page, log lines and exit codes; through restarts, a kill, missed points and jobs.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from datasets import PAIRS, Dataset
from job_harness import JobStream
from observed import get
from waiting import PATIENCE, until

from streamdp.journal import JournalReader
from streamdp.transport.base import Message

LENGTH_MS = 100
BEGIN_MS = 1_000_000
TOPICS = ("releases", "latest", "head", "results")
PAGES = {"metrics": ["/metrics", "/live", "/ready"], "page": ["/status.json", "/drawing.json?histogram=ages"]}


@dataclass
class Answered(JobStream):
    """A stream whose daemon the test drives from point to point."""

    jobs: str = 'time_limit = "60s"\nworkers = 1'
    program: ClassVar[list[str]] = [str(Path(__file__).with_name("answering_launcher.py"))]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.path.write_text(self.path.read_text() + "\n[observe]\nmetrics = 0\npage = 0\n")
        self.now = BEGIN_MS
        self.codes: list[int] = []

    @property
    def now(self) -> int:
        return int((self.directory / "clock").read_text())

    @now.setter
    def now(self, ms: int) -> None:
        fresh = self.directory / "clock.new"
        fresh.write_text(str(ms))
        fresh.replace(self.directory / "clock")

    def begin(self, kill_at: str | None = None) -> None:
        directory = self.directory
        files = {"CLOCK_FILE": str(directory / "clock"), "ASKED_FILE": str(directory / "asked")}
        starts = self.starts()
        self.process = self.start(kill_at, **files)
        self.wait(lambda: self.starts() > starts, self.process)

    def end(self, number: int | None = signal.SIGTERM) -> None:
        if number is not None:
            self.process.send_signal(number)
        self.codes.append(self.process.wait(PATIENCE))

    def pass_point(self, time_point: int, dataset: Dataset) -> None:
        """Feeds a point's messages and lets it close."""
        self.append([Message(self.topic, value, key=key, partition=0) for key, value in dataset(time_point)])
        self.now = BEGIN_MS + LENGTH_MS * time_point + LENGTH_MS // 2

    def await_point(self, time_point: int) -> None:
        goal = min(time_point, self.config.horizon or time_point)
        self.wait(lambda: self.last_published() >= goal, self.process)

    def await_job(self, job_id: str) -> None:
        """Until its result is stored, so that both daemons publish it at the same boundary."""
        self.wait(lambda: (job := self.job(job_id)) is not None and job.state in ("done", "failed"), self.process)

    # What can be seen

    def pages(self) -> dict[str, tuple[int, str]]:
        entries = [json.loads(line) for line in self.log_text().splitlines() if line.startswith("{")]
        ports = {e["listener"]: int(e["address"].rpartition(":")[2]) for e in entries if e["message"] == "listening"}
        return {path: get(ports[name], path) for name, paths in PAGES.items() for path in paths}

    def traces(self) -> dict[str, Any]:
        """Everything else that must not depend on the data."""
        with JournalReader.open(self.config.journal_path) as journal:
            charges = [
                (entry.time_point, entry.owner, entry.epsilon, entry.purpose, entry.counted)
                for entry in journal.read_ledger(whole=True).entries
            ]
            states = journal.engine_state()
            jobs = journal.jobs()
        return {
            "asked": self.asked("__main__"),
            "asked by jobs": self.asked("__mp_main__"),
            "topics": {topic: self.outputs(topic) for topic in TOPICS},
            "charges": charges,
            "states": states,
            "jobs": jobs,
            "log": self.masked_log(),
            "codes": self.codes,
        }

    def asked(self, process: str) -> list[str]:
        """What the daemon asked, or its workers; between the two there is no order."""
        return [line for line in (self.directory / "asked").read_text().splitlines() if line.startswith(process + " ")]

    def masked_log(self) -> str:
        """Ports are the system's choice, and the directory is the test's."""
        return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", self.log_text()).replace(str(self.directory), "DIRECTORY")


class Both:
    """Does the same to two streams, and compares what can be seen."""

    def __init__(self, streams: list[Answered], pair: tuple[Dataset, Dataset]) -> None:
        self.streams, self.pair = streams, pair
        self.time_point = 0

    def each(self, do: Callable[[Answered], None]) -> None:
        for stream in self.streams:
            do(stream)

    def begin(self) -> None:
        """Starts both, and waits until what passed meanwhile is published: it is logged at that moment of the clock."""
        self.each(Answered.begin)
        self.each(lambda stream: stream.await_point(self.time_point))

    def pass_points(self, count: int, watched: bool = True) -> None:
        for _ in range(count):
            self.time_point += 1
            for stream, dataset in zip(self.streams, self.pair, strict=True):
                stream.pass_point(self.time_point, dataset)
            if watched:
                self.each(lambda stream: stream.await_point(self.time_point))

    def compare_pages(self) -> None:
        """A page may be a moment behind the topics, so it gets time to settle."""
        here, there = self.streams
        try:
            until(lambda: here.pages() == there.pages())
        except AssertionError:
            assert here.pages() == there.pages()

    def compare(self) -> None:
        here, there = (stream.traces() for stream in self.streams)
        for name in here:
            assert here[name] == there[name], name


def run_both(tmp_path: Path, pair: tuple[Dataset, Dataset], **settings: str) -> None:
    streams = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        streams.append(Answered(tmp_path / name, **settings))
    both = Both(streams, pair)
    both.begin()
    both.pass_points(5)
    both.compare_pages()
    both.each(lambda stream: stream.ask("clusters", "0.05", "kmeans", n_clusters=3, attributes=["age"]))
    both.each(lambda stream: stream.ask("rows", "0.05", "copula", rows=20))
    both.each(lambda stream: stream.ask("too-dear", "0.9", "kmeans", n_clusters=3))
    both.pass_points(2)
    for job_id in ("clusters", "rows"):
        both.each(lambda stream, job_id=job_id: stream.await_job(job_id))
    both.pass_points(2)
    both.compare_pages()
    both.each(Answered.end)
    both.pass_points(3, watched=False)
    both.begin()
    both.pass_points(4)
    both.compare_pages()
    both.each(Answered.end)
    both.each(lambda stream: stream.begin(kill_at="commit.after"))
    both.pass_points(1, watched=False)
    both.each(lambda stream: stream.end(None))
    both.begin()
    both.pass_points(8)
    both.compare_pages()
    both.each(Answered.end)
    both.compare()
    assert streams[0].codes == [0, 0, -signal.SIGKILL, 0]
    assert {result["id"] for result in streams[0].results()} == {"clusters", "rows", "too-dear"}


@pytest.mark.slow
def test_a_crowd_is_as_quiet_as_nobody(tmp_path: Path) -> None:
    run_both(tmp_path, PAIRS["nobody against a crowd"], strategy="auto", parameters="", guarantee="window = 30")


@pytest.mark.slow
def test_growing_is_as_quiet_as_shrinking(tmp_path: Path) -> None:
    """The horizon ends on the way."""
    run_both(
        tmp_path,
        PAIRS["growing against shrinking"],
        strategy="dsat",
        parameters="releases = 5\nthreshold = 20",
        guarantee="horizon = 22",
    )
