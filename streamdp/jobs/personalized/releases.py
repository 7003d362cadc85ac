"""Noisy weighted sums, of which every mechanism is made, and the meter that knows what each level has paid.

A release gives a row of level `l` the integer weight `weights[l]` and adds discrete Laplace noise of scale
`sensitivity / unit` to the weighted sum of integer vectors of L1 norm at most `sensitivity`. So the presence of a row
of level `l` moves the sum by at most `weights[l] * sensitivity` and is hidden at exactly `weights[l] * unit`: the loss
is personal, in exact numbers. Losses of several releases add up, level by level.

With `kept`, a row takes part with probability `kept[l] / 2**32` only, drawn once and exactly, and its loss is
ln(1 + p (exp(unit) - 1)) for a weight of 1 (Jorgensen, Yu and Cormode, ICDE 2015, Theorem 1). Probabilities are rounded
down, so that this is at most what is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from math import floor, gcd, lcm

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Integers
from streamdp.jobs.personalized.preferences import Levels, Preferences
from streamdp.privacy.mechanisms import noisy_sum, row_draws
from streamdp.privacy.noise import LARGEST_SCALE, NoiseSource

Tally = Callable[[Integers], Integers]
"""The sum over all rows of the row's weight times its vector, for weights of one integer a row."""

LATTICE = 2**16
"""The largest weight, when weights have no smaller common measure: rounding down costs a part in as many."""
KEPT_UNITS = 2**32


@dataclass(frozen=True)
class Release:
    """One noisy sum. `costs` is what it costs each level."""

    weights: tuple[int, ...]
    unit: Fraction
    costs: tuple[Fraction, ...]
    kept: tuple[int, ...] | None = None

    def expected(self, sizes: npt.NDArray[np.int64]) -> tuple[float, float]:
        """Of the table's users: the sum of expected weights, and that of expected squares, both times `unit`."""
        weights = np.array(self.weights, dtype=np.float64)
        chance = np.ones(len(weights)) if self.kept is None else np.array(self.kept) / KEPT_UNITS
        unit = float(self.unit)
        return float((sizes * weights * chance).sum()) * unit, float((sizes * weights**2 * chance).sum()) * unit**2


def finest_lattice(epsilon: Fraction, sensitivity: int) -> int:
    """The most that a weight can be for the noise's scale to stay within what the sampler draws."""
    return max(1, min(LATTICE, floor(LARGEST_SCALE * epsilon / sensitivity)))


def weighted(epsilons: Sequence[Fraction], cap: Fraction, lattice: int = LATTICE) -> Release:
    """Every level at its own epsilon, or at `cap` when that is less; weights are integers of at most `lattice`, rounded
    down.

    Equal epsilons have weight 1 and noise of scale 1 / epsilon: plain differential privacy.
    """
    wanted = [min(epsilon, cap) for epsilon in epsilons]
    measure = _common_measure(wanted)
    unit = measure if max(wanted) / measure <= lattice else max(wanted) / lattice
    weights = tuple(floor(each / unit) for each in wanted)
    return Release(weights, unit, tuple(weight * unit for weight in weights))


def _common_measure(values: Sequence[Fraction]) -> Fraction:
    """The largest number of which all of them are multiples."""
    positive = [value for value in values if value]
    common = reduce(lcm, (value.denominator for value in positive))
    return Fraction(reduce(gcd, (int(value * common) for value in positive)), common)


def uniform(chosen: Sequence[bool], epsilon: Fraction) -> Release:
    """The chosen levels at `epsilon` each, the others not at all."""
    weights = tuple(int(each) for each in chosen)
    return Release(weights, epsilon, tuple(weight * epsilon for weight in weights))


@lru_cache(maxsize=16)
def sampled(epsilons: tuple[Fraction, ...], threshold: Fraction) -> Release:
    """Everybody at `threshold`: those who allow less with probability (e^epsilon - 1) / (e^threshold - 1)."""
    kept = tuple(_kept(epsilon, threshold) for epsilon in epsilons)
    costs = tuple(min(epsilon, threshold) for epsilon in epsilons)
    return Release((1,) * len(kept), threshold, costs, None if min(kept) == KEPT_UNITS else kept)


def _kept(epsilon: Fraction, threshold: Fraction) -> int:
    """In units of 2**-32 and surely not too much: computed to 40 digits, rounded down, and one unit less."""
    if epsilon >= threshold:
        return KEPT_UNITS
    # exp(x) - 1 loses as many digits as 1 / x has.
    context = Context(prec=40 + len(str(floor(1 / threshold))), rounding=ROUND_FLOOR)
    some, all_of_it = (_expm1(value, context) for value in (epsilon, threshold))
    return max(int(context.multiply(context.divide(some, all_of_it), Decimal(KEPT_UNITS))) - 1, 0)


def _expm1(value: Fraction, context: Context) -> Decimal:
    exponent = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return context.subtract(context.exp(exponent), Decimal(1))


class LevelMeter:
    """The only way noise is added here: what each level has paid is known because it was asked for here."""

    def __init__(self, preferences: Preferences, source: NoiseSource | None) -> None:
        self._limits = preferences.epsilons
        self.spent = [Fraction(0)] * len(self._limits)
        self.source = source

    def noisy(
        self,
        tally: Tally,
        levels: Levels,
        release: Release,
        sensitivity: int,
        rows: npt.NDArray[np.bool_] | None = None,
    ) -> Integers:
        """The weighted sum with its noise; a row of level `OUTSIDE` weighs nothing. `rows` are those that take part, as
        `draw` drew them."""
        self.spend(release)
        weights = np.array((*release.weights, 0), dtype=np.int64)[levels]
        if rows is not None:
            weights *= rows
        exact = tally(weights)
        return noisy_sum(exact, sensitivity / release.unit, self.source)

    def draw(self, levels: Levels, release: Release) -> npt.NDArray[np.bool_] | None:
        """Which rows take part; None when all do, and then nothing is drawn."""
        if release.kept is None:
            return None
        kept = np.array((*release.kept, 0), dtype=np.int64)[levels]
        rows: npt.NDArray[np.bool_] = kept == KEPT_UNITS
        some = np.flatnonzero(~rows & (kept > 0))
        rows[some] = row_draws(KEPT_UNITS, some.size, self.source) < kept[some]
        return rows

    def spend(self, release: Release) -> None:
        """Before anything looks at the data for it."""
        after = [spent + cost for spent, cost in zip(self.spent, release.costs, strict=True)]
        if any(spent > limit for spent, limit in zip(after, self._limits, strict=True)):
            raise RuntimeError(
                "a mechanism asked a level for more than its epsilon; this is a defect, please report it"
            )
        self.spent = after
