"""The printed forms of DSFT, DSAT and DSAT-w, for comparison only. They do NOT give the privacy their paper claims.

Nothing here may run on data that anybody wants protected: float noise, noise scales that depend on the private number
of users, a clamped noisy threshold, no cut-off. The daemon refuses them and every object says `guarantee == "none"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError
from streamdp.histograms import Noisy, Statement
from streamdp.privacy.noise import NoiseSource, SystemSource
from streamdp.strategies.base import Common, StreamStrategy, Verdict
from streamdp.strategies.controller import Controller
from streamdp.strategies.description import Conditions, Outline
from streamdp.strategies.dsat import AdaptiveParameters
from streamdp.strategies.sampling import DistanceParameters
from streamdp.strategies.statistic import L1Distance


def leaky_float_laplace(scale: float, size: int, source: NoiseSource | None = None) -> npt.NDArray[np.float64]:
    """Laplace noise by inverting the distribution function in floats, as the papers' experiments do.

    No guarantee: the low bits of a float sum reveal the count it was added to (Mironov 2012).
    """
    words = np.frombuffer((source or SystemSource()).random_bytes(8 * size), dtype="<u8")
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54 - 0.5
    return -scale * np.sign(uniform) * np.log1p(-2.0 * np.abs(uniform))


class _PrintedLaplace:
    """LPA with float noise. Not registered: it cannot be chosen for a release that promises anything."""

    name = "printed"
    statement = Statement(lattice="none", sensitivity="1", budget="all of epsilon", structure="none")

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        noise = leaky_float_laplace(float(sensitivity / epsilon), counts.size, source)
        return Noisy(np.rint(counts + noise).astype(np.int64), sensitivity / epsilon)


class Published(StreamStrategy):
    """Li et al. (2015), Algorithms 1 (`dsft`), 2 (`dsat`) and 3 (`dsat_w`), line by line. No guarantee.

    Distances are of frequencies with sensitivity `2 / (n - 1)`, `e1 = k * epsilon`, threshold and distance both get
    `Lap(2C * sensitivity / e1)`, and the costs are what the paper claims, not what is spent. Two readings:
    Algorithm 3 publishes raw data at a repeat, and here the last released counts; and without an end it has no final
    release. The parameters are those of the exact forms, in counts, and are divided by `expected_users`, which is
    therefore required.
    """

    form: ClassVar[str]
    parameters_type = DistanceParameters

    def __init__(self, parameters: DistanceParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        if parameters.expected_users is None:
            raise ConfigurationError("the published calibration is about frequencies and needs expected_users")
        if self.sensitivity != 1 or self._method.name != "laplace":
            raise ConfigurationError("the published calibration knows one record a user and Laplace noise only")
        ratio = parameters.decision_ratio
        if ratio >= 1:
            raise ConfigurationError("the published calibration spends k * epsilon on decisions; k is below 1")
        self.releases = parameters.releases
        self.decisions = ratio * self.epsilon
        self.share = (self.epsilon - self.decisions) / self.releases
        self.burn_in = parameters.burn_in if isinstance(parameters, AdaptiveParameters) else 0
        self._method = _PrintedLaplace()
        self._distance = L1Distance(self.cells, parameters.groups)
        self._controller = self._printed_controller(parameters, parameters.expected_users)
        self._points: list[int] = []

    def _printed_controller(self, parameters: DistanceParameters, users: int) -> Controller:
        target = Fraction(self.releases, self.span)
        if not isinstance(parameters, AdaptiveParameters):
            return Controller("published", threshold=parameters.start / users, target=target, high=2.0)
        if parameters.controller != "published":
            raise ConfigurationError("the published calibration has the published controller")
        scale, high = parameters.scale, parameters.threshold_high
        return Controller(
            "published",
            threshold=parameters.start / users,
            target=target,
            low=parameters.threshold_low / users,
            high=2.0 if high is None else high / users,
            scale=None if scale is None else scale / users,
            kp=parameters.kp,
            ki=parameters.ki,
            kd=parameters.kd,
            integral_window=parameters.integral_window,
            set_point=parameters.set_point,
        )

    @classmethod
    def outline(cls, parameters: DistanceParameters, conditions: Conditions) -> Outline:
        """As claimed."""
        decisions = parameters.decision_ratio * conditions.epsilon
        each = (conditions.epsilon - decisions) / parameters.releases
        return Outline(parameters.releases, each, each, decisions=decisions)

    @property
    def guarantee(self) -> str:
        return "none"

    def _decide(self, counts: Counts) -> Verdict:
        users = max(int(counts.sum()), 2)
        noise = float(2 * self.releases / self.decisions) * 2 / (users - 1)
        if self.last is None:
            self._points.append(self.time_point)
            # The noise goes into what the controller then moves and clamps: the printed flaw.
            self._controller.threshold += float(leaky_float_laplace(noise, 1, self._source)[0])
            return Verdict("first", self.share)
        if self._is_cut_off():
            return Verdict("cut_off")
        if self.time_point <= self.burn_in:
            return Verdict("burn_in")
        frequencies = counts / users - self.last / max(int(self.last.sum()), 1)
        distance = float(np.abs(self._distance.grouped(frequencies)).sum())
        noisy = distance + float(leaky_float_laplace(noise, 1, self._source)[0])
        if self.form != "dsft":
            self._controller.advance(self.time_point, self._releases_counted() / self.time_point)
        above = noisy >= self._controller.threshold
        if above:
            self._points.append(self.time_point)
            self._controller.released(self.time_point)
        if self.time_point == self.horizon and len(self._points) < self.releases:
            return Verdict("final", (self.releases - len(self._points)) * self.share)
        return Verdict("above", self.share) if above else Verdict("below")

    def _is_cut_off(self) -> bool:
        """Algorithm 2 has no `continue` here, so `dsat`, and `dsat_w` up to point w, go on releasing."""
        if self.form == "dsft":
            return len(self._points) >= self.releases
        return self.form == "dsat_w" and self.time_point > self.span and self._releases_counted() >= self.releases

    def _releases_counted(self) -> int:
        if self.form == "dsat_w":
            return sum(point > self.time_point - self.span for point in self._points)
        return len(self._points)

    def _progress(self) -> dict[str, Any]:
        return {"points": self._points, "controller": self._controller.state()}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._points = list(state["points"])
        self._controller.resume(state["controller"])


class PublishedDsft(Published):
    kind, form, guarantees = "published dsft", "dsft", ("horizon",)


class PublishedDsat(Published):
    kind, form, guarantees = "published dsat", "dsat", ("horizon",)


class PublishedDsatW(Published):
    kind, form, guarantees = "published dsat_w", "dsat_w", ("window",)


PUBLISHED = {strategy.form: strategy for strategy in (PublishedDsft, PublishedDsat, PublishedDsatW)}
