"""The parts behind the listeners, without a daemon: addresses, health, the board, the ledger's returns."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from pydantic import ValidationError
from waiting import until

from streamdp import messages
from streamdp.config import parse
from streamdp.config.observe import Address, Observe
from streamdp.daemon.publisher import Publisher
from streamdp.domain import Attribute, Domain, View
from streamdp.engine import Topics
from streamdp.errors import StreamdpError
from streamdp.histograms.bands import bands_of
from streamdp.histograms.variance import Variance
from streamdp.journal import StoredMessage
from streamdp.observe.board import MAX_ALONG, MAX_JOBS, MAX_POINTS, Board, summary
from streamdp.observe.health import FRESH_SECONDS, Health
from streamdp.observe.observer import Observer
from streamdp.observe.standing import returns_in
from streamdp.observe.watch import Watch
from streamdp.privacy import Ledger
from streamdp.transport.base import Message, TopicSpec, Unreachable
from streamdp.transport.filelog import FileLog


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (9464, Address("127.0.0.1", 9464)),
        ("9464", Address("127.0.0.1", 9464)),
        ("0.0.0.0:1", Address("0.0.0.0", 1)),
        ("[::1]:9464", Address("::1", 9464)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_an_address_is_read_as_meant(written, meant):
    assert Observe(metrics=written).metrics == meant
    assert Observe(metrics=str(meant)).metrics == meant


@pytest.mark.parametrize("written", ["here", "host:", "host:70000", "::1:9464", True, 1.5, -1, "host:٣"])
def test_what_is_no_address_is_refused(written):
    with pytest.raises(ValidationError):
        Observe(metrics=written)


def test_listeners_do_not_share_an_address_and_nothing_listens_by_default():
    with pytest.raises(ValidationError, match="address of their own"):
        Observe(metrics=9464, page="127.0.0.1:9464")
    assert Observe(metrics=0, page=0).page == Address("127.0.0.1", 0)
    assert Observe() == Observe(metrics=None, operator_metrics=None, page=None)


class TestHealth:
    def test_a_clock_that_is_behind_is_not_ready_until_the_next_point_opens(self):
        wall = [1_000.0]
        health = Health(wall=lambda: wall[0])
        health.set_running(True)
        assert health.ready
        health.set_next_opens(1_060_000)
        assert health.reason == "the clock is behind: the next time point opens at 1970-01-01T00:17:40+00:00"
        wall[0] = 1_060.0
        assert health.ready

    def test_ready_only_while_running_and_everything_answers(self):
        clock = [100.0]
        health = Health(now=lambda: clock[0])
        answers = {"input": True}

        def check():
            if not answers["input"]:
                raise StreamdpError("gone")

        health.watch("input", check, every=0.01)
        try:
            assert health.reason == "not running"
            health.set_running(True)
            assert health.ready
            answers["input"] = False
            time.sleep(0.05)
            clock[0] += FRESH_SECONDS + 1
            assert health.reason == "input not connected"
            answers["input"] = True
            until(lambda: health.ready)
            health.set_running(False)
            assert not health.ready
        finally:
            health.close()


def release(view: View, counts: np.ndarray, time_point: int = 1, encoding="auto", **more) -> list[messages.Decoded]:
    header = {
        "kind": "release",
        "histogram": view.name,
        "time_point": time_point,
        "closed": 1_000 * time_point,
        "reason": "first",
        "threshold": None,
        "epsilon_left": "1/2",
        "release_id": f"x.{view.name}.{time_point}",
        "epsilon": "1/10",
        "noise_scale": "10/1",
        "method": "laplace",
        "view": view.describe(),
        **more,
    }
    return [messages.decode(part) for part in messages.encode_release(header, counts, encoding)]


DOMAIN = Domain(
    [
        Attribute.categorical("ward", ["a", "b", "c"]),
        Attribute.integer("age", 0, 999, bins=500),
        Attribute.integer("stay", 0, 29, bins=6),
    ]
)


STREAM = """
[stream]
name = "clinic"
[domain.ward]
type = "categorical"
values = ["a", "b", "c"]
[time]
length = "1m"
[privacy]
epsilon = 1
horizon = 100
[[histogram]]
name = "wards"
attributes = ["ward"]
[input]
topics = ["visits"]
"""


def test_a_forecast_is_counted_and_is_not_taken_for_a_release():
    view, watch = View("wards", DOMAIN, ["ward"]), Watch(parse(STREAM))

    def value(name):
        return watch._public[f"streamdp_{name}"].labels("wards")._value.get()

    watch._show(release(view, np.array([1, 2, 3]))[0])
    watch._show(release(view, np.array([4, 5, 6]), time_point=2, kind="forecast", epsilon="0/1")[0])
    assert (value("releases_total"), value("forecasts_total"), value("released_records")) == (1, 1, 15)
    assert (value("last_release_timestamp_seconds"), value("release_epsilon")) == (1, 0.1)


def missed(view: View, first: int, last: int) -> list[messages.Decoded]:
    """What a run of missed points publishes: the histogram's repeat, and the head."""
    run = {"time_point": last, "first_missed": first, "closed": 1_000 * last}
    repeat = {"kind": "repeat", "histogram": view.name, "reason": "missed", "threshold": None, "epsilon_left": "1/2"}
    return [messages.decode(messages.encode(run | each)) for each in (repeat, {"kind": "head", "ended": False})]


