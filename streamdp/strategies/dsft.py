"""Distance-based sampling with a fixed threshold."""

from __future__ import annotations

from math import ceil
from typing import Unpack

from streamdp.strategies.base import Common
from streamdp.strategies.sampling import DistanceParameters, DistanceSampling, FiniteHorizonPlan, SampledStrategy
from streamdp.strategies.statistic import L1Distance


class Dsft(SampledStrategy):
    """Release when the histogram has moved far enough from the last released one.

    Guarantee: `epsilon` over the horizon: `e1` for all decisions, `e2` for at most `releases` releases
    (`FiniteHorizonPlan`). Sensitivity `m` of the distance and of the counts. Li et al. (2015), Algorithm 1, with the
    sparse vector technique of Lyu et al. (2017) in place of the printed one.
    """

    kind = "dsft"
    summary = "when the counts have moved past a fixed threshold"
    guarantees = ("horizon",)
    parameters_type = DistanceParameters
    adaptive = False

    def __init__(self, parameters: DistanceParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        self.plan = FiniteHorizonPlan(parameters, self.conditions)
        self._sampling = DistanceSampling(self.plan, L1Distance(self.cells, parameters.groups), ceil(parameters.start))
