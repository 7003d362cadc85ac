"""The thread that takes the cuts, with a clock of its own."""

from __future__ import annotations

import threading
import time

import pytest
from waiting import PATIENCE

from streamdp.daemon.schedule import Closed, Metronome, Missed, Schedule
from streamdp.transport.base import TopicPartition, Unreachable


def test_all_missed_points_are_told_at_once():
    """A few of them would leave the next missed point as the open one, and today's records too far ahead of it."""

    def slow_now() -> int:
        time.sleep(0.001)  # outside the lock: whoever asks meanwhile finds the thread between two points
        return 10_050

    metronome = Metronome(Schedule(length=100, first_open=0), 1, dict, now=slow_now)
    metronome.start()
    try:
        assert metronome.closed(PATIENCE) == [Missed(1, 100)]
    finally:
        metronome.stop()


def test_thirty_days_of_missed_points_are_one_entry():
    """26 million points of 100 ms: told in no time, and no bigger than one."""
    month = 30 * 86_400_000
    metronome = Metronome(Schedule(length=100, first_open=0), 1, dict, now=lambda: month + 50)
    metronome.start()
    try:
        assert metronome.closed(PATIENCE) == [Missed(1, month // 100)]
    finally:
        metronome.stop()


def test_a_stopped_thread_is_not_waited_for():
    now = [150]
    metronome = Metronome(Schedule(length=100, first_open=100), 1, dict, now=lambda: now[0])
    metronome.start()
    metronome.stop()
    now[0] = 10_000
    assert metronome.closed() == []


def test_the_last_point_of_a_horizon_is_not_waited_beyond():
    now = [0]
    metronome = Metronome(Schedule(length=100, first_open=0), 1, dict, last=2, now=lambda: now[0])
    metronome.start()
    now[0] = 1_000
    found: list[Closed | Missed] = []
    while not found:
        found += metronome.closed(5) or []
    assert found == [Missed(1, 2)]
    assert metronome.closed() == []


def test_a_cut_is_asked_for_again_while_the_input_does_not_answer():
    answers = [Unreachable("gone"), Unreachable("gone"), {TopicPartition("t", 0): 7}]
    now = [0]

    def take_cut() -> dict[TopicPartition, int]:
        answer = answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    metronome = Metronome(Schedule(length=100, first_open=0), 1, take_cut, last=1, now=lambda: now[0])
    metronome.start()
    now[0] = 120
    found: list[Closed | Missed] = []
    while not found:
        found += metronome.closed(5) or []
    assert found == [Closed(1, {TopicPartition("t", 0): 7})]


def test_a_point_whose_cut_came_too_late_is_missed():
    now = [0]

    def take_cut() -> dict[TopicPartition, int]:
        now[0] = 230
        return {TopicPartition("t", 0): 7}

    metronome = Metronome(Schedule(length=100, first_open=0), 1, take_cut, last=1, now=lambda: now[0])
    metronome.start()
    now[0] = 120
    found: list[Closed | Missed] = []
    while not found:
        found += metronome.closed(5) or []
    assert found == [Missed(1, 1)]


def test_nobody_waits_long_for_a_cut_that_is_being_taken():
    now, answered = [0], threading.Event()

    def take_cut() -> dict[TopicPartition, int]:
        answered.wait(PATIENCE)
        return {}

    metronome = Metronome(Schedule(length=100, first_open=0), 1, take_cut, last=1, now=lambda: now[0])
    metronome.start()
    now[0] = 120
    while metronome.closed(0.05) is not None:
        time.sleep(0.01)
    answered.set()
    assert metronome.closed(PATIENCE) == [Closed(1, {})]


@pytest.mark.parametrize(("now", "length", "first_open"), [(1_000, 400, 800), (1_001, 400, 1_200), (1_200, 400, 1_200)])
def test_a_stream_begins_in_an_interval_it_can_watch_to_its_end(now, length, first_open):
    """A point that is nearly over when the daemon opens would be over before its cut can be taken."""
    schedule = Schedule.beginning(now, length, 0)
    assert schedule == Schedule(length, first_open)
    assert schedule.closes(1) - now >= length // 2


def test_a_long_point_needs_two_seconds_of_it_to_begin_in():
    hour = 3_600_000
    assert Schedule.beginning(hour - 2_000, hour, 0).first_open == 0
    assert Schedule.beginning(hour - 1_999, hour, 0).first_open == hour


def test_a_point_that_closes_between_recovery_and_the_first_look_is_not_missed():
    metronome = Metronome(
        Schedule(length=100, first_open=0), 1, lambda: {TopicPartition("in", 0): 7}, last=2, now=lambda: 150, since=90
    )
    metronome.start()
    try:
        assert metronome.closed(PATIENCE) == [Closed(1, {TopicPartition("in", 0): 7})]
    finally:
        metronome.stop()
