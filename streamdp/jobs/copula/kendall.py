"""Kendall's tau-a of every pair of attributes, privately, over all rows.

tau-a counts concordant less discordant pairs of rows over all pairs of rows. (scipy's default is tau-b, which is
another function with another sensitivity.)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.jobs.base import Meter
from streamdp.privacy.mechanisms import row_draws
from streamdp.privacy.noise import LARGEST_SCALE, NoiseSource

Codes = npt.NDArray[np.integer]


def joint_sensitivity(attributes: int, size: int) -> int:
    """How far, in L1, one replaced row of `size` moves the sums of sign products of all pairs of attributes.

    The row is in `size - 1` pairs of rows. For one of them, with signs t before and u after, the sum over pairs of
    attributes of |t_i t_j - u_i u_j| is largest when some signs turn and the others do not: 2 for each attribute that
    turns with each that stays, so at most 2 floor(m/2) ceil(m/2) = 2 floor(m^2/4), and not 2 m(m-1)/2.
    """
    return 2 * (size - 1) * (attributes**2 // 4)


def largest_sample(attributes: int, epsilon: Fraction) -> int:
    """The most rows for which the noise fits the sampler."""
    return max(int(LARGEST_SCALE * epsilon / (2 * (attributes**2 // 4))), 2)


def noisy_taus(columns: Sequence[Codes], sizes: Sequence[int], sample: int, epsilon: Fraction, meter: Meter) -> Floats:
    """tau-a of every pair of columns, in the order of `combinations`, over `sample` rows (public or paid for, from 2).

    Guarantee: costs `epsilon` for the presence of a row, which replaces at most one of the sampled rows. The noise is
    discrete Laplace on the integer sums of sign products, of the joint sensitivity above.
    """
    columns = sampled(columns, sizes, sample, meter.source)
    pairs = combinations(range(len(columns)), 2)
    sums = np.array([sign_sum(columns[i], columns[j], sizes[i], sizes[j]) for i, j in pairs], dtype=np.int64)
    noisy = meter.noisy(sums, joint_sensitivity(len(columns), sample), epsilon)
    return np.clip(noisy / (sample * (sample - 1) / 2), -1.0, 1.0)


def sign_sum(left: Codes, right: Codes, left_size: int, right_size: int) -> int:
    """Concordant less discordant pairs of rows, from the histogram of the pair: O(rows + cells)."""
    cells = left.astype(np.int64) * right_size
    cells += right
    counts = np.bincount(cells, minlength=left_size * right_size).reshape(left_size, right_size)
    below = np.cumsum(counts, axis=0)
    below -= counts
    # For a cell: twice the rows below and to the left, plus those below, less all of the lower rows.
    upto = np.cumsum(below, axis=1)
    lower = upto[:, -1].copy()
    upto *= 2
    upto -= below
    return int(np.vdot(counts, upto)) - int(np.vdot(counts.sum(axis=1), lower))


def sampled(columns: Sequence[Codes], sizes: Sequence[int], sample: int, source: NoiseSource | None) -> Sequence[Codes]:
    """Exactly `sample` rows: drawn without replacement, or all of them and rows uniform on the domain."""
    rows = len(columns[0])
    if rows > sample:
        kept = subset(rows, sample, source)
        return [column[kept] for column in columns]
    missing = sample - rows
    return [
        np.concatenate([column, row_draws(size, missing, source)]) if missing else column
        for column, size in zip(columns, sizes, strict=True)
    ]


def subset(rows: int, chosen: int, source: NoiseSource | None) -> npt.NDArray[np.bool_]:
    """Which rows are in a uniform subset of that size. The smaller side is drawn, one place after another, again if
    it was drawn before: exact."""
    fewer = min(chosen, rows - chosen)
    drawn = np.zeros(rows, dtype=np.bool_)
    missing = fewer
    while missing:
        places = row_draws(rows, missing, source)
        drawn[places] = True
        missing = fewer - int(np.count_nonzero(drawn))
    return drawn if fewer == chosen else ~drawn