def test_missed_points_are_counted_and_not_their_messages():
    view, watch = View("wards", DOMAIN, ["ward"]), Watch(parse(STREAM))
    for message in (*missed(view, 5, 25_920_000), *missed(view, 25_920_001, 25_920_001)):
        watch._show(message)
    public = watch._public
    assert public["streamdp_time_points_missed_total"]._value.get() == 25_919_997
    assert public["streamdp_time_points_total"]._value.get() == 25_919_997
    assert public["streamdp_repeats_total"].labels("wards", "missed")._value.get() == 25_919_997
    assert public["streamdp_time_point"]._value.get() == 25_920_001


class TestBoard:
    def test_a_run_of_missed_points_pushes_out_what_it_leaves_no_room_for(self):
        view = View("wards", DOMAIN, ["ward"])
        board = Board({}, [view])
        board.take(release(view, np.array([1, 2, 3]))[0])
        for message in (*missed(view, 2, 4), *missed(view, 5, 5)):
            board.take(message)
        shown = [(point["first"], point["time_point"]) for point in board.status()["histograms"][0]["points"]]
        assert shown == [(1, 1), (2, 4), (5, 5)]
        for message in missed(view, 6, 25_920_000):
            board.take(message)
        (point,) = board.status()["histograms"][0]["points"]
        assert (point["first"], point["time_point"]) == (25_920_001 - MAX_POINTS, 25_920_000)

    def test_two_of_three_attributes_in_either_order_and_wide_axes_merged(self):
        view = View("all", DOMAIN, ["ward", "age", "stay"])
        counts = np.random.default_rng(1).integers(-5, 50, view.cells)
        board = Board({}, [view])
        assert board.drawing("all", []) is None
        for part in release(view, counts):
            board.take(part)
        cube = counts.reshape(3, 500, 6)
        found = board.drawing("all", ["stay", "ward"])
        assert found["counts"] == cube.sum(axis=1).T.reshape(-1).tolist()
        assert [axis["name"] for axis in found["axes"]] == ["stay", "ward"]
        assert found["axes"][0]["edges"] == [0, 5, 10, 15, 20, 25, 29]
        assert found["axes"][1]["edges"] is None
        merged = board.drawing("all", ["age"])
        assert len(merged["counts"]) == len(merged["axes"][0]["labels"]) == MAX_ALONG
        assert sum(merged["counts"]) == counts.sum()
        assert merged["counts"][0] == cube[:, : 500 // MAX_ALONG].sum()
        assert board.drawing("all", ["age", "nonsense"]) is None
        assert board.drawing("nonsense", ["age"]) is None

    def test_a_release_in_parts_shows_when_it_is_whole(self):
        domain = Domain([Attribute.integer("code", 0, 99_999, bins=100_000)])
        view = View("wide", domain, ["code"])
        board = Board({}, [view])
        parts = release(view, np.arange(view.cells), encoding="json")
        assert len(parts) > 1
        assert [board.take(part) is None for part in parts] == [True] * (len(parts) - 1) + [False]

    def test_the_margin_of_a_release_grows_with_every_point_that_closes(self):
        view = View("wards", DOMAIN, ["ward"])
        bands = bands_of(view.shape).number
        variance = Variance(view.shape, np.full(bands, 4.0), np.full(bands, 3.0))
        board = Board({}, [view])
        board.take(release(view, np.array([1, 2, 3]), variance=variance.to_json())[0])
        margins = []
        for time_point in (1, 2, 5):
            head = {"kind": "head", "time_point": time_point, "closed": 1_000 * time_point, "ended": False}
            board.take(messages.decode(messages.encode(head)))
            margins.append(board.status()["histograms"][0]["release"]["total_off"])
        meant = [1.96 * variance.standard_error([slice(None)], age) for age in (0, 1, 4)]
        assert margins == pytest.approx(meant, rel=0.01)
        assert board.status()["histograms"][0]["release"]["time_point"] == 1

    def test_a_forecast_is_shown_as_what_it_is(self):
        view = View("wards", DOMAIN, ["ward"])
        board = Board({}, [view])
        board.take(release(view, np.array([1, 2, 3]))[0])
        (message,) = release(view, np.array([4, 5, 6]), time_point=2, kind="forecast", epsilon="0/1")
        held = board.take(message)
        assert held is not None and held.kind == "forecast"
        shown = board.status()["histograms"][0]
        assert [point["kind"] for point in shown["points"]] == ["release", "forecast"]
        assert (shown["release"]["kind"], shown["release"]["epsilon"], shown["release"]["total"]) == ("forecast", 0, 15)
        assert board.drawing("wards", ["ward"])["counts"] == [4, 5, 6]

    def test_an_unchanged_status_is_only_its_version(self):
        view = View("wards", DOMAIN, ["ward"])
        board = Board({"stream": "s"}, [view])
        board.take(release(view, np.array([1, 2, 3]))[0])
        whole = board.status()
        assert whole["histograms"][0]["release"]["total"] == 6
        assert board.status(str(whole["version"])) == {"version": whole["version"]}
        assert board.status("0") == whole

    def test_jobs_are_bounded_newest_first_and_an_outcome_replaces_what_was_open(self):
        board = Board({}, [])
        for number in range(MAX_JOBS + 5):
            board.admitted({"id": str(number), "kind": "kmeans", "epsilon": 0.1, "time_point": 1})
        header = {
            "kind": "result",
            "id": "7",
            "job": "kmeans",
            "state": "failed",
            "published_at": 2,
            "part": 1,
            "parts": 1,
        }
        board.take(messages.decode(messages.encode(header)))
        jobs = board.status()["jobs"]
        assert len(jobs) == MAX_JOBS
        assert (jobs[0]["id"], jobs[0]["state"], jobs[1]["state"]) == ("7", "failed", "open")

    def test_a_summary_is_short(self):
        result = {"a": 1, "b": "x" * 1000, "c": [1, 2], "attributes": ["age"], "cluster_centers": [[1.0]] * 500}
        found = summary(result)
        assert found["values"] == {"a": 1}
        assert len(found["centres"]) == 100
        assert summary(None) is None


def test_when_some_of_a_share_comes_back():
    ledger = Ledger.w_event(1, window=10)
    ledger.reserve("ages", "0.5", "fixed")
    assert returns_in(ledger, "ages", 3) == 0
    ledger.record(3, "ages", "0.1", "release")
    ledger.record(7, "ages", "0.1", "release")
    assert returns_in(ledger, "ages", 3) == 10
    assert returns_in(ledger, "ages", 12) == 1
    assert returns_in(ledger, "ages", 13) == 4
    finite = Ledger.finite_horizon(1, 10)
    finite.reserve("ages", "0.5", "fixed")
    finite.record(1, "ages", "0.1", "release")
    assert returns_in(finite, "ages", 2) == math.inf


class Lost:
    """A writer whose broker went away."""

    def append(self, batch):
        raise Unreachable("gone")

    def close(self):
        pass


def test_every_failed_publication_and_every_new_try_is_told(tmp_path):
    told = []

    class Listening(Observer):
        def publish_failed(self):
            told.append("failed")

        def publish_retried(self):
            told.append("retried")

    log = FileLog(tmp_path / "log")
    log.ensure_topics([TopicSpec("s.releases"), TopicSpec("s.head", cleanup="compact")])
    publisher = Publisher(log, Topics.of("s"), "s", Lost(), 0, Listening())
    publisher.publish([StoredMessage(1, 1, Message("s.releases", b"{}", key=b"wards"), b"")])
    until(lambda: publisher.is_idle)
    publisher.close()
    log.close()
    assert told == ["failed", "retried"]
