"""The true counts of a trace, point by point: read once, then any number of strategies step through them.

As private as the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamdp.arrays import Counts
from streamdp.config import StreamConfig
from streamdp.replay.play import Player
from streamdp.replay.queries import QUERIES, RangeQueries
from streamdp.replay.reader import TraceReader
from streamdp.strategies.statistic import L1Distance

_MAX_PAIRS = 64
_COUNTS, _MISSED = "counts.npy", "missed.npy"


@dataclass(frozen=True, eq=False)
class Truth:
    """One histogram at every point; a run of missed ones is one."""

    counts: NDArray[np.int64]
    """Points by cells, flat."""
    shape: tuple[int, ...]
    missed: NDArray[np.int64]
    """How many points nobody asked, up to this one, so that strategies skip them; 0 where they are asked."""
    queries: int = QUERIES

    @property
    def points(self) -> int:
        return len(self.counts)

    @property
    def cells(self) -> int:
        return int(self.counts.shape[1])

    @cached_property
    def range_queries(self) -> RangeQueries:
        return RangeQueries(self.shape, self.queries)

    @cached_property
    def answers(self) -> NDArray[np.int64]:
        """The true answers: points by queries."""
        return np.stack([self.range_queries.answers(counts) for counts in self.counts])

    def drift(self, lag: int, groups: int) -> int:
        """The largest distance over groups of cells between points `lag` apart, of evenly spread pairs."""
        lag = min(lag, self.points - 1)
        starts = np.unique(np.linspace(0, self.points - 1 - lag, _MAX_PAIRS).astype(int))
        distance = L1Distance(self.cells, groups)
        return max(distance.between(self.counts[start + lag], self.counts[start]) for start in starts)

    def save(self, folder: Path) -> None:
        np.save(folder / _COUNTS, self.counts)
        np.save(folder / _MISSED, self.missed)

    @classmethod
    def load(cls, folder: Path, shape: tuple[int, ...], queries: int) -> Truth:
        """As `save` left it. The counts stay on disk and are shared by all processes that load them."""
        counts = np.load(folder / _COUNTS, mmap_mode="r")
        return cls(counts, shape, np.load(folder / _MISSED), queries)


def truths(
    config: StreamConfig,
    trace: TraceReader,
    *,
    histograms: Sequence[str] | None = None,
    queries: int = QUERIES,
    max_points: int | None = None,
    on_point: Callable[[int], None] | None = None,
) -> dict[str, Truth]:
    """The truth of every histogram (or those named), over the horizon, the trace or `max_points`."""
    player = Player(config, trace)
    views = [view for view in player.pipeline.views if histograms is None or view.name in histograms]
    counts: dict[str, list[Counts]] = {view.name: [] for view in views}
    missed: list[int] = []
    for event in player.timeline.points():
        player.pipeline.expire(event.time_point)
        for view in views:
            counts[view.name].append(player.pipeline.population.counts(view.name).copy())
        missed.append(event.missed)
        if on_point is not None:
            on_point(event.time_point)
        if event.time_point == config.horizon or len(missed) == max_points:
            break
    return {
        view.name: Truth(
            np.array(counts[view.name], np.int64).reshape(len(missed), view.cells),
            view.shape,
            np.array(missed, np.int64),
            queries,
        )
        for view in views
    }
