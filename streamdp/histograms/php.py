"""A partition into few intervals of nearly equal counts, found privately, for histograms with steps or gaps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts
from streamdp.histograms.base import Noisy, Statement
from streamdp.histograms.post import integer_sums
from streamdp.privacy.mechanisms import noisy_sum
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.selection import permute_and_flip

STRUCTURE_SHARE = Fraction(1, 2)
DEEPEST = 6
# Split points tried in an interval, evenly spaced, fewer in a long one: a public choice that bounds time and memory.
MAX_SPLITS = 32
LARGEST_TABLE = 2**22
SCORE_LATTICE = 64


class Php:
    """Private hierarchical partitioning (P-HP; Acs, Castelluccia, Chen 2012).

    Guarantee: `epsilon`-differential privacy. Intervals are bisected, level by level, where the absolute deviations
    from the means of the two parts and the noise they will carry are least; to leave an interval whole is one more
    candidate. Then every part's sum gets noise and is spread evenly. Parts of a level are disjoint, so a level costs
    one choice. One user moves a deviation by less than 2 * `sensitivity`. Cells of several axes are taken in row-major
    order.
    """

    name = "php"
    statement = Statement(
        lattice="sums of counts, so the integers; spread over their cells and rounded, which is post-processing",
        sensitivity="m for the sums of the parts, which are disjoint",
        budget="1/2 shared equally by the levels of bisection (at most 6), 1/2 for the sums",
        structure="each bisection is chosen by permute-and-flip with its level's share; the score, an absolute "
        "deviation from the mean, has sensitivity 2m, and 1/32 more for rounding",
    )

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """Every count as the mean of its part."""
        depth = min((counts.size - 1).bit_length(), DEEPEST)
        for_structure = epsilon * STRUCTURE_SHARE if depth else Fraction(0)
        scale = sensitivity / (epsilon - for_structure)
        open_parts, starts = [(0, counts.size)], [0]
        for _ in range(depth):
            halves = []
            for start, stop in open_parts:
                split = _split(counts[start:stop], for_structure / depth, sensitivity, scale, source)
                if split:
                    halves += [(start, start + split), (start + split, stop)]
                    starts.append(start + split)
            open_parts = halves
        edges = np.sort(np.array(starts))
        sums = noisy_sum(np.add.reduceat(counts, edges), scale, source)
        lengths = np.diff(np.append(edges, counts.size))
        return Noisy(integer_sums(np.repeat(sums / lengths, lengths)), scale if edges.size == counts.size else None)


def _split(counts: Counts, epsilon: Fraction, sensitivity: int, scale: Fraction, source: NoiseSource | None) -> int:
    """Where to cut, or 0 for nowhere.

    Scores are in units of `1 / SCORE_LATTICE`. Each side is rounded down by itself, so a user moves a score by at most
    `2 * sensitivity` and one unit for either side.
    """
    size = counts.size
    if size < 2:
        return 0
    # Cut for the choice only, so that nothing overflows.
    bound = 2**54 // size**2
    values = np.clip(counts, -bound, bound)
    number = min(size - 1, MAX_SPLITS, max(LARGEST_TABLE // size, 1))
    splits = size * np.arange(1, number + 1) // (number + 1)
    # The first row leaves the interval whole: nothing is to the right of its cut.
    cuts = np.append(size, splits)
    noise = min(int(SCORE_LATTICE * scale), 2**60)
    costs = _deviations(values, cuts) + noise * np.append(1, np.full(number, 2))
    chosen = permute_and_flip(-costs, epsilon, 2 * sensitivity * SCORE_LATTICE + 2, source=source)
    return int(splits[chosen - 1]) if chosen else 0


def _deviations(values: Counts, cuts: npt.NDArray[np.int64]) -> Counts:
    """For each cut the absolute differences from the means of its two sides, each side rounded down to the lattice."""
    upto = np.append(0, np.cumsum(values))
    cut = cuts[:, np.newaxis]
    is_left = np.arange(values.size) < cut
    length = np.where(is_left, cut, values.size - cut)
    total = np.where(is_left, upto[cut], upto[-1] - upto[cut])
    differences = np.abs(values * length - total)
    left = np.where(is_left, differences, 0).sum(axis=1)
    right = differences.sum(axis=1) - left
    rounded: Counts = SCORE_LATTICE * left // cuts + SCORE_LATTICE * right // np.maximum(values.size - cuts, 1)
    return rounded
