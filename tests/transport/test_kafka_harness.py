"""The tests' own broker: it never outlives them, and its absence is loud."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka_broker.shared import shared_broker
from waiting import PATIENCE

pytestmark = pytest.mark.kafka
TESTS = Path(__file__).resolve().parents[1]

USER = """
import pytest

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("number", range(3))
def test_something(broker, number):
    pass
"""


def run_tests(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run of its own, of a test that needs a broker."""
    (folder / "test_user.py").write_text(USER)
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = kafka: needs a broker\n")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "STREAMDP", "CI"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=inherited | {"PYTHONPATH": str(TESTS)} | environment,
    )


def test_without_java_one_loud_line_says_so(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PATH=str(tmp_path))
    assert done.returncode == 0 and "3 skipped" in done.stdout
    loud = [line for line in done.stdout.splitlines() if line.startswith("!") and "KAFKA TESTS SKIPPED" in line]
    assert len(loud) == 1 and "there is no java" in loud[0]


def test_under_ci_that_is_a_failure(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PATH=str(tmp_path), CI="true")
    assert done.returncode == 1 and "the Kafka tests must run" in done.stdout


def test_a_given_broker_is_used(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PATH=str(tmp_path), STREAMDP_TEST_BOOTSTRAP="127.0.0.1:1")
    assert done.returncode == 0 and "3 passed" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif("STREAMDP_TEST_BOOTSTRAP" in os.environ, reason="starts a broker of its own")
def test_the_shared_broker_ends_when_its_run_is_killed(tmp_path: Path, broker: object) -> None:
    with subprocess.Popen(["sleep", "600"]) as run:
        addresses = shared_broker(tmp_path / "home", run.pid)
        assert shared_broker(tmp_path / "home", run.pid) == addresses, "a second worker gets the same"
        [java] = _children(int((tmp_path / "home" / "keeper.pid").read_text()))
        run.send_signal(signal.SIGKILL)
        run.wait()
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{java}").exists() and b"Z" not in Path(f"/proc/{java}/stat").read_bytes().split()[2]:
        assert time.monotonic() < deadline, "the broker outlives its run"
        time.sleep(0.1)
    while (tmp_path / "home").exists():
        assert time.monotonic() < deadline, "the broker's files outlive it"
        time.sleep(0.1)


def _children(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
