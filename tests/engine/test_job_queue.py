"""The life of a job, as events and actions: no process, no file."""

from __future__ import annotations

from fractions import Fraction

import pytest
from test_engine import DOMAIN, TOPICS

from streamdp import messages
from streamdp.domain import View
from streamdp.engine import (
    BoundaryPassed,
    CancelRequested,
    Charge,
    Engine,
    JobFinished,
    JobQueue,
    JobRequested,
    Plan,
    PointClosed,
    Publish,
    SaveJob,
    StartJob,
    StopJob,
)
from streamdp.engine.job import FAILED, Job
from streamdp.privacy import InsecureSeededSource, Ledger
from streamdp.result_messages import pack
from streamdp.strategies import make_strategy

HALF, TENTH = Fraction(1, 2), Fraction(1, 10)


class Machine:
    """An engine with its ledger: what it wants committed is booked, as the journal would."""

    def __init__(self, horizon: int | None = None, window: int = 4, **jobs) -> None:
        self.ledger = Ledger.w_event(1, window) if horizon is None else Ledger.finite_horizon(1, horizon)
        self.ledger.reserve("wards", HALF, "baseline")
        guarantee = {"window": window} if horizon is None else {"horizon": horizon}
        strategy = make_strategy(
            "baseline", epsilon=HALF, cells=4, parameters={}, source=InsecureSeededSource(1), **guarantee
        )
        settings = {"stream": "clinic", "topics": TOPICS, "budget": self.ledger, "max_waiting": 3, **jobs}
        self.engine = Engine(
            stream="clinic",
            journal_id="0123456789abcdef",
            plans=[Plan(View("wards", DOMAIN, ["ward"]), "baseline", strategy, "laplace")],
            budget=self.ledger,
            topics=TOPICS,
            horizon=horizon,
            jobs=JobQueue(**settings),
        )

    def ask(self, job_id: str | None = "a", epsilon: Fraction | None = TENTH, **more) -> None:
        assert self.engine.handle(JobRequested(job_id, "kmeans", epsilon, {"n_clusters": 3}, **more)) == []

    def close(self, missed: bool = False) -> list:
        point = self.engine.last_point + 1
        return self.book(self.engine.handle(PointClosed(point, 1_000 * (point - 1), 1_000 * point, missed)))

    def book(self, actions: list) -> list:
        charges = [a for a in actions if isinstance(a, Charge)]
        self.ledger.book(charges)
        return actions


def about_jobs(actions: list) -> list:
    return [
        action
        for action in actions
        if isinstance(action, SaveJob | StartJob | StopJob)
        or (isinstance(action, Charge) and action.counted)
        or (isinstance(action, Publish) and (action.topic == TOPICS.results or TOPICS.is_rows(action.topic)))
    ]


def said(actions: list) -> list[dict]:
    return [messages.decode(a.value).header for a in actions if isinstance(a, Publish) and a.topic == TOPICS.results]


def test_a_request_is_charged_saved_and_started_when_the_point_closes():
    machine = Machine()
    machine.close()
    machine.ask()
    charge, saved, started = about_jobs(machine.close())
    job = Job("a", "kmeans", TENTH, {"n_clusters": 3}, "admitted", time_point=2)
    assert charge == Charge(2, "job:a", TENTH, "kmeans", counted=True)
    assert saved == SaveJob(job)
    assert started == StartJob(job)
    assert machine.ledger.spent(2, "job:a") == TENTH
    assert about_jobs(machine.close()) == []


def test_a_result_is_stored_at_once_and_leaves_at_the_boundary():
    machine = Machine()
    machine.ask()
    machine.close()
    blob = pack({"centres": [1, 2]}, [b"rows 1", b"rows 2"])
    (stored,) = machine.engine.handle(JobFinished("a", blob))
    assert (stored.job.state, stored.job.result, stored.job.published_at) == ("done", blob, None)
    actions = about_jobs(machine.close())
    assert [type(action) for action in actions] == [Publish, Publish, Publish, SaveJob]
    assert [(action.topic, action.value) for action in actions[:2]] == [
        ("clinic.rows.a", b"rows 1"),
        ("clinic.rows.a", b"rows 2"),
    ]
    assert (actions[3].job.result, actions[3].job.published_at) == (None, 2)
    (header,) = said(actions)
    assert header == {
        "format": 1,
        "kind": "result",
        "stream": "clinic",
        "id": "a",
        "job": "kmeans",
        "state": "done",
        "published_at": 2,
        "epsilon": "1/10",
        "time_point": 1,
        "rows": {"topic": "clinic.rows.a", "parts": 2},
        "part": 1,
        "parts": 1,
        "result": {"centres": [1, 2]},
    }
    assert about_jobs(machine.close()) == []


