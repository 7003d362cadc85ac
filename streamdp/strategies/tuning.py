"""Where the parameters of a strategy are searched: a grid along axes, coarse at first.

The ends of the grid are taken from the data, which is the point: this is hindsight. Nothing here may serve a daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

Point = tuple[int, ...]
"""A place on the grid: an index for each axis."""


class Hindsight(Protocol):
    """What a search knows of the data: everything."""

    @property
    def points(self) -> int: ...

    @property
    def cells(self) -> int: ...

    def drift(self, lag: int, groups: int) -> int:
        """The most that the counts of groups moved within `lag` points."""


@dataclass(frozen=True)
class Axis:
    """One parameter. The coarse grid takes every `stride`-th value and both ends; without a stride, `start` alone."""

    name: str
    values: tuple[Any, ...]
    stride: int = 0
    start: int = 0

    def coarse(self) -> list[int]:
        if not self.stride:
            return [self.start]
        last = len(self.values) - 1
        return sorted({*range(0, last, self.stride), last})


@dataclass(frozen=True)
class Space:
    """A grid; of one point where there are no axes."""

    axes: tuple[Axis, ...] = ()
    build: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """From a value for each axis to the strategy's parameters."""

    def parameters(self, point: Point) -> dict[str, Any]:
        return self.build({axis.name: axis.values[place] for axis, place in zip(self.axes, point, strict=True)})

    def coarse(self) -> list[Point]:
        return list(product(*(axis.coarse() for axis in self.axes)))

    @property
    def stride(self) -> int:
        return max((axis.stride for axis in self.axes), default=0)

    def neighbours(self, point: Point, step: int) -> list[Point]:
        """One step away along one axis; a step is never longer than half of the axis's stride."""
        found = []
        for place, axis in enumerate(self.axes):
            length = max(1, min(step, axis.stride // 2))
            for index in (point[place] - length, point[place] + length):
                if 0 <= index < len(axis.values):
                    found.append((*point[:place], index, *point[place + 1 :]))
        return found


def geometric(most: int, ratio: float) -> tuple[int, ...]:
    """Whole numbers from 1 to `most`, each about `ratio` times the one before."""
    values, value = {1, most}, 1.0
    while (value := value * ratio) < most:
        values.add(round(value))
    return tuple(sorted(values))
