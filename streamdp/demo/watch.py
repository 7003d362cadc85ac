"""Watching the stage: what the daemon publishes, point by point, beside what was true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np

from streamdp.client import Update, subscribe
from streamdp.demo.patients import Patients
from streamdp.demo.show import Row
from streamdp.demo.stage import EPSILON, STREAM, DaemonFailed, Stage
from streamdp.engine import Topics
from streamdp.transport.filelog import FileLog

HIT = 2
"""The district of the outbreak."""
_PATIENCE_SECONDS = 60
"""A daemon that publishes nothing for so long is taken for stuck."""

Arrivals = SimpleQueue[Update | Exception | None]


def watch(stage: Stage, patients: Patients, length_ms: int) -> Iterator[Row]:
    """A row for each point until the stream ends; feeds the patients meanwhile."""
    arrivals: Arrivals = SimpleQueue()
    stop = threading.Event()
    # Ends with the stream. Should the daemon die before, it waits for messages that never come, which hurts nobody.
    _thread(partial(_receive, stage.log, arrivals, stop), arrivals)
    feeder: threading.Thread | None = None
    try:
        while (update := _next(stage, arrivals)) is not None:
            if update.kind == "ended":
                continue
            if feeder is None:
                # Only now is it known when points open.
                first_open = update.header["opened"] - (update.time_point - 1) * length_ms
                feeder = _thread(partial(patients.go_on, stage.log, first_open, length_ms, stop), arrivals)
            yield _row(update, patients)
    finally:
        stop.set()
        if feeder is not None:
            feeder.join()


def _thread(work: Callable[[], None], arrivals: Arrivals) -> threading.Thread:
    """Runs it; should it fail, whoever waits for arrivals learns of it."""

    def guarded() -> None:
        try:
            work()
        except Exception as failure:
            arrivals.put(failure)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread


def _receive(path: Path, arrivals: Arrivals, stop: threading.Event) -> None:
    topics = Topics.of(STREAM)
    with closing(FileLog(path)) as log:
        while not {topics.releases, topics.latest, topics.head} <= set(log.topics()):
            if stop.wait(0.05):
                return
        for update in subscribe(log, STREAM, from_beginning=True):
            arrivals.put(update)
        arrivals.put(None)


def _next(stage: Stage, arrivals: Arrivals) -> Update | None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            arrival = arrivals.get(timeout=0.1)
        except Empty:
            stage.check()
            continue
        if isinstance(arrival, Exception):
            raise arrival
        return arrival
    raise DaemonFailed(f"the daemon published nothing for {_PATIENCE_SECONDS} seconds")


def _row(update: Update, patients: Patients) -> Row:
    true = patients.true_counts(int(update.header["closed"]))
    published = np.zeros_like(true) if update.release is None else update.release.to_numpy()
    ill = patients.domain["state"].index("ill")
    return Row(
        time_point=update.time_point,
        kind=update.kind,
        reason=str(update.header["reason"]),
        spent=float(EPSILON - Fraction(update.header["epsilon_left"])),
        epsilon=float(EPSILON),
        true_ill=true[:, ill].tolist(),
        published_ill=published[:, ill].tolist(),
        in_a_district=int(true.sum()) // len(true),
        hit=HIT,
        error=float(np.abs(true - published).mean()),
    )