def test_a_failure_has_one_constant_reason_and_keeps_its_charge():
    machine = Machine()
    machine.ask()
    machine.close()
    (stored,) = machine.engine.handle(JobFinished("a", None))
    assert (stored.job.state, stored.job.reason) == ("failed", FAILED)
    (header,) = said(machine.close())
    assert (header["state"], header["reason"], header["epsilon"]) == ("failed", "failed", "1/10")
    assert "result" not in header
    machine.ask()
    assert said(machine.close())[0]["state"] == "refused"
    assert machine.ledger.spent(3, "job:a") == TENTH


def test_what_does_not_fit_is_refused_saying_what_is_left_and_when_it_returns():
    machine = Machine()
    machine.ask("a", Fraction(3, 10))
    machine.close()
    machine.ask("b", Fraction(3, 10))
    actions = machine.close()
    (header,) = said(actions)
    assert header["state"] == "refused"
    assert (header["epsilon"], header["epsilon_left"], header["returns_at"]) == ("0/1", "1/5", 5)
    assert header["reason"] == "epsilon 0.3 does not fit: 0.2 is left; it fits from time point 5 on"
    assert not [a for a in about_jobs(actions) if isinstance(a, Charge | StartJob)]
    machine.close()
    machine.close()
    machine.ask("b", Fraction(3, 10))  # a refused id may be used again
    assert [type(a) for a in about_jobs(machine.close())] == [Charge, SaveJob, StartJob]


def test_jobs_admitted_at_one_boundary_share_what_is_left():
    machine = Machine()
    for job_id in "abc":
        machine.ask(job_id, Fraction(2, 10))
    actions = machine.close()
    assert [a.job.job_id for a in actions if isinstance(a, StartJob)] == ["a", "b"]
    (header,) = said(actions)
    assert (header["id"], header["epsilon_left"], header["returns_at"]) == ("c", "1/10", 5)


def test_an_id_is_admitted_once_even_within_one_boundary():
    machine = Machine(known=["old"])
    machine.ask("a")
    machine.ask("a")
    machine.ask("old")
    actions = about_jobs(machine.close())
    assert len([a for a in actions if isinstance(a, StartJob)]) == 1
    assert [(h["id"], h["reason"]) for h in said(actions)] == [
        ("a", "this id was used before; choose another"),
        ("old", "this id was used before; choose another"),
    ]
    # The refusal must not be written over what is known of the job with that id.
    assert [a.job.state for a in actions if isinstance(a, SaveJob)] == ["admitted"]


def test_ids_whose_topics_kafka_would_confuse_are_the_same_id():
    """A topic that cannot be made would end the publisher, and the daemon with it, at every start."""
    machine = Machine(known=["old.one"])
    for job_id in ("a.b", "a_b", "old_one"):
        machine.ask(job_id)
    actions = machine.close()
    assert [action.job.job_id for action in actions if isinstance(action, StartJob)] == ["a.b"]


def test_a_bad_request_is_answered_with_its_reason():
    machine = Machine()
    machine.ask("a", None, refusal="kind: unknown")
    machine.ask("b", None, refusal="epsilon: give a number")
    actions = about_jobs(machine.close())
    assert [(h["id"], h["reason"]) for h in said(actions)] == [
        ("a", "kind: unknown"),
        ("b", "epsilon: give a number"),
    ]
    assert not any(isinstance(action, SaveJob) for action in actions), "nothing is kept of what is wrong by itself"
    assert machine.ledger.left(1) == HALF


