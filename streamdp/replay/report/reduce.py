"""Fewer points and fewer cells than were played, so that a page of any replay stays small enough to open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import TypeVar

import numpy as np

from streamdp.replay.result import HistogramResult, ReplayResult

POINTS = 6_000
CELLS = 40_000
"""How many the page holds at most, over all histograms."""
_LEAST_POINTS, _LEAST_CELLS = 50, 256
_LONGEST_AXIS = 256

Value = TypeVar("Value")


class Series:
    """A histogram's points in stretches of `size` neighbouring ones; a stretch of one is the point itself.

    Of a stretch, errors are means, distances and spent budget the largest, thresholds the last.
    """

    def __init__(self, result: ReplayResult, histogram: HistogramResult, most: int) -> None:
        points = len(result.time_points)
        self.size = max(1, ceil(points / most))
        self._begins = range(0, points, self.size)
        self.time_points = self._each(result.time_points, lambda part: part[0])
        self.closed = self._each(result.closed, lambda part: part[-1])
        self.kinds = self._each(histogram.kinds, _kind)
        self.reasons = [
            _reason(histogram, begin, begin + self.size, kind)
            for begin, kind in zip(self._begins, self.kinds, strict=True)
        ]
        self.absolute = self._each(histogram.absolute, _mean)
        self.relative = self._each(histogram.relative, _mean)
        self.l1 = self._each([float(distance) for distance in histogram.l1], _mean)
        self.distances = self._each(histogram.distances, _largest)
        self.thresholds = self._each(histogram.thresholds, lambda part: part[-1])
        self.spent = self._each(histogram.epsilon_spent, max)

    def __len__(self) -> int:
        return len(self._begins)

    def _each(self, values: Sequence[Value], reduce: Callable[[Sequence[Value]], Value]) -> list[Value]:
        return [reduce(values[begin : begin + self.size]) for begin in self._begins]


class Cells:
    """The true and the released counts at the last point, neighbouring cells summed until there are few enough."""

    def __init__(self, histogram: HistogramResult, most: int) -> None:
        shape = list(histogram.shape)
        true = np.array(histogram.true_counts, np.int64).reshape(shape)
        # Nothing released and nothing there look alike without this.
        self.has_release = bool(histogram.released_counts)
        released = np.array(histogram.released_counts or [0] * true.size, np.int64).reshape(shape)
        labels = [list(axis) for axis in histogram.axis_labels]
        while prod(shape) > most or max(shape) > _LONGEST_AXIS:
            axis = shape.index(max(shape))
            starts = np.arange(0, shape[axis], 2)
            true, released = (np.add.reduceat(counts, starts, axis=axis) for counts in (true, released))
            labels[axis] = [_span(labels[axis][start : start + 2]) for start in starts.tolist()]
            shape[axis] = len(starts)
        self.shape, self.labels = shape, labels
        self.true: list[int] = true.reshape(-1).tolist()
        self.released: list[int] = released.reshape(-1).tolist() if self.has_release else []
        self.summed = tuple(shape) != tuple(histogram.shape)


def points_each(histograms: int) -> int:
    return max(_LEAST_POINTS, POINTS // max(1, histograms))


def cells_each(histograms: int) -> int:
    return max(_LEAST_CELLS, CELLS // max(1, histograms))


def _kind(kinds: Sequence[str]) -> str:
    return next(kind for kind in ("release", "forecast", "repeat") if kind in kinds)


def _reason(histogram: HistogramResult, begin: int, end: int, kind: str) -> str:
    here = slice(begin, end)
    chosen = zip(histogram.kinds[here], histogram.reasons[here], strict=True)
    return next(reason for this, reason in chosen if this == kind)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _span(labels: Sequence[str]) -> str:
    first, last = labels[0].split(" … ")[0], labels[-1].split(" … ")[-1]
    return first if first == last else f"{first} … {last}"
