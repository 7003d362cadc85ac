"""Noise first, then neighbours that differ by no more than noise are merged: nothing is paid for the structure."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts, Floats
from streamdp.histograms.base import Noisy, Statement
from streamdp.histograms.post import integer_sums
from streamdp.privacy.mechanisms import noisy_sum
from streamdp.privacy.noise import NoiseSource

# Up to here every cell is measured with all of epsilon; beyond, even groups get most of it.
MAX_CELLS = 128
GROUPS = 64
GROUP_SHARE = Fraction(3, 4)
# A cell that is wrongly thought to stand out in its group is off by several scales of the larger noise.
DOUBT = 2.0


class Merged:
    """NoiseFirst of Xu, Zhang, Xiao, Yang, Yu, Winslett (2013), in two resolutions.

    Guarantee: `epsilon`-differential privacy; a user moves the counts, and the sums over disjoint groups of cells, by
    at most `sensitivity` in L1. Noise is added first; the partition of least expected squared error is then found in
    the noisy values by dynamic programming, which is post-processing. Beyond 128 cells, 64 even groups get 3/4 of
    epsilon and the cells 1/4: smooth stretches follow the groups, and cells stand out where they rise above their
    noise. Cells of several axes are taken in row-major order.
    """

    name = "merged"
    statement = Statement(
        lattice="counts and sums of counts, so the integers; means of parts are rounded, which is post-processing",
        sensitivity="m for the cells, m for the groups, which are disjoint",
        budget="up to 128 cells all of epsilon on them; beyond, 3/4 on 64 even groups and 1/4 on the cells",
        structure="parts are found in values that are noisy already; the groups are a function of the number of cells",
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
        if counts.size <= MAX_CELLS:
            return Noisy(integer_sums(_noisy_parts(counts[np.newaxis], sensitivity / epsilon, source)[0]), None)
        for_groups = epsilon * GROUP_SHARE
        width = -(-counts.size // GROUPS)
        cells = np.zeros((-(-counts.size // width), width), dtype=np.int64)
        cells.reshape(-1)[: counts.size] = counts
        totals = _noisy_parts(cells.sum(axis=1)[np.newaxis], sensitivity / for_groups, source)[0]
        within = _noisy_parts(cells, sensitivity / (epsilon - for_groups), source, DOUBT)
        estimate = within + (totals / width - within.mean(axis=1))[:, np.newaxis]
        last = counts.size - (cells.size - width)
        # The last group may end beyond the cells: what it holds is in the cells there are.
        estimate[-1, :last] += estimate[-1, last:].sum() / last
        return Noisy(integer_sums(estimate.reshape(-1)[: counts.size]), None)


def _noisy_parts(counts: Counts, scale: Fraction, source: NoiseSource | None, doubt: float = 0.0) -> Floats:
    noisy = noisy_sum(counts, scale, source).astype(np.float64)
    return merge(noisy, 2 * float(scale) ** 2, doubt)


def merge(noisy: Floats, variance: float, doubt: float = 0.0) -> Floats:
    """Each row with its values replaced by the means of the parts of the row's best partition.

    A part of n cells has the expected error of its mean, `variance`, and of what differs inside: the squared
    differences less `(n - 1) * variance` that noise alone would make. In long rows parts have lengths of few kinds.
    """
    rows, size = noisy.shape
    sums = np.concatenate([np.zeros((rows, 1)), np.cumsum(noisy, axis=1)], axis=1)
    squares = np.concatenate([np.zeros((rows, 1)), np.cumsum(np.square(noisy), axis=1)], axis=1)
    lengths = _lengths(size)
    # Of that many Laplace variables the largest is about their logarithm times the scale. A part more must gain more
    # than that, squared, or the best partition would be one of outliers. `doubt` asks for one rarer by its exponential.
    one_more_part = (np.log(noisy.size) + doubt) ** 2 / 2
    best = np.zeros((rows, size + 1))
    chosen = np.zeros((rows, size + 1), dtype=np.int64)
    for end in range(1, size + 1):
        fitting = lengths[lengths <= end]
        starts = end - fitting
        inside = squares[:, end, np.newaxis] - squares[:, starts]
        inside -= np.square(sums[:, end, np.newaxis] - sums[:, starts]) / fitting
        costs = best[:, starts] + inside + (one_more_part + 1 - fitting) * variance
        place = costs.argmin(axis=1)
        best[:, end] = costs[np.arange(rows), place]
        chosen[:, end] = fitting[place]
    means = np.empty_like(noisy)
    for row in range(rows):
        end = size
        while end:
            start = end - int(chosen[row, end])
            means[row, start:end] = (sums[row, end] - sums[row, start]) / (end - start)
            end = start
    return means


def _lengths(size: int) -> npt.NDArray[np.int64]:
    """All up to 128, then a fifth more each time."""
    lengths = list(range(1, min(size, MAX_CELLS) + 1))
    while (following := lengths[-1] * 6 // 5) <= size and following > lengths[-1]:
        lengths.append(following)
    return np.array(lengths, dtype=np.int64)
