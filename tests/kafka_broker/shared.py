"""One broker for all test processes of a run: started by the first that asks, ended with the run.

Run as a program it is the broker's parent: it starts the broker, writes its addresses, and stops it when told (SIGTERM)
or when the process that the run belongs to is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from .broker import START_SECONDS, Addresses, Broker
from .install import kafka_jars


def shared_broker(home: Path, owner: int) -> Addresses:
    """The run's broker; `owner` is the process whose end also ends the broker."""
    kafka_jars()
    home.mkdir(parents=True, exist_ok=True)
    answer = home / "addresses.json"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            _start(home, owner)
        return Addresses(**json.loads(answer.read_text()))


def _start(home: Path, owner: int) -> None:
    with (home / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "kafka_broker.shared", str(home), str(owner)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
    (home / "keeper.pid").write_text(str(keeper.pid))
    deadline = time.monotonic() + START_SECONDS + 30
    while not (home / "addresses.json").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the shared broker did not start: {(home / 'keeper.log').read_text()[-2000:]}")
        time.sleep(0.1)
    # The keeper outlives this process on purpose, so its handle must not complain when it is collected.
    keeper.returncode = 0


def end_shared_broker(home: Path) -> None:
    """End the run's broker, if there is one, and remove its files."""
    number = home / "keeper.pid"
    if number.exists():
        keeper = int(number.read_text())
        if _alive(keeper):
            os.kill(keeper, signal.SIGTERM)
            deadline = time.monotonic() + 25
            while home.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
    shutil.rmtree(home, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _keep(home: Path, owner: int) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    broker = Broker(home / "broker")
    broker.start()
    partial = home / "addresses.partial"
    partial.write_text(json.dumps(broker.addresses.describe()))
    partial.rename(home / "addresses.json")
    while not told and _alive(owner):
        time.sleep(0.25)
    broker.kill()
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), int(sys.argv[2]))
