"""The best parameters of one strategy, in hindsight: over parameters, never over noise.

Points of the grid are tried on a few draws of noise, and one leads only when it does on all choosing draws: of many
points tried on few, the best has had luck. The winner is reported on draws that had no part in the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamdp.replay.compare import mean_of
from streamdp.replay.tune.trials import Outcome, Trial, Trials
from streamdp.strategies.tuning import Point, Space

SCOUTS = 3
"""Draws on which a point of the grid is tried, unless the first puts it this far behind the best:"""
_FAR_BEHIND = 1.5
FINALISTS = 5
"""How many of the coarse grid's best are tried on all choosing draws; the first of these are followed downhill:"""
_STARTS = 2
_HARDLY_WORSE = 1.1
_ROUNDS_ON_ONE_AXIS = 10
REPORTING = 1 << 20
"""The first draw to report on: beyond all choosing ones."""

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Effort:
    choosing: int = 8
    reporting: int = 10
    seed: int | None = None
    rounds: int = 6
    """How many steps downhill, at most."""


@dataclass(frozen=True)
class Found:
    """The winner of a search."""

    parameters: Parameters
    choosing: list[Outcome]
    reporting: list[Outcome]
    tried: int
    """Different parameters that were tried."""


class Search:
    """`arguments` are those of `make_strategy` but for the parameters."""

    def __init__(
        self,
        trials: Trials,
        arguments: Mapping[str, Any],
        effort: Effort,
        on_part: Callable[[float], None] | None = None,
    ) -> None:
        self._trials, self._arguments, self._effort, self._on_part = trials, arguments, effort, on_part
        self._done, self._expected = 0, 1

    def best(self, space: Space, also: Parameters | None = None) -> Found:
        """The best of the space, and of `also`: so the winner is never behind that on the choosing draws."""
        grid = _Grid(self, space, self._effort)
        self._expected = len(space.coarse()) + _STARTS * self._effort.rounds * SCOUTS * len(space.axes)
        self._expected += 2 * FINALISTS * self._effort.choosing + 2 * self._effort.reporting
        if not space.axes:
            (reporting,) = self.report([also or {}])
            return Found(also or {}, [], reporting, 1)
        parameters, choosing = grid.winner()
        if also is not None:
            (of_also,) = self.outcomes([also], range(self._effort.choosing))
            if error_of(of_also) <= error_of(choosing):
                parameters, choosing = dict(also), of_also
        (reporting,) = self.report([parameters])
        return Found(parameters, choosing, reporting, len(grid.tried))

    def report(self, candidates: Sequence[Parameters]) -> list[list[Outcome]]:
        """Every candidate on the draws that no choice has seen."""
        return self.outcomes(candidates, range(REPORTING, REPORTING + self._effort.reporting))

    def outcomes(self, candidates: Sequence[Parameters], draws: Sequence[int]) -> list[list[Outcome]]:
        """Of every candidate on every draw."""
        found = self._trials.run(
            (
                Trial({**self._arguments, "parameters": parameters}, self._effort.seed, draw)
                for parameters in candidates
                for draw in draws
            ),
            self._count,
        )
        size = len(draws)
        return [found[place * size : (place + 1) * size] for place in range(len(candidates))]

    def _count(self) -> None:
        self._done += 1
        if self._on_part is not None:
            self._on_part(min(1.0, self._done / self._expected))


class _Grid:
    """What is known of the points of a space."""

    def __init__(self, search: Search, space: Space, effort: Effort) -> None:
        self._search, self._space = search, space
        # One axis is cheap to follow to its end.
        self._rounds = effort.rounds if len(space.axes) > 1 else max(effort.rounds, _ROUNDS_ON_ONE_AXIS)
        self._scouts, self._choosing = min(SCOUTS, effort.choosing), effort.choosing
        self.tried: dict[Point, list[Outcome]] = {}

    def winner(self) -> tuple[Parameters, list[Outcome]]:
        """The best point found from the coarse grid's best ones, each followed downhill."""
        self._scout(self._space.coarse())
        promising = sorted(self.tried, key=self._error)[:FINALISTS]
        self._try(promising, self._choosing)
        starts = sorted(promising, key=self._error)[:_STARTS]
        best = min((self._downhill(start) for start in starts), key=self._error)
        return self._space.parameters(best), self.tried[best]

    def _downhill(self, best: Point) -> Point:
        """Steps to the best neighbour, or along all axes at once that lead down, with steps that halve where none does.

        Noise hides slopes: where no neighbour is better the way goes on over one that is hardly worse, and never back.
        """
        here, step, left = best, max(1, self._space.stride // 2), set[Point]()
        for _ in range(self._rounds):
            left.add(here)
            around = self._space.neighbours(here, step)
            self._scout(around, best)
            together = _together(
                here, sorted((one for one in around if self._error(one) < self._error(here)), key=self._error)
            )
            self._scout([together], best)
            onward = min((one for one in [*around, together] if one not in left), key=self._error, default=None)
            if onward is None:
                break
            self._try([onward], self._choosing)
            if self._error(onward) < self._error(best):
                here = best = onward
            elif step > 1:
                here, step = best, step // 2
            elif self._error(onward) <= _HARDLY_WORSE * self._error(best):
                here = onward
            else:
                break
        return best

    def _error(self, point: Point) -> float:
        return error_of(self.tried[point])

    def _scout(self, points: Sequence[Point], best: Point | None = None) -> None:
        """Tries what was not tried yet. Who is far behind after one draw gets no other: most of a coarse grid is."""
        new = [point for point in dict.fromkeys(points) if point not in self.tried]
        self._try(new, 1)
        bound = _FAR_BEHIND * (min(map(self._error, self.tried)) if best is None else self._error(best))
        self._try([point for point in new if self._error(point) <= bound], self._scouts)

    def _try(self, points: Sequence[Point], draws: int) -> None:
        """Goes on with each until it has had so many draws."""
        for done in sorted({len(self.tried.get(point, ())) for point in points}):
            alike = [point for point in points if len(self.tried.get(point, ())) == done]
            found = self._search.outcomes([self._space.parameters(point) for point in alike], range(done, draws))
            for point, outcomes in zip(alike, found, strict=True):
                self.tried.setdefault(point, []).extend(outcomes)


def _together(origin: Point, better: Sequence[Point]) -> Point:
    """All the steps from `origin` that made it better, the best one along each axis."""
    moved: dict[int, int] = {}
    for point in better:
        for place, (here, there) in enumerate(zip(origin, point, strict=True)):
            if here != there:
                moved.setdefault(place, there)
    return tuple(moved.get(place, here) for place, here in enumerate(origin))


def error_of(outcomes: Sequence[Outcome]) -> float:
    return mean_of([outcome.absolute for outcome in outcomes])
