"""What a subscriber gets: from the engine's own messages on a real log, and from a daemon in its own process."""

from __future__ import annotations

import doctest
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

from streamdp.client import Release, latest, subscribe
from streamdp.daemon.outputs import output_topics
from streamdp.domain import Attribute, Axis, Domain, View
from streamdp.engine import CountsLoaded, Engine, Plan, PointClosed, Publish, Topics
from streamdp.privacy import InsecureSeededSource, Ledger
from streamdp.strategies import make_strategy
from streamdp.transport.base import Message, TopicPartition, UnknownTopic
from streamdp.transport.filelog import FileLog

DOMAIN = Domain([Attribute.integer("age", 0, 99), Attribute.categorical("sex", ["f", "m"])])
AGE_BY_SEX = View("age_by_sex", DOMAIN, [Axis("age", bins=10), "sex"])
SEX = View("sex", DOMAIN, ["sex"])
TOPICS = Topics.of("clinic")


class Publisher:
    """The daemon's output without its input: an engine whose messages go to the log, one transaction a point."""

    def __init__(
        self, path, views=(AGE_BY_SEX, SEX), horizon=6, interval=3, encoding="auto", segment_bytes=1 << 26, kind="fixed"
    ):
        self.log = FileLog(path, durable=False, segment_bytes=segment_bytes)
        self.log.ensure_topics(output_topics(TOPICS))
        self._writer = self.log.writer("engine")
        ledger = Ledger.finite_horizon(1, horizon)
        share = Fraction(1, len(views))
        plans = []
        for place, view in enumerate(views):
            ledger.reserve(view.name, share, kind)
            strategy = make_strategy(
                kind,
                epsilon=share,
                cells=view.cells,
                shape=view.shape,
                horizon=horizon,
                parameters={"interval": interval} if kind == "fixed" else {},
                source=InsecureSeededSource(place),
            )
            plans.append(Plan(view, kind, strategy, "laplace", encoding))
        self.engine = Engine(
            stream="clinic", journal_id="0123456789abcdef", plans=plans, budget=ledger, topics=TOPICS, horizon=horizon
        )
        for view in views:
            self.engine.handle(CountsLoaded(view.name, np.arange(view.cells) * 1_000))

    def points(self, count=1, missed=False):
        """Some points; those that were missed are one run."""
        for _ in range(1 if missed else count):
            first, point = self.engine.last_point + 1, self.engine.last_point + (count if missed else 1)
            event = PointClosed(point, 1_000 * (first - 1), 1_000 * point, count if missed else 0)
            published = [action for action in self.engine.handle(event) if isinstance(action, Publish)]
            self._writer.append([Message(one.topic, one.value, key=one.key, partition=0) for one in published])

    def close(self):
        self._writer.close()
        self.log.close()


@pytest.fixture
def publisher(tmp_path):
    with closing(Publisher(tmp_path / "log")) as publisher:
        yield publisher


def told(updates):
    return [(update.histogram, update.time_point, update.kind) for update in updates]


def test_a_release_answers_range_counts_in_every_form(publisher):
    publisher.points()
    release = latest(publisher.log, "clinic")["age_by_sex"]
    counts = release.counts
    assert counts.dtype == np.int64
    assert np.abs(counts - np.arange(20) * 1_000).max() < 500
    assert release.to_numpy().shape == (10, 2)
    assert release.range_count() == counts.sum()
    assert release.range_count(age=(20, 29), sex="f") == counts[4]
    assert release.range_count(age=(20, None)) == counts[4:].sum()
    assert release.range_count(sex=["m"]) == counts[1::2].sum()
    series = release.to_pandas()
    assert series["20-29", "f"] == counts[4]
    assert series.index.names == ["age", "sex"]
    assert series.groupby("sex").sum()["m"] == counts[1::2].sum()


def test_a_range_count_knows_its_error(publisher):
    publisher.points()
    release = latest(publisher.log, "clinic")["age_by_sex"]
    count = release.range_count(age=(20, 49))
    assert count == count.value == release.counts[4:10].sum()
    assert isinstance(count, int) and str(count) == str(count.value)
    ratio = np.exp(-1 / float(release.noise_scale))
    assert count.standard_error == pytest.approx((6 * 2 * ratio / (1 - ratio) ** 2) ** 0.5, rel=1e-3)
    low, high = count.interval
    assert high - count == count - low == pytest.approx(1.96 * count.standard_error, rel=1e-3)
    assert not count.drift_included


