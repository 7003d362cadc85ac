"""The best guess at the data, from all releases so far: a Kalman filter for each band of scales.

A function of what was released, so it costs nothing. The state of the filter is the published estimate itself, a
variance for each band, and what was learnt of speed and motion, so that a restart needs nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from streamdp.arrays import Counts, Floats
from streamdp.histograms.bands import Bands
from streamdp.histograms.halves import halves_of
from streamdp.histograms.post import integer_sums
from streamdp.histograms.variance import Variance
from streamdp.strategies.auto.drift import Drift
from streamdp.strategies.auto.motion import Motion
from streamdp.strategies.auto.scales import Scales

_SURPRISE = 5.0
"""A band that is further from its prediction than this many normal deviations has jumped, and is believed anew."""
_LEAST = 1e-9
_ROUNDING = 1 / 12
_LEARNING = 0.3
_NOTABLE = 0.02
"""What is foreseen is told when it has moved by more than this part of what it may be off anyway, in squares."""
_CAUTION = 1.75
"""Data that surprised lately will surprise more: its speed changes too."""


class Estimate:
    """Combines releases, each with known noise, over data whose drift is estimated from them.

    The first release is taken as it is. Later ones correct the estimate, in each band by as much as the estimate's own
    variance, grown by drift, is of that and the noise together; the coarse coefficients by the models of `Motion`. What
    is published is that, without negative counts (`Halves`); and between releases what is foreseen, when it has moved.
    """

    def __init__(self, bands: Bands, scales: Scales, everything: float, span: int) -> None:
        """`everything` is the variance of the noise of cells with all of epsilon."""
        self._bands, self._scales, self._span = bands, scales, span
        self.factors = scales.factors()
        """The variance of a release's noise in each band, relative to that of cells alone."""
        self._everything = everything * float(bands.energy @ self.factors) / float(bands.energy.sum())
        self.variances: Floats = np.zeros(bands.number)
        """Of the errors of the filter, in each band."""
        self.left: Floats = np.ones(bands.number)
        """What is left of them in what is published: no count is negative."""
        self.motion = Motion(bands)
        self.drift: Drift | None = None
        self.surprise = 1.0
        """How far releases were from the estimate, relative to what it was said to be: mean squares, lately."""
        self._until = 1
        """The age at which the next release is due."""

    def begin(self, noisy: Counts, scale: Fraction) -> Floats:
        """The coefficients of the estimate after the first release, whose cells have noise of that scale."""
        bands, noise = self._bands, self._scales.noise(scale)
        coefficients = bands.forward(noisy.astype(np.float64))
        self.variances = noise
        self.drift = Drift(bands, self._everything, self._span, float(bands.energy @ bands.mean_square(coefficients)))
        self.motion.begin(coefficients[self.motion.coarse], self.variances, self.drift.bands)
        return coefficients

    def correct(
        self, released: Counts, noisy: Counts, scale: Fraction, gap: int, *, cried: bool, at_once: bool
    ) -> Floats:
        """The same after a release `gap` points after the one with those counts, which a watch `cried` for or not.

        What is new came `at_once` when it is to be taken for a jump, that says nothing of how the data moves otherwise.
        """
        assert self.drift is not None  # there was a first release
        bands, noise, coarse = self._bands, self._scales.noise(scale), self.motion.coarse
        coefficients = bands.forward(released.astype(np.float64))
        news = bands.forward((noisy - released).astype(np.float64))
        power = float(bands.energy @ bands.mean_square(coefficients + news))
        of_coarse = coefficients[coarse] + news[coarse]
        news[coarse] = of_coarse - self.motion.foreseen(gap)
        square = bands.mean_square(news)
        speeds = self.drift.bands
        before = self.variances + gap * speeds
        foreseen = float(bands.energy @ (self.foreseen(gap) + noise))
        self.surprise += _LEARNING * (float(bands.energy @ square) / foreseen - self.surprise)
        self.drift.observe(square, self.variances + noise, gap, power)
        if at_once:
            jump = np.maximum(square - before - noise, 0)
            variances = before + jump
            self.motion.correct(of_coarse, noise, speeds, gap, jump)
        else:
            variances = self._moved(square, before, noise)
            self.motion.correct(of_coarse, noise, self.drift.moved, gap)
        if cried:
            self.drift.jumped()
        gain = variances / (variances + noise)
        self.variances = (1 - gain) * variances + _LEAST
        coefficients += bands.spread(gain) * news
        return coefficients

    def _moved(self, square: Floats, before: Floats, noise: Floats) -> Floats:
        """The variances before a release that drift lets expect, mended by what is new in it.

        That is itself an observation of the variance, the better the more coefficients the band has.
        """
        sizes, expected = self._bands.sizes, before + noise
        trust = before**2 / (before**2 + 2 * expected**2 / sizes)
        ninth = 2 / (9 * sizes)
        trust[square > expected * (1 - ninth + _SURPRISE * np.sqrt(ninth)) ** 3] = 1.0
        variances: Floats = np.maximum(before + trust * (square - expected), before / 10)
        return variances

    def publish(self, coefficients: Floats, until: int) -> Counts:
        """What subscribers should hold after a release; the next is due `until` points later."""
        self._until = until
        return self._shown(coefficients, 0)

    def has_moved(self, shown: int, age: int) -> bool:
        """Whether subscribers, who hold what was foreseen for the age `shown`, should get what is for this one."""
        energy = self._bands.energy
        return float(energy @ self.motion.moved(shown, age)) > _NOTABLE * float(energy @ self.foreseen(age))

    def forecast(self, released: Counts, age: int) -> Counts:
        """What subscribers should hold `age` points after the release in which those counts were published."""
        return self._shown(self._bands.forward(released.astype(np.float64)), age)

    def _shown(self, coefficients: Floats, age: int) -> Counts:
        """Writes to `coefficients`."""
        coefficients[self.motion.coarse] = self.motion.foreseen(age)
        cells, left = halves_of(self._bands.shape).positive(self._bands.inverse(coefficients), self.variances)
        if not age:
            self.left = left
        return integer_sums(cells)

    def variance(self, age: int) -> Variance:
        """What is known of the error of the estimate, so many points after the release."""
        assert self.drift is not None
        wider = max(1.0, _CAUTION * self.surprise)
        drift = self.drift.profile * self.drift.upper
        variances = self.foreseen(age) + self.motion.doubt(age, max(self._until, age + 1))
        return Variance(self._bands.shape, wider * variances + _ROUNDING, wider * drift)

    def held(self) -> Floats:
        """The variance in each band of what is published, while nothing has moved."""
        held: Floats = self.left * self.variances
        return held

    def fresh(self, scale: Fraction) -> Floats:
        """The same of a release whose cells have noise of that scale."""
        fresh: Floats = self.left * self._scales.noise(scale)
        return fresh

    def foreseen(self, age: int) -> Floats:
        """The variance in each band, `age` points after the release."""
        assert self.drift is not None
        variances: Floats = self.held() + age * self.drift.profile * self.drift.upper
        return variances

    def state(self) -> dict[str, Any]:
        return {
            "variances": self.variances.tolist(),
            "left": self.left.tolist(),
            "surprise": self.surprise,
            "until": self._until,
            "motion": self.motion.state(),
            "drift": None if self.drift is None else self.drift.state(),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        self.variances = np.array(state["variances"])
        self.left = np.array(state["left"])
        self.surprise = state["surprise"]
        self._until = state["until"]
        self.motion.resume(state["motion"])
        self.drift = None if state["drift"] is None else Drift.from_state(self._bands, state["drift"])