def test_only_so_many_jobs_are_open():
    machine = Machine()
    for job_id in "abcd":
        machine.ask(job_id, Fraction(1, 100))
    actions = machine.close()
    assert [(h["id"], h["reason"]) for h in said(actions)] == [("d", "3 jobs are open already; ask again later")]
    machine.engine.handle(JobFinished("a", None))
    machine.ask("d", Fraction(1, 100))
    assert [a.job.job_id for a in machine.close() if isinstance(a, StartJob)] == ["d"]


def test_cancelling_stops_the_job_and_refunds_nothing():
    machine = Machine()
    machine.ask()
    machine.close()
    machine.engine.handle(CancelRequested("a"))
    machine.engine.handle(CancelRequested("nobody"))
    actions = about_jobs(machine.close())
    assert [type(a) for a in actions] == [SaveJob, StopJob, Publish, SaveJob]
    assert actions[1] == StopJob("a")
    assert said(actions)[0]["state"] == "cancelled"
    assert machine.ledger.spent(2, "job:a") == TENTH
    assert machine.engine.handle(JobFinished("a", pack({}))) == []  # it ended just before it was stopped
    assert about_jobs(machine.close()) == []


def test_a_result_that_was_stored_before_a_cancel_still_leaves():
    machine = Machine()
    machine.ask()
    machine.close()
    machine.engine.handle(JobFinished("a", pack({})))
    machine.engine.handle(CancelRequested("a"))
    assert [h["state"] for h in said(machine.close())] == ["done"]


def test_nothing_is_admitted_at_a_missed_point_but_results_leave():
    machine = Machine()
    machine.ask()
    machine.close()
    machine.engine.handle(JobFinished("a", pack({})))
    machine.ask("b")
    assert [h["id"] for h in said(machine.close(missed=True))] == ["a"]
    assert [a.job.job_id for a in machine.close() if isinstance(a, StartJob)] == ["b"]


def test_after_the_horizon_a_job_reads_the_last_snapshot():
    machine = Machine(horizon=2)
    machine.close()
    machine.close()
    assert machine.engine.ended
    machine.ask()
    actions = machine.book(machine.engine.handle(BoundaryPassed(snapshot=True)))
    assert [type(a) for a in actions] == [Charge, SaveJob, StartJob]
    assert actions[0].time_point == 2
    machine.engine.handle(JobFinished("a", pack({})))
    machine.ask("b", HALF)
    actions = machine.engine.handle(BoundaryPassed(snapshot=True))
    assert [(h["id"], h["state"], h["published_at"]) for h in said(actions)] == [("b", "refused", 2), ("a", "done", 2)]
    assert said(actions)[0]["reason"] == "epsilon 0.5 does not fit: 0.4 is left; it never will"


def test_after_the_horizon_without_a_snapshot_jobs_are_refused():
    machine = Machine(horizon=1)
    machine.close()
    machine.ask()
    assert said(machine.engine.handle(BoundaryPassed(snapshot=False)))[0]["reason"].endswith("is gone")


@pytest.mark.parametrize("state", ["done", "failed"])
def test_a_restart_knows_what_is_open_and_what_is_owed(state):
    opened = Job("open", "kmeans", TENTH, {}, "admitted", time_point=1)
    owed = Job("owed", "kmeans", TENTH, {}, state, time_point=1, result=pack({}) if state == "done" else None)
    machine = Machine(known=["open", "owed"], jobs=[opened, owed])
    assert machine.engine.open_jobs == (opened,)
    assert [(h["id"], h["state"]) for h in said(machine.close())] == [("owed", state)]
    machine.engine.handle(JobFinished("open", pack({})))
    assert [h["id"] for h in said(machine.close())] == ["open"]


def test_written_off_budget_admits_nothing():
    machine = Machine()
    machine.ledger.write_off(3)
    machine.ask()
    actions = machine.engine.handle(PointClosed(1, 0, 1_000, missed=True))
    actions = machine.engine.handle(PointClosed(2, 1_000, 2_000))
    (header,) = said(actions)
    assert (header["epsilon_left"], header["returns_at"]) == ("0/1", 7)
