"""What a configuration promises and what its releases will look like, from public quantities only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, pi, sinh, sqrt

from streamdp.config.histograms import HistogramSection
from streamdp.config.stream import StreamConfig
from streamdp.domain import View
from streamdp.privacy.levels import Level
from streamdp.strategies import STRATEGIES, Outline


@dataclass(frozen=True)
class Noise:
    """One release: what it costs, its noise, and the error to expect of it."""

    epsilon: Fraction
    scale: Fraction
    """Of the discrete Laplace noise in every cell."""
    cell_error: float
    """The expected absolute error of a cell: exact, `1 / sinh(1 / scale)`."""
    range_error: float
    """The expected absolute error of a range of `range_cells` cells: the normal approximation."""


@dataclass(frozen=True)
class HistogramPlan:
    """What one histogram's strategy can afford."""

    name: str
    view: View
    strategy: str
    method: str
    share: Fraction
    epsilon: Fraction
    outline: Outline
    range_cells: int
    best: Noise
    """The release with the most epsilon; the same as `worst` where all get the same."""
    worst: Noise


@dataclass(frozen=True)
class StreamPlan:
    """The whole stream."""

    config: StreamConfig
    histograms: tuple[HistogramPlan, ...]
    epsilon_left: Fraction
    """What jobs may spend of everybody alike: over the horizon, or in every window."""

    @property
    def span(self) -> int:
        """Time points that share one epsilon."""
        return self.config.horizon or self.config.window or 0

    def left_of(self, level: Level) -> Fraction:
        """What jobs may spend of a user of this level: the histograms take the same of everybody."""
        return level.epsilon - sum((histogram.epsilon for histogram in self.histograms), Fraction(0))

    @property
    def guaranteed(self) -> bool:
        return self.config.time.clock == "wall"

    @property
    def message_epsilon(self) -> Fraction | None:
        """At what a single message is protected under w-event, when it expires."""
        window, life = self.config.window, self.config.time.expire_after
        return None if window is None or life is None else ceil(Fraction(life, window)) * self.config.epsilon


def plan(config: StreamConfig) -> StreamPlan:
    histograms = tuple(
        _histogram_plan(config, histogram, view)
        for histogram, view in zip(config.histogram, config.build_views(), strict=True)
    )
    least = config.levels[0].epsilon if config.levels else config.epsilon
    return StreamPlan(config, histograms, least - config.epsilon * (1 - config.share_left))


def _histogram_plan(config: StreamConfig, histogram: HistogramSection, view: View) -> HistogramPlan:
    epsilon = config.epsilon * config.share(histogram)
    outline = STRATEGIES[histogram.strategy].outline(histogram.parameters, config.conditions(histogram, view))
    range_cells = (view.cells + 1) // 2

    def noise(spent: Fraction) -> Noise:
        scale = config.records_per_user / (spent * outline.cell_share)
        return Noise(spent, scale, expected_error(scale), expected_sum_error(scale, range_cells))

    return HistogramPlan(
        name=histogram.name,
        view=view,
        strategy=histogram.strategy,
        method=histogram.method,
        share=config.share(histogram),
        epsilon=epsilon,
        outline=outline,
        range_cells=range_cells,
        best=noise(outline.largest),
        worst=noise(outline.smallest),
    )


def expected_error(scale: Fraction) -> float:
    """E|X| of discrete Laplace noise."""
    inverse = float(1 / scale)
    return 1 / sinh(inverse) if inverse < 700 else 0.0


def expected_sum_error(scale: Fraction, cells: int) -> float:
    """E|X| of the sum over `cells` independent ones, as if it were normal; exact for one."""
    if cells == 1:
        return expected_error(scale)
    ratio = exp(-float(1 / scale))
    return sqrt(2 / pi * cells * 2 * ratio) / (1 - ratio)
