"""What closes the points of a replay, and which records count in which."""

from __future__ import annotations

import json

import numpy as np
import pytest
from replay_samples import FIRST, LENGTH, close, config, line, write

from streamdp.replay import files as files_module
from streamdp.replay import reader as reader_module
from streamdp.replay.play import Player, open_trace
from streamdp.replay.timeline import MAX_POINTS_AHEAD
from streamdp.replay.trace import BrokenTrace, Header, TraceMismatch


def played(path, settings=None):
    """The counts of every point as it closed, the events, and the player."""
    settings = settings or config()
    with open_trace(path, settings) as trace:
        player = Player(settings, trace)
        events, counts = [], []
        for event, _ in player.play():
            events.append(event)
            counts.append(player.pipeline.population.counts("wards").tolist())
    return counts, events, player


def test_with_marks_points_close_at_the_marks(tmp_path):
    lines = [line("a", 5, "north"), close(1), line("b", 7, "south"), close(2), close(3), line("c", 9, "west")]
    counts, events, player = played(write(tmp_path / "t", lines))
    assert counts == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert [(e.time_point, e.opened_ts, e.closed_ts) for e in events] == [
        (i, FIRST + (i - 1) * LENGTH, FIRST + i * LENGTH) for i in (1, 2, 3)
    ]
    # What follows the last mark is in the dataset and in no closed point.
    assert player.pipeline.population.counts("wards").tolist() == [1, 1, 0, 1]


def test_a_mark_that_is_ahead_closes_the_points_between(tmp_path):
    counts, events, _ = played(write(tmp_path / "t", [line("a", 5, "north"), close(3)]))
    assert counts == [[1, 0, 0, 0]] * 3
    assert [event.time_point for event in events] == [1, 2, 3]


def test_a_mark_that_goes_back_is_broken(tmp_path):
    with pytest.raises(BrokenTrace, match="line 3: point 1 closes twice"):
        played(write(tmp_path / "t", [close(1), close(2), close(1)]))


def test_a_missed_point_asks_nothing(tmp_path):
    settings = config()
    with open_trace(write(tmp_path / "t", [line("a", 5, "north"), close(1, missed=True), close(2)]), settings) as trace:
        player = Player(settings, trace)
        reasons = [json.loads(actions[1].value)["reason"] for event, actions in player.play() if event.missed]
    assert reasons == ["missed"]


def test_a_run_of_missed_points_is_one_mark_and_one_event(tmp_path):
    month = 25_920_000
    lines = [line("a", 5, "north"), close(1), close(month, missed=True), line("b", 6, "south"), close(month + 1)]
    counts, events, player = played(write(tmp_path / "t", lines))
    assert counts == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    assert [(event.first, event.time_point) for event in events] == [(1, 1), (2, month), (month + 1, month + 1)]
    assert (events[1].opened_ts, events[1].closed_ts) == (FIRST + LENGTH, FIRST + month * LENGTH)
    assert player.pipeline.engine.last_point == month + 1


def test_a_run_of_missed_points_ends_with_the_horizon(tmp_path):
    path = write(tmp_path / "t", [line("a", 5, "north"), close(1), close(50, missed=True), close(51)])
    _, events, player = played(path, config(privacy='epsilon = "1"\nhorizon = 9'))
    assert [(event.first, event.time_point) for event in events] == [(1, 1), (2, 9)]
    assert player.pipeline.engine.ended


def test_with_marks_a_record_too_far_ahead_is_a_dead_letter_as_in_the_daemon(tmp_path):
    skew = config().time.skew_ms
    lines = [line("a", LENGTH + skew, "north"), line("b", LENGTH + skew + 1, "north"), close(1)]
    header = Header(first_open=FIRST, length=LENGTH, marks=True).to_json()
    counts, _, player = played(write(tmp_path / "t", [header, *lines]))
    assert counts == [[1, 0, 0, 0]]
    assert player.tally.by_name() == {"too_far_ahead": 1}


def test_with_marks_and_no_clock_no_timestamp_is_too_far_ahead(tmp_path):
    counts, _, _ = played(write(tmp_path / "t", [line("a", 0, "north"), line("b", 10**12, "north"), close(1)]))
    assert counts == [[2, 0, 0, 0]]


def test_what_was_waiting_when_the_stream_began_has_its_own_limit(tmp_path):
    header = Header(first_open=FIRST, length=LENGTH, backlog_latest_ts=FIRST + 5 * LENGTH, marks=True).to_json()
    early = line("a", 4 * LENGTH, "north")
    counts, _, _ = played(
        write(tmp_path / "t", [header, early, b'{"open":1}', line("b", 4 * LENGTH, "west"), close(1)])
    )
    assert counts == [[1, 0, 0, 0]]


