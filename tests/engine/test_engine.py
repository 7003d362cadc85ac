"""The engine is a state machine: these tests feed events and look at the actions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streamdp import messages
from streamdp.domain import Attribute, Domain, View
from streamdp.engine import (
    Charge,
    Checkpoint,
    CountsLoaded,
    CountsMoved,
    Engine,
    Plan,
    PointClosed,
    Publish,
    SaveState,
    StoreRelease,
    Topics,
)
from streamdp.privacy import InsecureSeededSource, Ledger
from streamdp.strategies import make_strategy, restore_strategy

DOMAIN = Domain([Attribute.categorical("ward", ["north", "south", "east", "west"])])
TOPICS = Topics.of("clinic")


def make_engine(kind: str = "baseline", parameters: dict | None = None, names=("wards",), **engine) -> Engine:
    guarantee = {"window": 4} if "horizon" not in engine else {"horizon": engine["horizon"]}
    ledger = Ledger.w_event(1, 4) if "window" in guarantee else Ledger.finite_horizon(1, guarantee["horizon"])
    share = Fraction(1, len(names))
    plans = []
    for place, name in enumerate(names):
        ledger.reserve(name, share, kind)
        strategy = make_strategy(
            kind,
            epsilon=share,
            cells=4,
            parameters=parameters or {},
            source=InsecureSeededSource(place),
            **guarantee,
        )
        plans.append(Plan(View(name, DOMAIN, ["ward"]), kind, strategy, "laplace"))
    return Engine(stream="clinic", journal_id="0123456789abcdef", plans=plans, budget=ledger, topics=TOPICS, **engine)


def close(engine: Engine, time_point: int, missed: bool = False) -> list:
    return engine.handle(PointClosed(time_point, 1_000 * (time_point - 1), 1_000 * time_point, missed))


def published(actions: list, topic: str) -> list[messages.Decoded]:
    return [messages.decode(a.value) for a in actions if isinstance(a, Publish) and a.topic == topic]


def test_counts_move_without_causing_anything():
    engine = make_engine()
    moved = CountsMoved("wards", np.array([0, 2]), np.array([5, 7]))
    assert engine.handle(moved) == []


def test_a_release_charges_stores_saves_and_publishes_in_that_order():
    engine = make_engine()
    engine.handle(CountsMoved("wards", np.array([0, 2]), np.array([5000, 7000])))
    actions = close(engine, 1)
    assert [type(action) for action in actions] == [Charge, SaveState, StoreRelease, Publish, Publish, Publish]
    assert actions[0] == Charge(1, "wards", Fraction(1, 4), "release", counted=False)
    assert [action.topic for action in actions[3:]] == [TOPICS.releases, TOPICS.latest, TOPICS.head]
    release = published(actions, TOPICS.releases)[0]
    assert release.kind == "release"
    np.testing.assert_array_equal(release.counts, actions[2].counts)
    # Noise of scale 4: within 200 of the truth but with probability exp(-50).
    assert np.abs(release.counts - [5000, 0, 7000, 0]).max() < 200


def test_the_release_says_how_it_was_made():
    engine = make_engine()
    header = published(close(engine, 1), TOPICS.releases)[0].header
    assert header["stream"] == "clinic"
    assert (header["time_point"], header["opened"], header["closed"]) == (1, 0, 1000)
    assert header["release_id"] == "0123456789ab.wards.1"
    assert header["epsilon"] == "1/4"
    assert header["charges"] == [["1/4", "release"]]
    assert header["epsilon_left"] == "3/4"
    assert header["noise_scale"] == "4/1" or header["noise_scale"] == "4"
    assert header["domain"] == DOMAIN.fingerprint
    assert View.from_description(header["view"]).shape == (4,)
    assert "any 4 consecutive" in header["guarantee"]


def test_a_repeat_points_at_the_last_release_and_costs_nothing():
    engine = make_engine("fixed", {"interval": 3})
    close(engine, 1)
    actions = close(engine, 2)
    assert not [action for action in actions if isinstance(action, Charge | StoreRelease)]
    header = published(actions, TOPICS.releases)[0].header
    assert (header["kind"], header["release_id"], header["charges"]) == ("repeat", "0123456789ab.wards.1", [])
    assert not published(actions, TOPICS.latest)


def test_a_forecast_is_published_but_is_no_release():
    engine = make_engine("auto", horizon=200)
    kind = ""
    while kind != "forecast":
        engine.handle(CountsMoved("wards", np.arange(4), np.full(4, 40)))
        actions = close(engine, engine.last_point + 1)
        (message,) = published(actions, TOPICS.releases)
        kind = message.kind
    point = message.header["time_point"]
    assert not [action for action in actions if isinstance(action, Charge | StoreRelease)]
    assert (message.header["epsilon"], message.header["charges"]) == ("0/1", [])
    assert message.header["release_id"] == f"0123456789ab.wards.{point}"
    assert set(message.header) == FIELDS["release"]
    assert np.abs(message.counts - 40 * point).max() < 1_000
    assert published(actions, TOPICS.latest)[0].header == message.header
    # Whoever holds it is told that it stands, by this engine or by the one after a restart.
    plan = engine.plans["wards"]
    (state,) = [action.state for action in actions if isinstance(action, SaveState)]
    last = plan.strategy.released
    restored = restore_strategy("auto", state=state, last=last, epsilon=1, cells=4, horizon=200)
    again = Engine(
        stream="clinic",
        journal_id=engine.journal_id,
        plans=[Plan(plan.view, "auto", restored, "laplace")],
        budget=engine._budget,
        topics=TOPICS,
        horizon=200,
        last_point=point,
        release_ids={"wards": state["release_id"]},
    )
    for each in (engine, again):
        header = published(close(each, point + 1, missed=True), TOPICS.releases)[0].header
        assert (header["kind"], header["release_id"]) == ("repeat", message.header["release_id"])


# Everything that leaves, and nothing else: each is a function of the configuration, the public clock and the decision.
EVERY = {"format", "kind", "stream", "time_point", "closed"}
DECIDED = EVERY | {"histogram", "opened", "strategy", "reason", "guarantee", "threshold", "charges", "epsilon_left"}
FIELDS = {
    "repeat": DECIDED | {"release_id"},
    "release": DECIDED
    | {"release_id", "epsilon", "mechanism", "method", "noise_scale", "variance"}
    | {"domain", "view", "part", "parts", "first_cell"},
    "ended": EVERY | {"histogram", "release_id"},
    "head": EVERY | {"journal_id", "ended"},
}


def test_no_message_says_more_than_it_may():
    engine = make_engine("fixed", {"interval": 2}, horizon=3)
    engine.handle(CountsMoved("wards", np.array([0, 2]), np.array([5000, 7000])))
    seen = set()
    for point in (1, 2, 3):
        for action in close(engine, point):
            if isinstance(action, Publish):
                message = messages.decode(action.value)
                assert set(message.header) == FIELDS[message.kind], message.kind
                seen.add(message.kind)
    assert seen == set(FIELDS)


def test_messages_without_counts_are_the_same_whatever_the_data():
    """A schedule decides without a look at the data, so all but the counts of a release must be equal to the byte."""

    def told(moved: int) -> list[dict]:
        engine = make_engine("fixed", {"interval": 2}, horizon=3)
        engine.handle(CountsMoved("wards", np.array([0]), np.array([moved])))
        actions = [action for point in (1, 2, 3) for action in close(engine, point)]
        return [messages.decode(action.value).header for action in actions if isinstance(action, Publish)]

    assert told(0) == told(987_654)


def test_a_decision_is_charged_also_when_it_says_no():
    engine = make_engine("dsat_w", {"releases": 2, "threshold": 10**6, "decision_ratio": 1})
    booked = [[action for action in close(engine, point) if isinstance(action, Charge)] for point in (1, 2, 3)]
    assert booked == [
        [Charge(1, "wards", Fraction(1, 4), "release", counted=False)],
        [Charge(2, "wards", Fraction(1, 4), "decisions", counted=False)],
        [],
    ]


def test_every_point_has_one_message_for_each_histogram_and_one_head():
    engine = make_engine("fixed", {"interval": 3}, names=("one", "two"))
    for time_point in range(1, 10):
        actions = close(engine, time_point)
        names = [message.header["histogram"] for message in published(actions, TOPICS.releases)]
        assert names == ["one", "two"]
        head = published(actions, TOPICS.head)
        assert [message.header["time_point"] for message in head] == [time_point]
        assert head[0].header["journal_id"] == "0123456789abcdef"


def test_a_missed_point_is_repeated_without_a_look_at_the_data():
    engine = make_engine()
    close(engine, 1)
    actions = close(engine, 2, missed=True)
    assert not [action for action in actions if isinstance(action, StoreRelease)]
    header = published(actions, TOPICS.releases)[0].header
    assert (header["kind"], header["reason"]) == ("repeat", "missed")


def miss(engine: Engine, first: int, last: int) -> list:
    return engine.handle(PointClosed(last, 1_000 * (first - 1), 1_000 * last, last - first + 1))


def test_a_run_of_missed_points_is_one_message_for_each_histogram():
    engine = make_engine(names=("one", "two"))
    close(engine, 1)
    actions = miss(engine, 2, 25_920_000)
    assert engine.last_point == 25_920_000
    for topic, count in ((TOPICS.releases, 2), (TOPICS.head, 1)):
        headers = [message.header for message in published(actions, topic)]
        assert len(headers) == count
        assert {(header["first_missed"], header["time_point"]) for header in headers} == {(2, 25_920_000)}
        assert {message.missed for message in published(actions, topic)} == {25_919_999}
    repeats = [message.header for message in published(actions, TOPICS.releases)]
    assert {(each["kind"], each["reason"], each["opened"]) for each in repeats} == {("repeat", "missed", 1_000)}
    (header, *_) = (message.header for message in published(close(engine, 25_920_001), TOPICS.releases))
    assert "first_missed" not in header


def test_a_run_leaves_what_its_points_leave_one_by_one():
    at_once, one_by_one = make_engine(), make_engine()
    for engine in (at_once, one_by_one):
        close(engine, 1)
    run, last = miss(at_once, 2, 5), [close(one_by_one, point, missed=True) for point in range(2, 6)][-1]
    assert [each for each in run if isinstance(each, SaveState)] == [
        each for each in last if isinstance(each, SaveState)
    ]
    for topic in (TOPICS.releases, TOPICS.head):
        ((first, second),) = zip(published(run, topic), published(last, topic), strict=True)
        differ = {name for name in first.header if first.header[name] != second.header[name]}
        assert differ <= {"first_missed", "opened"}
    later = [
        [published(close(engine, point), TOPICS.releases)[0] for point in (6, 7)] for engine in (at_once, one_by_one)
    ]
    assert [message.header for message in later[0]] == [message.header for message in later[1]]


def test_a_run_follows_the_last_point_and_ends_a_horizon():
    engine = make_engine(horizon=6)
    close(engine, 1)
    with pytest.raises(ValueError, match="does not follow"):
        miss(engine, 3, 4)
    assert {message.kind for message in published(miss(engine, 2, 6), TOPICS.releases)} == {"repeat", "ended"}
    assert engine.ended


def test_a_run_that_begins_before_the_budget_is_back_was_missed_all_the_same():
    engine = make_engine(last_point=5, resumes_at=8)
    (missed,) = published(miss(engine, 6, 9), TOPICS.releases)
    assert (missed.header["reason"], missed.missed) == ("missed", 4)
    assert published(close(engine, 10), TOPICS.releases)[0].header["reason"] == "scheduled"


def test_points_that_were_written_off_are_repeated_until_the_budget_is_back():
    engine = make_engine(last_point=5, resumes_at=8)
    kinds = [published(close(engine, point), TOPICS.releases)[0].header for point in (6, 7, 8)]
    assert [(header["kind"], header["reason"]) for header in kinds] == [
        ("repeat", "written off"),
        ("repeat", "written off"),
        ("release", "scheduled"),
    ]


def test_after_the_horizon_it_says_ended_and_nothing_more():
    engine = make_engine(horizon=2)
    close(engine, 1)
    assert not engine.ended
    last = close(engine, 2)
    assert [message.kind for message in published(last, TOPICS.releases)] == ["release", "ended"]
    assert published(last, TOPICS.head)[0].header["ended"] is True
    assert engine.ended
    assert close(engine, 3) == []


def test_time_points_close_in_order():
    engine = make_engine()
    close(engine, 1)
    with pytest.raises(ValueError, match="does not follow"):
        close(engine, 3)
    with pytest.raises(ValueError, match="does not follow"):
        close(engine, 1)


def test_a_checkpoint_comes_every_so_often_and_last():
    engine = make_engine(checkpoint_every=2)
    assert not any(isinstance(action, Checkpoint) for action in close(engine, 1))
    assert close(engine, 2)[-1] == Checkpoint(2)


def test_loaded_counts_replace_moved_ones():
    engine = make_engine()
    engine.handle(CountsMoved("wards", np.array([1]), np.array([90_000])))
    engine.handle(CountsLoaded("wards", np.array([0, 0, 0, 30_000])))
    release = published(close(engine, 1), TOPICS.releases)[0]
    assert np.abs(release.counts - [0, 0, 0, 30_000]).max() < 200


def test_a_cell_that_occurs_twice_in_one_event_is_counted_twice():
    engine = make_engine()
    engine.handle(CountsMoved("wards", np.array([1, 1]), np.array([10_000, 10_000])))
    release = published(close(engine, 1), TOPICS.releases)[0]
    assert abs(int(release.counts[1]) - 20_000) < 200