def test_the_error_of_auto_grows_with_every_repeat(tmp_path):
    with closing(Publisher(tmp_path / "log", views=[AGE_BY_SEX], horizon=60, kind="auto")) as publisher:
        publisher.points(60)
        updates = list(subscribe(publisher.log, "clinic", from_beginning=True, follow=False))
    repeated = 0
    for before, update in pairwise(updates):
        count = update.release.range_count(sex="f")
        assert count.drift_included and update.release.noise_scale is None
        assert update.release.age == update.time_point - update.release.time_point
        if update.kind == "repeat":
            repeated += 1
            assert count == before.release.range_count(sex="f")
            assert count.standard_error > before.release.range_count(sex="f").standard_error
    assert repeated > 10


def test_messages_of_older_versions_say_nothing_of_their_error(publisher):
    publisher.points()
    release = latest(publisher.log, "clinic")["sex"]
    header = {name: value for name, value in release.header.items() if name != "variance"}
    count = Release(header, release.counts).range_count(sex="f")
    assert (count, count.standard_error, count.interval) == (release.counts[0], None, None)


def test_a_histogram_of_one_attribute_has_a_plain_index(publisher):
    publisher.points()
    series = latest(publisher.log, "clinic")["sex"].to_pandas()
    assert series.index.tolist() == ["f", "m"]
    assert series.index.name == series.index.names[0] == "sex"
    assert series.name == "sex"


def test_a_range_that_is_not_made_of_cells_is_refused_with_the_nearest(publisher):
    publisher.points()
    release = latest(publisher.log, "clinic")["age_by_sex"]
    with pytest.raises(ValueError, match=r"nearest that does is \(20, 29\)"):
        release.range_count(age=(21, 29))
    with pytest.raises(ValueError, match="no attribute 'income'"):
        release.range_count(income=(0, 1))


def test_what_is_public_about_a_release(publisher):
    publisher.points(5)
    release = latest(publisher.log, "clinic")["sex"]
    assert (release.time_point, release.closed) == (4, 4_000)
    assert release.epsilon == Fraction(1, 4)
    assert release.noise_scale == 4
    assert release.release_id == "0123456789ab.sex.4"
    assert release.view == View("sex", Domain([DOMAIN["sex"]]), ["sex"])


def test_from_the_beginning_every_point_comes_once_in_order_and_repeats_point_at_what_stands(publisher):
    publisher.points(5)
    updates = list(subscribe(publisher.log, "clinic", from_beginning=True, follow=False))
    kinds = ["release", "repeat", "repeat", "release", "repeat"]
    assert told(updates) == [
        (name, point, kind) for point, kind in enumerate(kinds, start=1) for name in ("age_by_sex", "sex")
    ]
    for update in updates:
        assert update.is_new == (update.time_point in (1, 4))
        assert update.release.time_point == (1 if update.time_point < 4 else 4)
        assert update.release.histogram == update.histogram
        assert update.header["release_id"] == update.release.release_id


def test_a_missed_point_is_a_repeat_that_says_so(publisher):
    publisher.points(2)
    publisher.points(1, missed=True)
    *_, last = subscribe(publisher.log, "clinic", from_beginning=True, follow=False)
    assert (last.kind, last.header["reason"], last.release.time_point) == ("repeat", "missed", 1)
    assert (last.first_time_point, last.time_point) == (3, 3)


def test_points_that_were_missed_in_a_row_are_one_repeat_that_says_from_where_to_where(publisher):
    publisher.points(2)
    publisher.points(3, missed=True)
    publisher.points(1)
    updates = list(subscribe(publisher.log, "clinic", histograms=["sex"], from_beginning=True, follow=False))
    runs = [(update.first_time_point, update.time_point, update.kind) for update in updates]
    assert runs == [(1, 1, "release"), (2, 2, "repeat"), (3, 5, "repeat"), (6, 6, "release"), (6, 6, "ended")]
    assert (updates[2].header["opened"], updates[2].header["closed"], updates[2].release.age) == (2_000, 5_000, 4)


