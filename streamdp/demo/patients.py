"""The patients of the recorded outbreak: fed to the log a time point at a time, and counted on the way."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from math import ceil
from pathlib import Path

import numpy as np

from streamdp.arrays import Counts
from streamdp.config import load
from streamdp.daemon.schedule import now_ms
from streamdp.demo.stage import TOPIC
from streamdp.errors import ConfigurationError
from streamdp.replay.fixtures import CONFIG, FOLDER, TRACE
from streamdp.replay.play import open_trace
from streamdp.replay.reader import Messages
from streamdp.transport.base import Message, TopicSpec
from streamdp.transport.batch import Blobs
from streamdp.transport.filelog import FileLog

Record = tuple[bytes, dict[str, str]]
"""A patient and what became of them."""

BURST = 61
"""The point of the recording at which the outbreak begins."""
MAX_POINTS = 60
"""So many, when a third of them comes before the outbreak, are recorded."""
_EARLIEST, _LATEST = 0.25, 0.6
"""Records are fed between these parts of a point, far from both ends, so that it is clear which point holds them."""


def find_fixture() -> Path:
    """The recorded outbreak, seen from the working directory or from a checkout that is installed in place."""
    folders = [FOLDER / "outbreak", Path(__file__).parents[2] / FOLDER / "outbreak"]
    for folder in folders:
        if (folder / TRACE).is_file():
            return folder
    raise ConfigurationError(f"there is no {folders[0]} here: run the demo from a checkout of streamdp")


class Patients:
    """Group 0 is the state at the outset; group i is what is fed during time point i + 1.

    `true_counts` is by district and state, as the published histogram is.
    """

    def __init__(self, folder: Path, points: int) -> None:
        config = load(folder / CONFIG)
        domain = config.build_domain()
        self.domain = {name: domain[name].labels for name in domain.names}
        first = BURST - points // 3
        self._groups: list[list[Record]] = [[]]
        with open_trace(folder / TRACE, config) as trace:
            for item in trace:
                if isinstance(item, Messages):
                    self._groups[-1] += [
                        record for batch in item.batches for record in _records(batch.keys, batch.values)
                    ]
                elif item.time_point >= first:
                    self._groups.append([])
        self._groups = self._groups[:points]
        self._lock = threading.Lock()
        self._now: dict[bytes, dict[str, str]] = {}
        self._history: list[tuple[int, Counts]] = []

    def begin(self, log: FileLog) -> None:
        """Feeds the state at the outset, before the daemon starts."""
        log.ensure_topics([TopicSpec(TOPIC)])
        self._feed(log, self._groups[0])

    def go_on(self, path: Path, first_open: int, length_ms: int, stop: threading.Event) -> None:
        """Feeds one group in each time point after the first, by the clock."""
        with closing(FileLog(path, durable=False)) as log:
            slot = 0
            for group in self._groups[1:]:
                # Held up, it goes on in a later point, rather than near the end of this one.
                slot = max(slot + 1, ceil((now_ms() - first_open) / length_ms - _LATEST))
                due = first_open + (slot + _EARLIEST) * length_ms
                if stop.wait(max(0.0, (due - now_ms()) / 1_000)):
                    return
                self._feed(log, group)

    def true_counts(self, closed: int) -> Counts:
        """The exact histogram of what was fed before this moment."""
        with self._lock:
            before = [counts for fed, counts in self._history if fed <= closed]
            return before[-1] if before else self._history[0][1]

    def _feed(self, log: FileLog, group: list[Record]) -> None:
        ts = now_ms()
        with closing(log.writer("demo")) as writer:
            writer.append(
                [
                    Message(
                        TOPIC,
                        json.dumps({"ts": ts, "op": "upsert", "record": record}).encode(),
                        key=key,
                        timestamp=ts,
                    )
                    for key, record in group
                ]
            )
        fed = now_ms()
        self._now.update(group)
        with self._lock:
            self._history.append((fed, self._count()))

    def _count(self) -> Counts:
        districts, states = self.domain["district"], self.domain["state"]
        counts = np.zeros((len(districts), len(states)), np.int64)
        for record in self._now.values():
            counts[districts.index(record["district"]), states.index(record["state"])] += 1
        return counts


def _records(keys: Blobs, values: Blobs) -> list[Record]:
    return [(key or b"", json.loads(value or b"")["record"]) for key, value in zip(keys, values, strict=True)]
