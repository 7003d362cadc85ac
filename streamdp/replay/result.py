"""What a replay found out. Holds unreleased truth: as private as the trace.

`ReplayResult.to_json()` is what `streamdp replay --json` prints and what a report draws. Lists in a `HistogramResult`
have one entry for each closed time point, in order, beside `ReplayResult.time_points`. A run of missed points is one
entry, with the last of them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 1
PRIVATE = "holds unreleased truth (exact counts, distances, errors): as private as the trace itself"
REPRODUCIBLE = "the noise comes from a seed: reproducible, and NOT private"
NOT_REPRODUCIBLE = "the noise comes from the operating system: private, and different every time"
_DIGITS = 9


@dataclass
class HistogramResult:
    """One histogram over the whole replay."""

    name: str
    strategy: str
    guarantee: str
    view: dict[str, Any]
    """`View.from_description` makes the view of it."""
    shape: tuple[int, ...]
    axis_labels: tuple[tuple[str, ...], ...]
    epsilon: str
    """The histogram's share, exact."""
    queries: int
    kinds: list[str] = field(default_factory=list)
    """`release` or `repeat`."""
    reasons: list[str] = field(default_factory=list)
    thresholds: list[float | None] = field(default_factory=list)
    """The public threshold, where one was asked."""
    distances: list[int | None] = field(default_factory=list)
    """The exact distance to the last release, as the strategy measures it, before this point's own release."""
    absolute: list[float] = field(default_factory=list)
    """The mean absolute error of the random range counts at the point."""
    relative: list[float] = field(default_factory=list)
    """The mean relative error."""
    l1: list[int] = field(default_factory=list)
    """The L1 distance between what subscribers hold and the truth, after the point."""
    epsilon_spent: list[float] = field(default_factory=list)
    """Over the horizon so far, or in the window that ends with the point."""
    epsilon_left: list[float] = field(default_factory=list)
    total_spent: str = "0"
    """Over all points, exact. Under w-event this may pass epsilon: only windows are bounded."""
    true_counts: list[int] = field(default_factory=list)
    """The exact histogram at the last point."""
    released_counts: list[int] = field(default_factory=list)
    """What subscribers hold at the last point; empty when nothing was ever released."""

    @property
    def releases(self) -> int:
        return self.kinds.count("release")

    def summary(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "releases": self.releases,
            "forecasts": self.kinds.count("forecast"),
            "mean_absolute_error": _mean(self.absolute),
            "mean_relative_error": _mean(self.relative),
            "mean_l1_error": _mean(self.l1),
            "epsilon": self.epsilon,
            "max_epsilon_spent": _rounded(max(self.epsilon_spent, default=0.0)),
            "total_spent": self.total_spent,
        }


@dataclass
class ReplayResult:
    """One replay of one trace under one configuration."""

    stream: str
    trace: str
    guarantee: str
    """What a daemon with this configuration promises; `none` when the records close points."""
    clock: str
    """`marks` or `event`: what closed points."""
    seed: int | None
    histograms: list[HistogramResult]
    time_points: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    """Records in the dataset when the point closed."""
    messages: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    """Dead letters, by reason."""
    dropped: int = 0
    bad_lines: int = 0
    """Broken lines that were skipped."""
    ended: bool = False
    """Whether the finite horizon was over; the rest of the trace was then not played."""
    seconds: float = 0.0

    @property
    def noise(self) -> str:
        return NOT_REPRODUCIBLE if self.seed is None else REPRODUCIBLE

    def summary(self) -> dict[str, Any]:
        """The figures that tell how good the releases are; with a seed, the same on every run."""
        return {
            "version": VERSION,
            "stream": self.stream,
            "seed": self.seed,
            "clock": self.clock,
            "time_points": len(self.time_points),
            "messages": self.messages,
            "rejected": self.rejected,
            "dropped": self.dropped,
            "bad_lines": self.bad_lines,
            "records_at_end": self.records[-1] if self.records else 0,
            "ended": self.ended,
            "histograms": {histogram.name: histogram.summary() for histogram in self.histograms},
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        return {
            "version": VERSION,
            "private": PRIVATE,
            "noise": self.noise,
            "summary": self.summary(),
            **asdict(self),
        }


def l1_distance(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    return int(np.abs(one - other).sum())


def _mean(values: list[float] | list[int]) -> float:
    return _rounded(math.fsum(values) / len(values)) if values else 0.0


def _rounded(value: float) -> float:
    """To so many digits that machines agree on them."""
    return float(f"{value:.{_DIGITS}g}")