def test_nothing_released_yet(publisher):
    assert latest(publisher.log, "clinic") == {}
    assert list(subscribe(publisher.log, "clinic", follow=False)) == []
    publisher.points(1, missed=True)
    updates = list(subscribe(publisher.log, "clinic", from_beginning=True, follow=False))
    assert [(update.kind, update.release) for update in updates] == [("repeat", None)] * 2


def test_a_late_subscriber_begins_with_what_stands(publisher):
    publisher.points(5)
    updates = list(subscribe(publisher.log, "clinic", follow=False))
    assert told(updates) == [("age_by_sex", 4, "release"), ("sex", 4, "release")]


def test_only_the_histograms_asked_for(publisher):
    publisher.points(6)
    updates = list(subscribe(publisher.log, "clinic", histograms=["sex"], from_beginning=True))
    assert {update.histogram for update in updates} == {"sex"}
    assert [update.kind for update in updates].count("ended") == 1
    assert list(subscribe(publisher.log, "clinic", histograms=["other"], from_beginning=True)) == []


def test_points_that_close_while_a_subscriber_begins_come_neither_twice_nor_out_of_order(publisher):
    publisher.points(2)
    updates = subscribe(publisher.log, "clinic")
    first = next(updates)  # the start is fixed, and the latest releases are read
    publisher.points(4)
    assert told([first, *updates]) == [
        ("age_by_sex", 1, "release"),
        ("sex", 1, "release"),
        *[
            (name, point, "release" if point == 4 else "repeat")
            for point in (3, 4, 5, 6)
            for name in ("age_by_sex", "sex")
        ],
        ("age_by_sex", 6, "ended"),
        ("sex", 6, "ended"),
    ]


class _SlowStart:
    """A transport on which points close between a subscriber's first two reads."""

    def __init__(self, publisher, points):
        self._publisher, self._points = publisher, points

    def __getattr__(self, name):
        return getattr(self._publisher.log, name)

    def end_offsets(self, topics):
        ends = self._publisher.log.end_offsets(topics)
        if self._points:
            self._publisher.points(self._points)
            self._points = 0
        return ends


def test_a_release_between_the_two_first_reads_hides_the_repeats_before_it(publisher):
    publisher.points(2)
    updates = list(subscribe(_SlowStart(publisher, 3), "clinic", histograms=["sex"], follow=False))
    assert told(updates) == [("sex", 4, "release"), ("sex", 5, "repeat")]
    assert updates[1].release.time_point == 4


def test_following_ends_when_every_histogram_has_ended(publisher):
    publisher.points(4)
    received = []
    follower = threading.Thread(target=lambda: received.extend(subscribe(publisher.log, "clinic")), daemon=True)
    follower.start()
    time.sleep(0.2)
    publisher.points(2)
    follower.join(PATIENCE)
    assert not follower.is_alive()
    assert told(received)[-2:] == [("age_by_sex", 6, "ended"), ("sex", 6, "ended")]
    assert received[-1].release.time_point == 4
    assert not received[-1].is_new


@pytest.mark.parametrize("from_beginning", [True, False])
def test_a_subscriber_after_the_end_does_not_wait_for_ever(publisher, from_beginning):
    publisher.points(6)
    kinds = [update.kind for update in subscribe(publisher.log, "clinic", from_beginning=from_beginning)]
    assert kinds.count("ended") == (2 if from_beginning else 0)
    assert kinds.count("release") == (4 if from_beginning else 2)


@pytest.mark.parametrize(("encoding", "cells"), [("json", 100_000), ("arrow", 250_000), ("auto", 250_000)])
def test_a_wide_histogram_comes_in_parts_and_arrives_whole(tmp_path, encoding, cells):
    domain = Domain([Attribute.integer("x", 0, cells - 1), Attribute.categorical("sex", ["f", "m"])])
    wide, sex = View("wide", domain, ["x"]), View("sex", domain, ["sex"])
    with closing(Publisher(tmp_path / "log", (wide, sex), horizon=2, interval=1, encoding=encoding)) as publisher:
        publisher.points(2)
        updates = list(subscribe(publisher.log, "clinic", from_beginning=True))
        newest = latest(publisher.log, "clinic")["wide"]
        end = publisher.log.end_offsets([TOPICS.releases])[TopicPartition(TOPICS.releases, 0)]
    assert end >= 2 * 3 + 4  # several messages for each release of the wide one
    assert told(updates) == [
        ("wide", 1, "release"),
        ("sex", 1, "release"),
        ("wide", 2, "release"),
        ("sex", 2, "release"),
        ("wide", 2, "ended"),
        ("sex", 2, "ended"),
    ]
    assert updates[2].release.counts.size == cells
    np.testing.assert_array_equal(updates[2].release.counts, newest.counts)
    assert np.abs(newest.counts - np.arange(cells) * 1_000).max() < 200
    assert newest.range_count(x=(5, 5)) == newest.counts[5]
    assert "part" not in newest.header


