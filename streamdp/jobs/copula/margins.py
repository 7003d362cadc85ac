"""One-dimensional margins: a private histogram of each attribute, made a distribution with the paid number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from streamdp.arrays import Counts, Floats
from streamdp.histograms import HistogramMethod
from streamdp.jobs.base import Meter
from streamdp.privacy.mechanisms import noisy_sum

# A count of nulls below this many scales of its noise is taken for none: else every column would have a few.
NULL_SCALES = 7
# Steps of a normal variable in which codes are looked up: to this end, so many to a unit.
GUIDE_END = 6
GUIDE_STEPS = 2**12


@dataclass(frozen=True, eq=False)
class Margin:
    """A distribution over codes."""

    probabilities: Floats

    @cached_property
    def thresholds(self) -> Floats:
        """Where a standard normal variable passes from one code to the next."""
        upto = np.cumsum(self.probabilities)[:-1]
        return np.asarray(ndtri(np.clip(upto, 0.0, 1.0)), dtype=np.float64)

    @cached_property
    def distinct(self) -> float:
        """The probability that two independent rows differ."""
        return 1 - float(np.square(self.probabilities).sum())

    @cached_property
    def _guide(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """The code at the start of each small step of a normal variable, and whether all of the step has it."""
        steps = np.arange(-GUIDE_END * GUIDE_STEPS, GUIDE_END * GUIDE_STEPS + 1) / GUIDE_STEPS
        codes = np.searchsorted(self.thresholds, steps, side="left").astype(np.int32)
        sure = codes[:-1] == codes[1:]
        sure[[0, -1]] = False
        return codes[:-1], sure

    def codes(self, normal: Floats) -> npt.NDArray[np.int64]:
        """The inverse of the distribution function, at the probabilities of standard normal values.

        Most values lie in a step with one code; only the others need a search, which is many times slower.
        """
        first, sure = self._guide
        step = ((normal + GUIDE_END) * GUIDE_STEPS).astype(np.int32)
        np.clip(step, 0, first.size - 1, out=step)
        codes = first[step].astype(np.int64)
        open_ = np.flatnonzero(~sure[step])
        codes[open_] = np.searchsorted(self.thresholds, normal[open_], side="left")
        return codes


def release_margin(
    counts: Counts, nullable: bool, total: float, epsilon: Fraction, method: HistogramMethod, meter: Meter
) -> Margin:
    """A margin that costs `epsilon`. With `nullable` the last count is that of nulls.

    A row is in one cell only, so the values and the nulls, disjoint, cost what one of them does.
    """
    meter.spend(epsilon)
    values = counts[:-1] if nullable else counts
    noisy = method.release(values, values.shape, epsilon, 1, meter.source).counts.astype(np.float64)
    if nullable:
        nulls = int(noisy_sum(counts[-1:], 1 / epsilon, meter.source)[0])
        noisy = np.append(noisy, nulls if nulls * epsilon > NULL_SCALES else 0.0)
        noisy[:-1] = project(noisy[:-1], max(total - noisy[-1], 0.0))
    else:
        noisy = project(noisy, total)
    whole = float(noisy.sum())
    return Margin(noisy / whole if whole > 0 else np.full(noisy.size, 1 / noisy.size))


def project(values: Floats, total: float) -> Floats:
    """The nearest non-negative values, in L2, with that sum: one number is taken off all, what is negative is cut."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, values.size + 1)
    active = np.flatnonzero(descending > excess)
    if total <= 0 or not active.size:
        return np.zeros_like(values)
    projected: Floats = np.maximum(values - excess[active[-1]], 0.0)
    return projected
