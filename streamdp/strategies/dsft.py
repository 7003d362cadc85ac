"""Distance-based sampling with a fixed threshold."""

from __future__ import annotations

from math import ceil
from typing import Unpack

from streamdp.privacy.exact import as_fraction
from streamdp.strategies.base import Common, Rational, at_least, horizon_of
from streamdp.strategies.controller import starting_threshold
from streamdp.strategies.sampling import DistanceSampling, FiniteHorizonPlan, SampledStrategy
from streamdp.strategies.statistic import Groups, L1Distance


class Dsft(SampledStrategy):
    """Release when the histogram has moved far enough from the last released one.

    Guarantee: `epsilon` over the horizon: `e1` for all decisions, `e2` for at most `releases` releases
    (`FiniteHorizonPlan`). Sensitivity `m` of the distance and of the counts. DSFT of seed 001, Algorithm 1, with the
    sparse vector technique of seed 004, Algorithm 23, in place of the printed one.

    `threshold` is in counts, or `threshold_fraction` of a public `expected_users`; `decision_ratio` is `k` in
    `e1 : e2 = k : 1`; `groups` sums the distance over groups of cells (`L1Distance`).
    """

    kind = "dsft"

    def __init__(
        self,
        *,
        releases: int,
        threshold: Rational | None = None,
        threshold_fraction: Rational | None = None,
        expected_users: int | None = None,
        decision_ratio: Rational = "1/10",
        groups: Groups = None,
        **common: Unpack[Common],
    ) -> None:
        fixed = ceil(starting_threshold(threshold, threshold_fraction, expected_users))
        distance = L1Distance(common["cells"], groups)
        ratio = as_fraction(decision_ratio)
        parameters = {"releases": releases, "threshold": fixed, "decision_ratio": ratio, "groups": distance.groups}
        super().__init__(parameters, **common)
        self.plan = FiniteHorizonPlan(
            epsilon=self.epsilon,
            decision_ratio=ratio,
            releases=at_least(1, "releases", releases),
            horizon=horizon_of(self.kind, common),
            sensitivity=self.sensitivity,
        )
        self._sampling = DistanceSampling(self.plan, distance, fixed)
