"""The best parameters of one strategy, in hindsight: over parameters, never over noise.

Points of the grid are tried on a few draws of noise; the most promising ones then on all choosing draws, and the
best of those is reported on draws that had no part in the choice. Chosen and reported on the same draws, the luckiest
noise would win.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamdp.replay.compare import mean_of
from streamdp.replay.tune.space import Point, Space
from streamdp.replay.tune.trials import Outcome, Trial, Trials

SCOUTS = 3
"""Draws on which a point of the grid is tried, unless the first puts it this far behind the best:"""
_FAR_BEHIND = 1.5
FINALISTS = 5
_MOST_ROUNDS = 6
_USUAL_ROUNDS = 3
REPORTING = 1 << 20
"""The first draw to report on: beyond all choosing ones."""

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Effort:
    choosing: int = 8
    reporting: int = 10
    seed: int | None = None


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
        self._scouts = min(SCOUTS, effort.choosing)

    def best(self, space: Space, also: Parameters | None = None) -> Found:
        """The best of the space, and of `also`: so the winner is never behind that on the choosing draws."""
        scouted: dict[Point, float] = {}
        self._expected = self._scouts * (len(space.coarse()) + _USUAL_ROUNDS * 2 * len(space.axes))
        self._expected += FINALISTS * self._effort.choosing + 2 * self._effort.reporting
        if space.axes:
            self._scout(space, space.coarse(), scouted)
            self._refine(space, min(scouted, key=scouted.__getitem__), scouted)
        finalists = [space.parameters(point) for point in sorted(scouted, key=scouted.__getitem__)[:FINALISTS]]
        if also is not None or not finalists:
            finalists.append(dict(also or {}))
        # With one finalist there is nothing to choose.
        choosing = self.outcomes(finalists, range(self._effort.choosing if finalists[1:] else 0))
        place = min(range(len(finalists)), key=lambda one: error_of(choosing[one]))
        (reporting,) = self.report([finalists[place]])
        return Found(finalists[place], choosing[place], reporting, max(1, len(scouted)))

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

    def _scout(self, space: Space, points: Sequence[Point], scouted: dict[Point, float]) -> None:
        """Tries what was not tried yet. Who is far behind after one draw gets no other: most of a coarse grid is."""
        new = [point for point in dict.fromkeys(points) if point not in scouted]
        first = self.outcomes([space.parameters(point) for point in new], range(1))
        scouted.update((point, error_of(outcomes)) for point, outcomes in zip(new, first, strict=True))
        bound = _FAR_BEHIND * min(scouted.values(), default=0.0)
        near = [(point, outcomes) for point, outcomes in zip(new, first, strict=True) if scouted[point] <= bound]
        more = self.outcomes([space.parameters(point) for point, _ in near], range(1, self._scouts))
        for (point, outcomes), others in zip(near, more, strict=True):
            scouted[point] = error_of([*outcomes, *others])

    def _refine(self, space: Space, best: Point, scouted: dict[Point, float]) -> None:
        """Downhill from `best`, with steps that halve where no neighbour is better."""
        step = max(1, space.stride // 2)
        for _ in range(_MOST_ROUNDS):
            around = space.neighbours(best, step)
            self._scout(space, around, scouted)
            nearest = min(around, key=scouted.__getitem__, default=best)
            if scouted[nearest] < scouted[best]:
                best = nearest
            elif step == 1:
                return
            else:
                step //= 2


def error_of(outcomes: Sequence[Outcome]) -> float:
    return mean_of([outcome.absolute for outcome in outcomes])
