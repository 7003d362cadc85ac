"""Release at fixed intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from pydantic import Field

from streamdp.arrays import Counts
from streamdp.fields import Settings
from streamdp.strategies.base import Common, StreamStrategy, Verdict
from streamdp.strategies.description import Conditions, Outline
from streamdp.strategies.tuning import Axis, Hindsight, Space, geometric

_INTERVAL_RATIO = 2**0.125


class FixedParameters(Settings):
    """Parameters of `fixed`."""

    interval: int = Field(ge=1)
    """Release every so many points."""


class Fixed(StreamStrategy):
    """Release the first point and then whenever `interval` points have passed since the last release.

    Guarantee: releases lie at least `interval` points apart, so `N` points hold at most `ceil(N / interval)` of them
    and any window at most `ceil(w / interval)`; each costs `epsilon` over that number. Sensitivity `m` each. When
    points are skipped the schedule moves on with the next release, which keeps that distance. Li et al. (CIKM
    2015), section 3.4.
    """

    kind = "fixed"
    summary = "every `interval` points"
    parameters_type = FixedParameters

    def __init__(self, parameters: FixedParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        self.interval = self.conditions.at_most_span("interval", parameters.interval)
        self.share = self.outline(parameters, self.conditions).largest
        self._last_release: int | None = None

    @classmethod
    def outline(cls, parameters: FixedParameters, conditions: Conditions) -> Outline:
        releases = -(-conditions.span // parameters.interval)
        return Outline(releases, conditions.epsilon / releases, conditions.epsilon / releases)

    @classmethod
    def suggested(cls, conditions: Conditions, releases: int) -> dict[str, Any]:
        return {"interval": -(-conditions.span // releases)}

    @classmethod
    def tuning_space(cls, conditions: Conditions, hindsight: Hindsight) -> Space:
        span = min(conditions.span, hindsight.points)
        # Of the intervals that make as many releases, and so cost as much, the shortest is the freshest.
        intervals = {-(-span // releases) for releases in geometric(span, _INTERVAL_RATIO)}
        return Space((Axis("interval", tuple(sorted(intervals)), stride=4),))

    def _decide(self, counts: Counts) -> Verdict:
        if self._last_release is not None and self.time_point < self._last_release + self.interval:
            return Verdict("waiting")
        self._last_release = self.time_point
        return Verdict("scheduled", self.share)

    def _progress(self) -> dict[str, Any]:
        return {"last_release": self._last_release}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._last_release = state["last_release"]
