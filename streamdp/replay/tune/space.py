"""Where the parameters of a strategy are searched: a grid along axes, coarse at first.

The ends of the grid are taken from the data, which is the point: this is hindsight. Nothing here may serve a daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

from streamdp.replay.candidates import ADAPTIVE, DISTANCE, noise_floor
from streamdp.replay.truth import Truth

Point = tuple[int, ...]
"""A place on the grid: an index for each axis."""

_INTERVAL_RATIO = 2**0.125
_RELEASES_RATIO = 2**0.5
_GROUPS = (1, 4, 16, 64, 256)
_USUAL_GROUPS = 16
_DECISION_RATIOS = (Fraction(1, 30), Fraction(1, 10), Fraction(1, 3), Fraction(1))
_THRESHOLD_STEPS = 9
_FLOORS = (0.0, 0.5, 1.0, 2.0)
_KP = (0.0, 0.3, 1.0)
_KI = (0.0, 0.1)


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
    axes: tuple[Axis, ...]
    build: Callable[[dict[str, Any]], dict[str, Any]]
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


def space_of(kind: str, common: Mapping[str, Any], truth: Truth) -> Space:
    """The space of a strategy made with the `common` arguments; one point where it has no parameters."""
    span = min(common["horizon"] or common["window"], truth.points)
    if kind == "fixed":
        # Of the intervals that make as many releases, and so cost as much, the shortest is the freshest.
        intervals = {ceil(span / releases) for releases in _geometric(span, _INTERVAL_RATIO)}
        return Space((Axis("interval", tuple(sorted(intervals)), stride=4),), dict)
    if kind not in DISTANCE:
        return Space((), dict)
    return _distance_space(kind, common, truth, span)


def _distance_space(kind: str, common: Mapping[str, Any], truth: Truth, span: int) -> Space:
    # With a horizon, one release or more than every second point leave nothing to decide.
    least, most = (1, span) if common["horizon"] is None else (min(2, span), max(1, span // 2))
    releases = tuple(number for number in _geometric(most, _RELEASES_RATIO) if number >= least) or (most,)
    groups = tuple(sorted({min(number, truth.cells) for number in _GROUPS} | {truth.cells}))
    axes = [
        Axis("releases", releases, stride=2),
        Axis("threshold", tuple(range(_THRESHOLD_STEPS)), stride=2),
        Axis("groups", groups, start=groups.index(min(_USUAL_GROUPS, truth.cells))),
        Axis("decision_ratio", _DECISION_RATIOS, start=1),
    ]
    if kind in ADAPTIVE:
        axes += [Axis("floor", _FLOORS, start=2), Axis("kp", _KP, stride=2), Axis("ki", _KI)]
    drifts: dict[tuple[int, int], int] = {}

    def build(values: dict[str, Any]) -> dict[str, Any]:
        wanted, number, ratio = values["releases"], values["groups"], values["decision_ratio"]
        floor = noise_floor(common["epsilon"] / (1 + ratio), wanted, common["sensitivity"], truth.cells, groups=number)
        lag = ceil(span / wanted)
        if (lag, number) not in drifts:
            drifts[lag, number] = truth.drift(lag, number)
        # From what noise alone makes of the distance to noise and the most that the data moves between two releases.
        low, high = floor / 2, 2 * floor + drifts[lag, number]
        threshold = low * (high / low) ** (values["threshold"] / (_THRESHOLD_STEPS - 1))
        parameters = {
            "releases": wanted,
            "threshold": ceil(threshold),
            "groups": number,
            "decision_ratio": ratio,
        }
        if kind in ADAPTIVE:
            lowest = min(float(ceil(values["floor"] * floor)), float(ceil(threshold)))
            parameters |= {"threshold_low": lowest, "kp": values["kp"], "ki": values["ki"]}
        return parameters

    return Space(tuple(axes), build)


def _geometric(most: int, ratio: float) -> tuple[int, ...]:
    """Whole numbers from 1 to `most`, each about `ratio` times the one before."""
    values, value = {1, most}, 1.0
    while (value := value * ratio) < most:
        values.add(round(value))
    return tuple(sorted(values))
