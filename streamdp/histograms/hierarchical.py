"""Sums over a tree of intervals with consistency, for range counts over many cells."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from streamdp.arrays import Counts
from streamdp.histograms.base import Noisy, Statement
from streamdp.histograms.post import integer_sums
from streamdp.histograms.tree import consistent_leaves, measure
from streamdp.privacy.noise import NoiseSource


class Hierarchical:
    """Hay, Rastogi, Miklau, Suciu (2010): noisy sums at every level of a tree, then the least-squares estimate.

    Guarantee: `epsilon`-differential privacy. Sensitivity: a user moves the sums of one level by at most `sensitivity`
    in L1; the levels share epsilon equally. The fan-out is the best for the number of cells by the variance that
    Qardaji, Yang, Li (2013) give for a random range. Cells of several axes are taken in row-major order.
    """

    name = "hierarchical"
    statement = Statement(
        lattice="sums of counts, so the integers; the estimate is rounded to integers, which is post-processing",
        sensitivity="m in each level, whose nodes are disjoint",
        budget="epsilon / levels in every level below the root",
        structure="none depends on the data: the tree is a function of the number of cells",
    )

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """Every count as the tree's estimate of it."""
        fan_out = best_fan_out(counts.size)
        sums = [counts]
        while sums[0].size > fan_out:
            sums.insert(0, np.add.reduceat(sums[0], np.arange(0, sums[0].size, fan_out)))
        share = epsilon / len(sums)
        levels = [measure(level, np.arange(level.size) // fan_out, share, sensitivity, source) for level in sums]
        if len(levels) == 1:
            return Noisy(levels[0].noisy, levels[0].scale)
        return Noisy(integer_sums(consistent_leaves(levels)), None)


def best_fan_out(cells: int) -> int:
    """Of the trees of each height, the one with the fewest children has the least variance; of these, the best."""
    best, least = max(cells, 2), _variance(max(cells, 2), 1)
    for height in range(2, max(cells - 1, 1).bit_length() + 1):
        fan_out = round(cells ** (1 / height))
        fan_out += fan_out**height < cells
        fan_out = max(fan_out, 2)
        if _variance(fan_out, height) < least:
            best, least = fan_out, _variance(fan_out, height)
    return best


def _variance(fan_out: int, height: int) -> float:
    """Of a random range, in units of one cell's noise under all of epsilon (Qardaji, Yang, Li 2013, section 4.3)."""
    return (fan_out - 1) * height**3 - 2 * (fan_out + 1) * height**2 / 3
