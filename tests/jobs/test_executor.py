"""Real processes: what a job may do to itself, it does to nobody else."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from concurrent.futures import Executor, wait
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE, until

from streamdp.jobs import progress
from streamdp.jobs.executor import JobFailed, Limits, SpawnExecutor

pytestmark = pytest.mark.slow

GIGABYTE = 1 << 30


def greet(name: str) -> bytes:
    return f"hello {name}".encode()


def fail(how: str) -> bytes:
    match how:
        case "raise":
            raise ValueError("a record: user-17")
        case "memory":
            bytearray(1 << 40)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(0)
        case "not bytes":
            return 17  # type: ignore[return-value]
    return b"it went well"


def hang(note: str = "") -> bytes:
    if note:
        Path(note).write_text(str(os.getpid()))
    progress.report(2, 7)
    time.sleep(3_600)
    return b""


def facts() -> bytes:
    sys.stderr.write("a warning that quotes user-17")
    sys.stderr.flush()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    limits = resource.getrlimit(resource.RLIMIT_DATA)[0], resource.getrlimit(resource.RLIMIT_CORE)[0]
    facts = os.nice(0), *limits, signal.SIGINT in blocked, os.environ["OPENBLAS_NUM_THREADS"]
    return json.dumps(facts).encode()


def map_file(path: str) -> bytes:
    values = np.memmap(path, np.uint8, "r")
    return str(values.size + int(values[-1])).encode()


def rest(seconds: float) -> bytes:
    begin = time.monotonic()
    time.sleep(seconds)
    return f"{begin} {time.monotonic()}".encode()


@pytest.fixture
def pool():
    with SpawnExecutor(2, Limits(seconds=60, memory_bytes=2 * GIGABYTE)) as executor:
        yield executor


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1][1] != "Z"
    except OSError:
        return False


def test_it_is_a_standard_executor(pool):
    assert isinstance(pool, Executor)
    assert list(pool.map(greet, ["a", "b", "c"])) == [b"hello a", b"hello b", b"hello c"]


@pytest.mark.parametrize("how", ["raise", "memory", "kill", "exit", "not bytes"])
def test_a_job_that_fails_fails_alone_and_says_nothing(pool, how):
    neighbour, bad = pool.submit(greet, "you"), pool.submit(fail, how)
    error = bad.exception(PATIENCE)
    assert type(error) is JobFailed
    assert str(error) == ""
    assert error.__cause__ is None
    assert neighbour.result(PATIENCE) == b"hello you"
    assert pool.submit(greet, "again").result(PATIENCE) == b"hello again"


def test_a_job_that_hangs_is_ended_and_its_process_with_it(tmp_path):
    with SpawnExecutor(1, Limits(seconds=10, memory_bytes=2 * GIGABYTE)) as pool:
        begin = time.monotonic()
        future = pool.submit(hang, str(tmp_path / "pid"))
        assert type(future.exception(PATIENCE)) is JobFailed
        assert 10 <= time.monotonic() - begin < PATIENCE
        assert not alive(int((tmp_path / "pid").read_text()))
        assert future.progress == (2, 7)


def test_a_worker_is_restrained_and_silent(pool, capfd):
    nice, memory, core, interrupt_is_blocked, threads = json.loads(pool.submit(facts).result(PATIENCE))
    assert nice == os.nice(0) + 10
    assert (memory, core) == (2 * GIGABYTE, 0)
    assert interrupt_is_blocked
    assert threads == "1"
    assert "user-17" not in "".join(capfd.readouterr())


def test_a_mapped_snapshot_is_no_memory_of_the_job(pool, tmp_path):
    """It is as large as the data: a limit that counted it would fail jobs by the number of rows."""
    with (tmp_path / "snapshot").open("wb") as file:
        file.truncate(3 * GIGABYTE)
    assert int(pool.submit(map_file, str(tmp_path / "snapshot")).result(PATIENCE)) == 3 * GIGABYTE


def test_no_more_than_so_many_at_once(pool):
    futures = [pool.submit(rest, 0.5) for _ in range(4)]
    wait(futures)
    spans = [tuple(map(float, future.result().split())) for future in futures]
    for begin, _ in spans:
        assert sum(other <= begin < end for other, end in spans) <= 2


def test_stopping_one_job_kills_it_and_only_it(pool, tmp_path):
    one, other = pool.submit(hang, str(tmp_path / "one")), pool.submit(hang, str(tmp_path / "other"))
    waiting = pool.submit(greet, "late")
    until(lambda: one.progress and other.progress)
    waiting.stop()
    assert waiting.cancelled()
    one.stop()
    assert type(one.exception(PATIENCE)) is JobFailed
    assert not alive(int((tmp_path / "one").read_text()))
    assert alive(int((tmp_path / "other").read_text()))
    other.stop()


def test_shutting_down_with_cancel_leaves_no_process(tmp_path):
    pool = SpawnExecutor(1, Limits(seconds=60, memory_bytes=2 * GIGABYTE))
    running, waiting = pool.submit(hang, str(tmp_path / "pid")), pool.submit(greet, "you")
    until(lambda: running.progress)
    pool.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    assert not alive(int((tmp_path / "pid").read_text()))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("job-")]
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(greet, "you")