def test_compaction_and_retention_leave_a_late_subscriber_whole_releases(tmp_path):
    with closing(Publisher(tmp_path / "log", horizon=300, segment_bytes=4_096)) as publisher:
        publisher.points(250)
        publisher.log.compact(TOPICS.latest)
        partition = TopicPartition(TOPICS.releases, 0)
        publisher.log.delete_before(partition, publisher.log.end_offsets([TOPICS.releases])[partition] - 3)
        assert publisher.log.begin_offsets([TOPICS.releases])[partition] > 0
        assert {name: release.time_point for name, release in latest(publisher.log, "clinic").items()} == {
            "age_by_sex": 250,
            "sex": 250,
        }
        updates = list(subscribe(publisher.log, "clinic", from_beginning=True, follow=False))
    assert updates[-1].time_point == 250
    # A repeat whose release is no longer there stands for nothing that this subscriber holds.
    before = [update.release for update in updates[: [update.kind for update in updates].index("release")]]
    assert before == [None] * len(before)


def test_a_stream_that_is_not_there(tmp_path):
    with closing(FileLog(tmp_path / "log")) as log, pytest.raises(UnknownTopic):
        next(subscribe(log, "clinic"))


CONFIG = """\
[stream]
name = "clinic"
[domain.age]
type = "integer"
low = 0
high = 99
[domain.sex]
type = "categorical"
values = ["f", "m"]
[time]
length = "200ms"
[privacy]
epsilon = "1"
horizon = 8
[[histogram]]
name = "age_by_sex"
attributes = [{ name = "age", bins = 10 }, "sex"]
strategy = "fixed"
[histogram.parameters]
interval = 3
[[histogram]]
name = "sex"
attributes = ["sex"]
strategy = "baseline"
[input]
topics = ["visits"]
[input.log]
path = "log"
"""


@pytest.mark.slow
def test_a_subscriber_of_a_running_daemon_follows_it_to_its_end(tmp_path):
    path = tmp_path / "clinic.toml"
    path.write_text(CONFIG)
    with (tmp_path / "daemon.log").open("wb") as errors:
        daemon = subprocess.Popen([sys.executable, "-m", "streamdp", "run", str(path)], stderr=errors)
    try:
        log = _when_there(tmp_path / "log", daemon)
        with closing(log):
            received = list(subscribe(log, "clinic", from_beginning=True))
    finally:
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(PATIENCE)
    assert code == 0, (tmp_path / "daemon.log").read_text()
    points = [update.time_point for update in received if update.histogram == "sex" and update.kind != "ended"]
    assert points == list(range(1, 9))
    assert told(received)[-2:] == [("age_by_sex", 8, "ended"), ("sex", 8, "ended")]
    fresh = [update for update in received if update.is_new]
    assert all(isinstance(update.release, Release) for update in fresh)
    assert any(not update.is_new for update in received if update.histogram == "age_by_sex")


def _when_there(path: Path, daemon: subprocess.Popen) -> FileLog:
    deadline = time.monotonic() + PATIENCE
    while not all((path / topic).exists() for topic in (TOPICS.releases, TOPICS.latest, TOPICS.head)):
        assert daemon.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return FileLog(path)


def test_the_examples_in_the_documentation_run(tmp_path, monkeypatch):
    with closing(Publisher(tmp_path / "data" / "log")) as publisher:
        publisher.points(6)
    monkeypatch.chdir(tmp_path)
    path = Path(__file__).parents[1] / "docs" / "client.md"
    results = doctest.testfile(str(path), module_relative=False)
    assert results.attempted > 10
    assert results.failed == 0
