"""SIGKILL at every named step and at random moments: nothing lost, nothing doubled, no release changed."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

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
    """A daemon killed from outside so long after its first line, at whatever instruction it has got to."""
    lines = stream.log_text().count('"starting"')
    process = stream.start()
    stream.wait(lambda: stream.log_text().count('"starting"') > lines, process)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stream.feed(20)
        time.sleep(0.05)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL, stream.log_text()


def assert_prefix(before: list[bytes], after: list[bytes]) -> None:
    assert after[: len(before)] == before, "a release that was out has changed"


STARTING = [step for step in STEPS if step.startswith("start.")]
RUNNING = [step for step in STEPS if not step.startswith("start.")]


@pytest.mark.parametrize("before", [None, "publish.before:3"], ids=["a first start", "a start that owes points"])
def test_killed_at_each_step_of_the_start(tmp_path, before):
    stream = Stream(tmp_path)
    stream.feed(200)
    killed_at_each(stream, STARTING if before is None else [before, *STARTING])


@pytest.mark.parametrize("step", [*RUNNING, "commit.after:3", "publish.before:3", "publish.after:3", "mark.after:4"])
def test_killed_at_a_named_step(tmp_path, step):
    stream = Stream(tmp_path)
    stream.feed(200)
    killed_at_each(stream, [step, step])


def killed_at_each(stream: Stream, steps: list[str]) -> None:
    """One kill after the other, and then a daemon that goes on."""
    before = stream.outputs()
    for step in steps:
        kill_at(stream, step)
        after = stream.outputs()
        assert_prefix(before, after)
        before = after
    stream.feed(100)
    stream.run_until(points=4)
    assert_prefix(before, stream.outputs())
    stream.check()


@pytest.mark.parametrize("guarantee", ["window = 20", "horizon = 10000"])
def test_auto_killed_at_named_steps(tmp_path, guarantee):
    stream = Stream(tmp_path, **AUTO, guarantee=guarantee)
    stream.feed(200)
    steps = ["commit.before", "journal.commit.written", "publish.before:3", "checkpoint.after"]
    killed_at_each(stream, [*steps, *steps])


@pytest.fixture(scope="module")
def watching(tmp_path_factory) -> Path:
    """A stream of the automatic strategy that asks before it releases."""
    stream = Stream(tmp_path_factory.mktemp("watching"), **WATCHED)
    stream.feed(400)
    stream.run_until(points=40)
    assert "decisions" in {purpose for *_, purpose in stream.told_charges()}
    return stream.directory


@pytest.mark.xdist_group("watching")
@pytest.mark.parametrize("step", ["commit.before", "journal.commit.written", "publish.before:3"])
def test_auto_killed_while_it_watches(watching, tmp_path, step):
    killed_at_each(copy_of(watching, tmp_path, **WATCHED), [step, step])


def copy_of(directory: Path, place: Path, **settings: str) -> Stream:
    """The stream once more, with its log, its journal and all, so that what led there need not be done again."""
    shutil.copytree(directory, place, dirs_exist_ok=True)
    return Stream(place, **settings)


@pytest.fixture(scope="module")
def foreseeing(tmp_path_factory) -> Path:
    """People come steadily, so that more are expected at every point."""
    stream = Stream(tmp_path_factory.mktemp("foreseeing"), **FORESEEING)
    process = stream.start()
    kinds: list[str] = []
    try:
        # About every eighth point has one: that none of hundreds has is less likely than 1e-9.
        while "forecast" not in kinds and stream.last_published() < 300:
            stream.feed(6)
            time.sleep(0.1)
            kinds = [messages.decode(value).kind for value in stream.outputs()]
    finally:
        process.kill()
        process.wait(PATIENCE)
    assert "forecast" in kinds
    return stream.directory


@pytest.mark.xdist_group("foreseeing")
@pytest.mark.parametrize("step", ["commit.before", "journal.commit.written", "publish.before:2"])
def test_auto_killed_between_what_it_foresees(foreseeing, tmp_path, step):
    """A repeat after the crash points at what stood."""
    killed_at_each(copy_of(foreseeing, tmp_path, **FORESEEING), [step, step])


def campaign(stream: Stream, kills: int, seed: int, longest: float = 1.0) -> None:
    randomness = random.Random(seed)
    stream.feed(200)
    before: list[bytes] = []
    for number in range(kills):
        if number % 3 == 2:
            kill_at(stream, f"{randomness.choice(STEPS[6:15])}:{randomness.randrange(1, 4)}")
        else:
            kill_after(stream, randomness.uniform(0, longest))
        after = stream.outputs()
        assert_prefix(before, after)
        before = after
    stream.run_until(points=3)
    assert_prefix(before, stream.outputs())
    stream.check()


@pytest.mark.parametrize("seed, settings", [(1, DSAT_W), (2, AUTO)], ids=["dsat_w", "auto"])
def test_killed_at_random(tmp_path, seed, settings):
    campaign(Stream(tmp_path, **settings), kills=12, seed=seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("settings", [DSAT_W, AUTO, WATCHED], ids=["dsat_w", "auto", "watched"])
@pytest.mark.parametrize("seed", range(10, 14))
def test_killed_six_hundred_times(tmp_path, seed, settings):
    campaign(Stream(tmp_path, **settings), kills=50, seed=seed)
