"""What the status page shows, kept from published messages alone: a subscriber inside the daemon.

Nothing comes in here but bytes that have left on the output topics, and what follows from requests, the ledger and the
public clock. So nothing the page serves can say more than the outputs do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdp import messages
from streamdp.client import Release
from streamdp.domain import View
from streamdp.result_messages import join_result

MAX_POINTS = 240
MAX_JOBS = 20
# Beyond this many cells along an axis neighbours are drawn together: a screen has no more.
MAX_ALONG = 120
MAX_CENTRES = 100
_SHORT = 200


@dataclass
class _Histogram:
    view: View
    release: Release | None = None
    parts: dict[int, messages.Decoded] = field(default_factory=dict)
    points: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))


class Board:
    """Takes messages as they are published; gives JSON. Safe to use from any thread."""

    def __init__(self, about: Mapping[str, Any], views: Sequence[View]) -> None:
        self._about = dict(about)
        self._lock = threading.Lock()
        self._version = 0
        self._histograms = {view.name: _Histogram(view) for view in views}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._job_parts: dict[str, list[dict[str, Any]]] = {}
        self._budget: dict[str, Any] = {}
        self._last: dict[str, Any] = {"time_point": 0, "closed": None, "ended": False}

    # What comes in

    def take(self, message: messages.Decoded) -> Release | None:
        """One published message; returns the release, or forecast, that it completes, if it does."""
        with self._lock:
            self._version += 1
            match message.kind:
                case "release" | "forecast" | "repeat":
                    return self._take_point(message)
                case "head":
                    self._last = {name: message.header[name] for name in ("time_point", "closed", "ended")}
                    for histogram in self._histograms.values():
                        if histogram.release is not None:
                            histogram.release = histogram.release.at(int(self._last["time_point"]))
                case "result":
                    self._take_result(message.header)
            return None

    def hold(self, release: Release) -> None:
        """The latest release, as a subscriber who comes late finds it."""
        with self._lock:
            if release.histogram in self._histograms:
                self._histograms[release.histogram].release = release

    def admitted(self, job: Mapping[str, Any]) -> None:
        """A job that was charged: decided by requests, the ledger and the clock, so public."""
        with self._lock:
            self._version += 1
            self._put_job({**job, "state": "open"})

    def set_budget(self, budget: Mapping[str, Any]) -> None:
        with self._lock:
            self._version += 1
            self._budget = dict(budget)

    def _take_point(self, message: messages.Decoded) -> Release | None:
        header = message.header
        histogram = self._histograms.get(str(header["histogram"]))
        if histogram is None:
            return None
        points, time_point = histogram.points, int(header["time_point"])
        if not points or time_point > points[-1]["time_point"]:
            oldest = time_point - MAX_POINTS + 1
            while points and points[0]["time_point"] < oldest:
                points.popleft()
            points.append(
                {
                    "time_point": time_point,
                    "first": max(oldest, int(header.get("first_missed", time_point))),
                    "closed": header["closed"],
                    "kind": message.kind,
                    "reason": header["reason"],
                    "threshold": _number(header["threshold"]),
                    "epsilon_left": _number(header["epsilon_left"]),
                }
            )
        if message.kind == "repeat":
            return None
        if int(header["part"]) == 1:
            histogram.parts = {}
        histogram.parts[int(header["part"])] = message
        whole = messages.join_parts(histogram.parts.values())
        if whole is None or whole.counts is None:
            return None
        histogram.parts = {}
        histogram.release = Release(whole.header, whole.counts)
        return histogram.release

    def _take_result(self, header: dict[str, Any]) -> None:
        job_id = str(header["id"] or "")
        parts = self._job_parts.setdefault(job_id, [])
        parts.append(header)
        whole = join_result(parts)
        if whole is None:
            return
        del self._job_parts[job_id]
        self._put_job(
            {
                "id": job_id,
                "kind": whole["job"],
                "state": whole["state"],
                "epsilon": _number(whole.get("epsilon")),
                "time_point": whole.get("time_point"),
                "published_at": whole["published_at"],
                "reason": whole.get("reason"),
                "summary": summary(whole.get("result")),
            }
        )

    def _put_job(self, job: dict[str, Any]) -> None:
        self._jobs.pop(job["id"], None)
        self._jobs[job["id"]] = job
        while len(self._jobs) > MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]

    # What goes out

    def status(self, since: str | None = None) -> dict[str, Any]:
        """Everything but the counts; only the version when nothing changed `since` that one."""
        with self._lock:
            if since == str(self._version):
                return {"version": self._version}
            return {
                "version": self._version,
                **self._about,
                **self._last,
                "budget": self._budget,
                "histograms": [self._describe(histogram) for histogram in self._histograms.values()],
                "jobs": list(reversed(self._jobs.values())),
            }

    @staticmethod
    def _describe(histogram: _Histogram) -> dict[str, Any]:
        return {
            "name": histogram.view.name,
            "attributes": list(histogram.view.attributes),
            "points": list(histogram.points),
            "release": None if histogram.release is None else _describe_release(histogram.release),
        }

    def drawing(self, name: str, wanted: Sequence[str]) -> dict[str, Any] | None:
        """The latest release, summed onto one or two of its attributes; None when there is none such."""
        with self._lock:
            histogram = self._histograms.get(name)
            release = None if histogram is None else histogram.release
        if release is None or not set(wanted) <= set(release.view.attributes):
            return None
        names = list(release.view.attributes)
        kept = list(dict.fromkeys(names.index(attribute) for attribute in wanted))[:2] or list(
            range(min(2, len(names)))
        )
        counts = release.to_numpy()
        sums = counts.sum(axis=tuple(axis for axis in range(counts.ndim) if axis not in kept))
        if kept != sorted(kept):
            sums = sums.T
        axes = [_axis(release.view, axis) for axis in kept]
        for place, axis in enumerate(axes):
            sums = axis.merge(sums, place)
        return {
            "release_id": release.release_id,
            "axes": [{"name": axis.name, "labels": axis.labels, "edges": axis.edges} for axis in axes],
            "counts": sums.reshape(-1).tolist(),
        }


def _describe_release(release: Release) -> dict[str, Any]:
    total = release.range_count()
    return {
        "release_id": release.release_id,
        "time_point": release.time_point,
        "closed": release.closed,
        "epsilon": float(release.epsilon),
        "kind": release.kind,
        "noise_scale": None if release.noise_scale is None else float(release.noise_scale),
        "method": release.header["method"],
        "total": total.value,
        "total_off": None if total.interval is None else total.interval[1] - total.value,
        "cells": int(release.counts.size),
    }


@dataclass
class _Axis:
    name: str
    labels: list[str]
    edges: list[float] | None
    starts: NDArray[np.int64]

    def merge(self, sums: NDArray[np.int64], place: int) -> NDArray[np.int64]:
        merged: NDArray[np.int64] = np.add.reduceat(sums, self.starts, axis=place)
        return merged


def _axis(view: View, place: int) -> _Axis:
    """An axis of the drawing, with neighbours merged until they fit."""
    axis = view.axes[place]
    attribute, _ = axis.coarsen(view.domain[axis.attribute])
    labels = attribute.labels
    starts = np.unique(np.arange(MAX_ALONG) * len(labels) // MAX_ALONG)
    ends = np.append(starts[1:], len(labels))
    edges = None
    if attribute.kind != "categorical":
        edges = [float(attribute.edges[start]) for start in starts] + [float(attribute.high)]
    merged = [
        labels[start] if end - start == 1 else f"{labels[start]} … {labels[end - 1]}"
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return _Axis(axis.attribute, merged, edges, starts)


def summary(result: Any) -> dict[str, Any] | None:
    """What of a job's result fits on the page: short values, and the centres of clusters."""
    if not isinstance(result, dict):
        return None
    short = {
        name: value
        for name, value in result.items()
        if isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= _SHORT)
    }
    shown: dict[str, Any] = {"values": short}
    if "cluster_centers" in result and "attributes" in result:
        shown["attributes"] = result["attributes"]
        shown["centres"] = result["cluster_centers"][:MAX_CENTRES]
        shown["sizes"] = result.get("cluster_sizes", [])[:MAX_CENTRES]
    return shown


def _number(text: str | None) -> float | None:
    return None if text is None else float(Fraction(text))
