"""Release at every time point."""

from __future__ import annotations

from typing import Any, Unpack

from streamdp.arrays import Counts
from streamdp.strategies.base import Common, StreamStrategy, Verdict
from streamdp.strategies.description import Conditions, NoParameters, Outline


class Baseline(StreamStrategy):
    """Every point is released with an equal share: `epsilon / N`, or `epsilon / w` under w-event privacy.

    Guarantee: sequential composition over the points one user can be in. Sensitivity `m` each. Li, Xiong, Jiang
    (CIKM 2015), section 3.4.
    """

    kind = "baseline"
    summary = "at every point"

    def __init__(self, parameters: NoParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        self.share = self.epsilon / self.span

    @classmethod
    def outline(cls, parameters: Any, conditions: Conditions) -> Outline:
        share = conditions.epsilon / conditions.span
        return Outline(conditions.span, share, share)

    def _decide(self, counts: Counts) -> Verdict:
        return Verdict("scheduled", self.share)
