"""A real daemon with all its listeners, and what scrapes and browsers need to look at it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

from harness import Stream
from waiting import PATIENCE

LISTENERS = ("metrics", "operator_metrics", "page")
OBSERVE = "\n[observe]\nmetrics = 0\noperator_metrics = 0\npage = 0\n"


class Observed(Stream):
    """Leaves budget for jobs. Ports are any that are free, as the log tells."""

    def __post_init__(self) -> None:
        super().__post_init__()
        text = self.path.read_text().replace('share = "0.5"', 'share = "0.4"')
        self.path.write_text(text + OBSERVE)

    def ports(self, process) -> dict[str, int]:
        found: dict[str, int] = {}

        def listening() -> bool:
            for line in self.log_text().splitlines():
                entry = json.loads(line) if line.startswith("{") else {}
                if entry.get("message") == "listening":
                    found[entry["listener"]] = int(entry["address"].rpartition(":")[2])
            return set(found) == set(LISTENERS)

        self.wait(listening, process)
        return found


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text: str) -> dict[str, float]:
    """Every sample of a scrape, by name and labels as written, but for the stream's, which every one must have."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            series, count = re.subn(r'(,?)stream="[^"]*"(,?)', lambda both: both[1] and both[2], series)
            assert count == 1, f"{series} does not name its stream"
            found[series.removesuffix("{}")] = float(value)
    return found


def names(text: str) -> set[str]:
    return {re.match(r"[a-zA-Z_:]+", series)[0] for series in samples(text)}


@contextmanager
def running(stream: Observed, points: int = 3, feed: int = 200):
    """Yields the ports once so many points are published, and keeps feeding meanwhile."""
    process = stream.start()
    stop = threading.Event()

    def keep_feeding() -> None:
        while not stop.wait(0.1):
            stream.feed(feed)

    feeder = threading.Thread(target=keep_feeding)
    try:
        ports = stream.ports(process)
        feeder.start()
        stream.wait(lambda: stream.last_published() >= points, process)
        yield ports, process
    finally:
        stop.set()
        if feeder.ident is not None:
            feeder.join()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def submit(stream: Stream, *arguments: str, wait: bool = True) -> str:
    """Asks for a job, and waits for it if told to; returns what the command printed."""
    command = [sys.executable, "-m", "streamdp", "job", "submit", str(stream.path), *arguments, *["--wait"] * wait]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stdout + done.stderr
