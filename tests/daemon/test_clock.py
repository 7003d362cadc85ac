"""A wrong clock holds the stream and ends nothing, in a running daemon and at a start."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from harness import Stream
from waiting import PATIENCE

from streamdp import messages
from streamdp.daemon.clock import LONGEST_DOWNTIME_MS, Clock
from streamdp.daemon.schedule import Closed, Metronome, Missed, Schedule, now_ms
from streamdp.journal import JournalReader, verify
from streamdp.transport.base import TopicPartition

HOUR = 3_600_000


class Hands:
    """A wall clock and a steady one, moved by hand."""

    def __init__(self, wall: int = 1_000_000, steady: int = 5) -> None:
        self.wall, self.steady = wall, steady
        self.told: list[bool] = []
        self.clock = Clock(30_000, wall=lambda: self.wall, steady=lambda: self.steady, changed=self.told.append)

    def pass_time(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.steady += milliseconds


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 30_001, -30_001])
def test_after_a_jump_the_clock_stands_still_until_it_is_right_again(jump):
    hands = Hands()
    hands.pass_time(500)
    before = hands.clock.now()
    hands.wall += jump
    for _ in range(3):
        hands.pass_time(1_000)
        assert hands.clock.now() == before
    assert hands.told == [True]
    hands.wall -= jump
    assert hands.clock.now() == hands.wall == before + 3_000
    assert hands.told == [True, False]


def test_slow_corrections_and_small_steps_are_no_jump_and_sleep_is_none():
    hands = Hands()
    for _ in range(10_000):
        hands.pass_time(1_000)
        hands.wall += 5
        assert hands.clock.now() == hands.wall
    for step in (30_000, -30_000, 1_000):
        hands.wall += step
        assert hands.clock.now() == hands.wall
    hands.pass_time(10 * HOUR)
    assert hands.clock.now() == hands.wall
    assert hands.told == []


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_no_point_closes_under_a_wrong_clock_and_a_horizon_goes_on(jump):
    hands, cut = Hands(wall=1_000_000), {TopicPartition("in", 0): 7}
    schedule = Schedule(length=60_000, first_open=990_000)
    metronome = Metronome(schedule, 1, lambda: cut, last=20, now=hands.clock.now)
    metronome.start()
    try:
        hands.wall += jump
        assert metronome.closed(5) == []
        hands.pass_time(3 * 60_000)
        assert metronome.closed(5) == []
        hands.wall -= jump
        found: list[Closed | Missed] = []
        while not found or isinstance(found[-1], Missed):
            found += metronome.closed(5) or []
        assert found == [Missed(1, 2), Closed(3, cut)]
    finally:
        metronome.stop()


@dataclass
class ClockStream(Stream):
    length: str = "200ms"
    program: ClassVar[list[str]] = [str(Path(__file__).with_name("clock_launcher.py"))]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.path.write_text(self.path.read_text() + "\n[observe]\nmetrics = 0\n")
        self.set_clock(0)

    def set_clock(self, milliseconds: int) -> None:
        fresh = self.directory / "clock.new"
        fresh.write_text(str(milliseconds))
        fresh.replace(self.directory / "clock")

    def run_daemon(self, *options: str):
        return self.start(options=options, CLOCK_FILE=str(self.directory / "clock"))

    def ready(self) -> tuple[int, str]:
        lines = [json.loads(line) for line in self.log_text().splitlines() if line.startswith("{")]
        where = [line["address"] for line in lines if line["message"] == "listening"][-1]
        try:
            with urllib.request.urlopen(f"http://{where}/ready", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def refusal(self, *options: str) -> str:
        """What a start that fails says last."""
        daemon = self.run_daemon(*options)
        assert daemon.wait(PATIENCE) == 1
        return self.log_text().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("jump", "guarantee"), [(HOUR, "horizon = 300"), (-HOUR, "window = 20")])
def test_a_running_daemon_is_held_and_goes_on(tmp_path, jump, guarantee):
    strategy = {} if "window" in guarantee else {"strategy": "dsft", "parameters": "releases = 5\nthreshold = 20"}
    stream = ClockStream(tmp_path, guarantee=guarantee, **strategy)
    stream.feed(100)
    daemon = stream.run_daemon()
    stream.wait(lambda: stream.last_published() >= 3, daemon)
    assert stream.ready()[0] == 200
    stream.set_clock(jump)
    # Set back, it is behind at once, and found to have jumped a moment later.
    stream.wait(lambda: stream.ready()[1].startswith("the clock jumped"), daemon)
    assert stream.ready()[0] == 503
    held = stream.last_published()
    with JournalReader.open(stream.config.journal_path) as journal:
        assert journal.last_time_point <= held + 1
    stream.set_clock(0)
    stream.wait(lambda: stream.last_published() >= held + 5, daemon)
    assert stream.ready()[0] == 200
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0
    assert stream.log_text().count("the clock jumped") == stream.log_text().count("the clock is right again") == 1
    assert "the horizon has ended" not in stream.log_text()
    stream.check()


@pytest.mark.slow
def test_a_start_compares_the_clock_with_the_last_close(tmp_path, monkeypatch):
    parameters = "releases = 2\nthreshold = 20"
    stream = ClockStream(tmp_path, guarantee="horizon = 5000", strategy="dsft", parameters=parameters)
    stream.feed(100)
    monkeypatch.setenv("CLOCK_FILE", str(stream.directory / "clock"))
    stream.run_until(2)
    last = stream.last_published()
    stream.set_clock(-HOUR)
    assert "before the close of time point" in stream.refusal()
    stream.set_clock(HOUR)
    assert "would end it for good" in stream.refusal()
    stream.set_clock(LONGEST_DOWNTIME_MS + HOUR)
    assert "more than a month after" in (refused := stream.refusal())
    assert "--accept-clock" in refused
    assert stream.last_published() <= last + 1
    daemon = stream.run_daemon("--accept-clock")
    stream.wait(lambda: stream.last_published() == 5_000, daemon)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0
    stream.check()


@pytest.mark.slow
def test_a_daemon_whose_clock_is_behind_is_not_ready_until_the_next_point_opens(tmp_path, monkeypatch):
    stream = ClockStream(tmp_path)
    stream.feed(100)
    monkeypatch.setenv("CLOCK_FILE", str(stream.directory / "clock"))
    stream.run_until(2)
    with JournalReader.open(stream.config.journal_path) as journal:
        last = journal.last_time_point
        next_opens = journal.opening().first_open + last * journal.opening().length
    for behind, options in ((HOUR, ["--accept-clock"]), (10_000, [])):
        stream.set_clock(next_opens - behind - now_ms())
        starts = stream.log_text().count('"running"')
        daemon = stream.run_daemon(*options)
        stream.wait(lambda starts=starts: stream.log_text().count('"running"') > starts, daemon)
        stream.wait(lambda: stream.ready() != (503, "not running"), daemon)
        status, why = stream.ready()
        assert status == 503
        assert why.startswith("the clock is behind: the next time point opens at ")
        if options:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(PATIENCE) == 0
    stream.wait(lambda: stream.ready()[0] == 200, daemon)
    stream.wait(lambda: stream.last_published() > last, daemon)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0
    stream.check()


@pytest.mark.slow
def test_thirty_days_of_missed_points_are_a_few_rows_and_messages(tmp_path, monkeypatch):
    """26 million points of 100 ms: what they leave, and the memory they take, does not grow with their number."""
    days = 30 * 24 * HOUR
    stream = ClockStream(tmp_path, length="100ms")
    # Of messages older than that only digests are kept, and `check` compares all bytes.
    stream.path.write_text(stream.path.read_text().replace("keep_points = 100000", "keep_points = 100000000"))
    stream.feed(100)
    monkeypatch.setenv("CLOCK_FILE", str(stream.directory / "clock"))
    stream.run_until(3)
    stream.set_clock(days)
    daemon = stream.run_daemon()
    stream.wait(lambda: stream.last_published() > days // 100, daemon)
    memory = peak_megabytes(daemon.pid)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(30) == 0
    with JournalReader.open(stream.config.journal_path) as journal:
        points = journal.points()
    runs = [(point.first, point.time_point) for point in points if point.status == "missed"]
    assert max(last - first for first, last in runs) > days // 100 - 1_000
    # Besides the run there are the points that were watched, and those that a slow machine missed.
    assert len(points) < 300
    headers = [messages.decode(value).header for value in stream.outputs()]
    assert len(headers) == 2 * len(points)
    assert sorted({(each["first_missed"], each["time_point"]) for each in headers if "first_missed" in each}) == runs
    assert memory < 500
    assert verify(stream.config.journal_path) == []
    stream.check()


def peak_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1_000
