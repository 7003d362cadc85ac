"""Release at every time point."""

from __future__ import annotations

from typing import Unpack

from streamdp.arrays import Counts
from streamdp.strategies.base import Common, StreamStrategy, Verdict


class Baseline(StreamStrategy):
    """Every point is released with an equal share: `epsilon / N`, or `epsilon / w` under w-event privacy.

    Guarantee: sequential composition over the points one user can be in. Sensitivity `m` each. Seed 001, section 3.4.
    """

    kind = "baseline"

    def __init__(self, **common: Unpack[Common]) -> None:
        super().__init__({}, **common)
        self.share = self.epsilon / self.span

    def _decide(self, counts: Counts) -> Verdict:
        return Verdict("scheduled", self.share)
