"""SIGKILL at every named step and at random moments: nothing lost, nothing doubled, no release changed."""

from __future__ import annotations

import random
import signal
import time

import pytest
from harness import Stream
from waiting import PATIENCE

from streamdp import messages
from streamdp.daemon.steps import STEPS

pytestmark = pytest.mark.slow

DSAT_W: dict[str, str] = {}
AUTO = {"strategy": "auto", "parameters": ""}
WATCHED = AUTO | {"epsilon": "400", "guarantee": "window = 100"}
"""So large an epsilon that a few hundred users are enough to be watched, once they rest."""
FORESEEING = AUTO | {"epsilon": "400", "guarantee": "horizon = 1000"}


def kill_at(stream: Stream, step: str) -> None:
    """A daemon that kills itself at the step, while records keep coming."""
    starts = stream.starts()
    process = stream.start(kill_at=step)
    deadline = time.monotonic() + PATIENCE
    stopped = False
    while process.poll() is None:
        assert time.monotonic() < deadline, f"never reached {step}:\n{stream.log_text()}"
        stream.feed(20)
        if step.startswith("stop") and not stopped and stream.starts() > starts:
            process.send_signal(signal.SIGTERM)
            stopped = True  # a second signal would end it at once
        time.sleep(0.05)
    assert process.returncode == -signal.SIGKILL, f"{step}: {process.returncode}\n{stream.log_text()}"


def kill_after(stream: Stream, seconds: float) -> None:
    """A daemon killed from outside, at whatever instruction it has got to."""
    process = stream.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stream.feed(20)
        time.sleep(0.05)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL, stream.log_text()


def assert_prefix(before: list[bytes], after: list[bytes]) -> None:
    assert after[: len(before)] == before, "a release that was out has changed"


@pytest.mark.parametrize("step", [*STEPS, "commit.after:3", "publish.before:3", "publish.after:3", "mark.after:4"])
def test_killed_at_a_named_step(tmp_path, step):
    killed_twice_at(Stream(tmp_path), step)


def killed_twice_at(stream: Stream, step: str) -> None:
    stream.feed(200)
    kill_at(stream, step)
    before = stream.outputs()
    kill_at(stream, step)
    assert_prefix(before, stream.outputs())
    stream.feed(100)
    stream.run_until(points=4)
    assert_prefix(before, stream.outputs())
    stream.check()


@pytest.mark.parametrize("step", ["commit.before", "journal.commit.written", "publish.before:3", "checkpoint.after"])
@pytest.mark.parametrize("guarantee", ["window = 20", "horizon = 10000"])
def test_auto_killed_at_a_named_step(tmp_path, step, guarantee):
    killed_twice_at(Stream(tmp_path, **AUTO, guarantee=guarantee), step)


@pytest.mark.parametrize("step", ["commit.before", "journal.commit.written", "publish.before:3"])
def test_auto_killed_while_it_watches(tmp_path, step):
    stream = Stream(tmp_path, **WATCHED)
    stream.feed(400)
    stream.run_until(points=40)
    assert "decisions" in {purpose for *_, purpose in stream.told_charges()}
    killed_twice_at(stream, step)


@pytest.mark.parametrize("step", ["commit.before", "journal.commit.written", "publish.before:2"])
def test_auto_killed_between_what_it_foresees(tmp_path, step):
    """People come steadily, so that more are expected at every point; a repeat after the crash points at what stood."""
    stream = Stream(tmp_path, **FORESEEING)
    process = stream.start()
    kinds: list[str] = []
    # About every eighth point has one: that none of hundreds has is less likely than 1e-9.
    while "forecast" not in kinds and stream.last_published() < 300:
        stream.feed(6)
        time.sleep(0.1)
        kinds = [messages.decode(value).kind for value in stream.outputs()]
    process.kill()
    process.wait(PATIENCE)
    assert "forecast" in kinds
    killed_twice_at(stream, step)


def campaign(stream: Stream, kills: int, seed: int, longest: float = 2.0) -> None:
    randomness = random.Random(seed)
    stream.feed(200)
    before: list[bytes] = []
    for number in range(kills):
        if number % 3 == 2:
            kill_at(stream, f"{randomness.choice(STEPS[6:15])}:{randomness.randrange(1, 4)}")
        else:
            kill_after(stream, randomness.uniform(0.3, longest))
        after = stream.outputs()
        assert_prefix(before, after)
        before = after
    stream.run_until(points=3)
    assert_prefix(before, stream.outputs())
    stream.check()


@pytest.mark.parametrize("seed, settings", [(1, DSAT_W), (2, AUTO)], ids=["dsat_w", "auto"])
def test_killed_at_random(tmp_path, seed, settings):
    campaign(Stream(tmp_path, **settings), kills=15, seed=seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("settings", [DSAT_W, AUTO, WATCHED], ids=["dsat_w", "auto", "watched"])
@pytest.mark.parametrize("seed", range(10, 14))
def test_killed_six_hundred_times(tmp_path, seed, settings):
    campaign(Stream(tmp_path, **settings), kills=50, seed=seed)