def test_without_marks_the_records_close_points_and_gaps_close_in_order(tmp_path):
    lines = [
        line("a", 10, "north"),
        line("b", LENGTH - 1, "south"),
        line("a", LENGTH, "east"),  # the first record of point 2 closes point 1
        line("c", 10, "west"),  # late: counts in point 2
        line("a", 5, "north"),  # late and older than what a holds: changes nothing
        line("d", 4 * LENGTH + 3, "west"),  # closes 2, and the empty 3 and 4
    ]
    counts, events, _ = played(write(tmp_path / "t", lines), config(clock="event"))
    assert counts == [[1, 1, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 2]]
    assert [event.time_point for event in events] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("block", [1, 150, 1 << 20])
def test_without_marks_blocks_and_partitions_change_nothing(tmp_path, monkeypatch, block):
    """The same as one record at a time, whatever the blocks and however partitions interleave."""
    monkeypatch.setattr(reader_module, "_BLOCK_BYTES", block)
    monkeypatch.setattr(files_module, "_READ_BYTES", block)
    rng = np.random.default_rng(3)
    lines, held, expected, open_point, offsets = [], {}, [], 1, [0, 0]
    ts = 0
    wards = ["north", "south", "east", "west"]
    for number in range(400):
        ts = max(0, ts + int(rng.integers(-LENGTH // 2, LENGTH)))
        if number == 200:
            lines.append(line("wild", (MAX_POINTS_AHEAD + 5_000) * LENGTH, "north"))
        key, ward, partition = f"u{rng.integers(20)}", int(rng.integers(4)), int(rng.integers(2))
        offsets[partition] += 1
        value = json.dumps({"ts": FIRST + ts, "op": "upsert", "record": {"ward": wards[ward]}})
        fields = {"topic": "visits", "partition": partition, "offset": offsets[partition], "timestamp": 0}
        lines.append(json.dumps({**fields, "key": key, "value": value}).encode())
        while open_point < 1 + ts // LENGTH:
            expected.append(np.bincount([w for *_, w in held.values()], minlength=4).tolist())
            open_point += 1
        held[key] = max(held.get(key, (-1, 0, 0, 0)), (ts, partition, offsets[partition], ward))
    expected.append(np.bincount([w for *_, w in held.values()], minlength=4).tolist())
    # Point 1 is the interval that holds the first record, wherever that lies.
    shift = (json.loads(json.loads(lines[0])["value"])["ts"] - FIRST) // LENGTH
    counts, _, player = played(write(tmp_path / "t", lines), config(clock="event"))
    assert counts == expected[shift:]
    assert player.tally.by_name() == {"too_far_ahead": 1}


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_without_marks_bad_records_close_nothing(tmp_path, monkeypatch, block):
    monkeypatch.setattr(reader_module, "_BLOCK_BYTES", block)
    monkeypatch.setattr(files_module, "_READ_BYTES", block)
    bad = line("x", 90 * LENGTH, "nowhere")
    counts, _, player = played(write(tmp_path / "t", [bad, line("a", 5, "north"), bad, bad]), config(clock="event"))
    assert counts == [[1, 0, 0, 0]]
    assert player.tally.by_name() == {"outside_domain": 3}


def test_a_finite_horizon_ends_the_replay(tmp_path):
    lines = [line("a", 10, "north"), *(close(point) for point in range(1, 9))]
    counts, _, _ = played(write(tmp_path / "t", lines), config(privacy='epsilon = "1.0"\nhorizon = 3'))
    assert len(counts) == 3


def test_a_trace_made_for_another_domain_is_refused_at_its_header(tmp_path):
    path = write(tmp_path / "t", [Header(domain="0" * 64).to_json(), line("a", 1, "north")])
    with pytest.raises(TraceMismatch, match="line 1: the trace was made for another domain") as caught:
        played(path)
    assert caught.value.exit_code == 2


def test_a_trace_with_other_points_is_refused_at_its_header(tmp_path):
    path = write(tmp_path / "t", [Header(length=3_600_000, marks=True).to_json(), close(1)])
    with pytest.raises(TraceMismatch, match=r"line 1: .*3600 seconds"):
        played(path)


@pytest.mark.parametrize("count", [3, 5_000])
def test_a_trace_without_a_header_whose_records_never_fit_is_refused(tmp_path, count):
    wrong = [b'{"key":"u%d","ts":%d,"op":"upsert","record":{"speed":3}}' % (i, FIRST + i) for i in range(count)]
    with pytest.raises(TraceMismatch, match="line 2: no message so far fits"):
        played(write(tmp_path / "t", [b'{"key":"u","ts":1,"op":"merge"}', *wrong, close(1)]))


def test_records_that_seldom_fit_are_data(tmp_path):
    wrong = [b'{"key":"u%d","ts":%d,"op":"upsert","record":{"speed":3}}' % (i, FIRST + i) for i in range(900)]
    counts, _, player = played(write(tmp_path / "t", [*wrong, line("a", 1, "north"), close(1)]))
    assert counts == [[1, 0, 0, 0]]
    assert player.tally.by_name() == {"unknown_attribute": 900}
