"""What a release measures: every cell and, in a wide histogram, the sums of groups of cells besides."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np

from streamdp.arrays import Counts, Floats
from streamdp.histograms import Laplace, Noisy, Statement
from streamdp.histograms.bands import Bands, bands_of
from streamdp.histograms.post import integer_sums
from streamdp.histograms.variance import laplace_variance
from streamdp.privacy.noise import NoiseSource

_SHARES = [Fraction(part, 20) for part in range(1, 7)]
"""What groups may get of a release. With the most, the noise of a single cell is 1/0.7 of what it would be."""
_WORTH = 0.95
"""The variance of a random range, of what it would be, above which groups are not worth it."""
_TINY = 1e-12


class Scales:
    """One release: cells with discrete Laplace noise, and in wide histograms disjoint groups of cells too.

    Guarantee: `epsilon`. Groups are disjoint, so a user moves their sums by at most `m` in L1, as the cells. Groups get
    the public part `share` of epsilon, cells the rest: two Laplace mechanisms, composed. A range of many cells sums the
    noise of all of them, and that of few groups; so both are combined, each sum weighted by the inverse of its
    variance, and its cells share what that changes.

    Which groups and what share depends on the shape alone: those under which a random range is best.
    """

    name = "two_scales"
    statement = Statement(
        lattice="counts and their sums, so the integers",
        sensitivity="m for the cells, and m for the sums of disjoint groups",
        budget="a public share for the groups, the rest for the cells",
        structure="none depends on the data: the groups are blocks of the public domain",
    )

    def __init__(self, bands: Bands) -> None:
        self._laplace = Laplace()
        self.groups = 0
        self._coarse: Floats = np.zeros(bands.number)
        levels, self.share = _best(bands)
        if self.share:
            self._group_of, coarse = bands.groups(levels)
            self._sizes: Floats = np.bincount(self._group_of).astype(np.float64)
            self.groups = self._sizes.size
            # Of the coefficients of each band, how many the groups tell of.
            self._coarse = bands.mean(coarse.astype(np.float64))

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """The noisy counts, and the scale of the noise that the cells alone would have."""
        cells = self._laplace.release(counts, shape, epsilon * (1 - self.share), sensitivity, source)
        if not self.share:
            return cells
        sums = np.rint(np.bincount(self._group_of, counts)).astype(np.int64)
        groups = self._laplace.release(sums, sums.shape, epsilon * self.share, sensitivity, source)
        assert cells.scale is not None
        noise, of_group = self._variances(cells.scale)
        differ = groups.counts - np.bincount(self._group_of, cells.counts)
        shared = differ * noise / (self._sizes * noise + of_group)
        return Noisy(integer_sums(cells.counts + shared[self._group_of]), cells.scale)

    def noise(self, scale: Fraction) -> Floats:
        """The variance of the noise in a coefficient of each band, when that of the cells alone has this scale."""
        noise, of_group = self._variances(scale)
        if not self.share:
            return np.full(self._coarse.size, noise)
        combined = noise * of_group / (of_group + noise * float(self._sizes.mean()))
        return self._mixed(combined, noise)

    def factors(self) -> Floats:
        """The same relative to a release of the cells alone with all of epsilon."""
        share = float(self.share)
        size = float(self._sizes.mean()) if share else 0.0
        return self._mixed(1 / ((1 - share) ** 2 + size * share**2), 1 / (1 - share) ** 2)

    def _mixed(self, coarse: float, fine: float) -> Floats:
        mixed: Floats = self._coarse * coarse + (1 - self._coarse) * fine
        return mixed

    def _variances(self, scale: Fraction) -> tuple[float, float]:
        of_group = laplace_variance(scale * (1 - self.share) / self.share) if self.share else 0.0
        return laplace_variance(scale) + _TINY, of_group + _TINY


def cell_share(shape: tuple[int, ...]) -> Fraction:
    """What the cells get of a release; groups get the rest."""
    return 1 - _best(bands_of(shape))[1]


def range_noise(shape: tuple[int, ...], epsilon: Fraction) -> float:
    """The standard deviation of the noise in a random range, in users, of a release with this epsilon."""
    bands = bands_of(shape)
    levels, share = _best(bands)
    relative = _gain(bands, levels)[0] if share else 1.0
    return sqrt(relative * float(bands.energy.sum()) * laplace_variance(1 / epsilon))


def _best(bands: Bands) -> tuple[list[int], Fraction]:
    """How deep to cut each axis, and the share of groups; no share where it is not worth it.

    From one group on, the axis that gains the most is cut once more, as long as there is one to cut.
    """
    levels = [0] * len(bands.shape)
    best, found = _WORTH, (levels, Fraction(0))
    while True:
        gain, share = _gain(bands, levels)
        if gain < best:
            best, found = gain, (levels, share)
        deeper = [
            [*levels[:axis], level + 1, *levels[axis + 1 :]]
            for axis, level in enumerate(levels)
            if level + 1 < bands.levels[axis]
        ]
        if not deeper:
            return found
        levels = min(deeper, key=lambda tried: _gain(bands, tried)[0])


def _gain(bands: Bands, levels: list[int]) -> tuple[float, Fraction]:
    """The variance of a random range, relative to that of cells alone, and the share that makes it so."""
    groups, coarse = bands.coarseness(levels)
    size = bands.sizes.sum() / groups
    gains = [
        (coarse / ((1 - s) ** 2 + size * s**2) + (1 - coarse) / (1 - s) ** 2, share)
        for share in _SHARES
        for s in [float(share)]
    ]
    return min(gains)
