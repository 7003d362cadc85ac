"""DPCopula-MLE: the copula's likelihood maximised in many small blocks, and the average of what they say."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from math import ceil

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from streamdp.arrays import Floats
from streamdp.jobs.base import Meter
from streamdp.privacy.mechanisms import row_draws

LATTICE = 2**16
# Normal scores are rounded to this, so that their products sum exactly: a block's estimate depends on its rows alone.
SCORE_LATTICE = 2**10
MIN_ROWS = 20


def blocks_for(attributes: int, rows: int, epsilon: Fraction) -> int:
    """The seed's number, whose noise is small, as far as blocks of a fair size allow. `rows` is public or paid for."""
    pairs = attributes * (attributes - 1) // 2
    return max(min(ceil(40 * pairs / epsilon), rows // MIN_ROWS), 1)


def noisy_correlations(
    columns: Sequence[npt.NDArray[np.integer]], blocks: int, epsilon: Fraction, meter: Meter
) -> Floats:
    """The correlation of every pair, in the order of `combinations`.

    Guarantee: costs `epsilon`. A row's block is drawn for itself, and ranks are taken inside the block, so one row
    moves one block's estimates; each lies in [-1, 1] and is rounded to the lattice, so their sums move by at most 2
    each. The average is over all blocks, also those too small, which say 0.
    """
    rows = len(columns[0])
    block_of = row_draws(blocks, rows, meter.source)
    order = np.argsort(block_of, kind="stable")
    edges = np.searchsorted(block_of[order], np.arange(blocks + 1))
    table = np.array([column[order] for column in columns])
    pairs = list(combinations(range(len(columns)), 2))
    sums = np.zeros(len(pairs), dtype=np.int64)
    for start, stop in pairwise(edges.tolist()):
        if stop - start >= 3:
            sums += block_estimates(table[:, start:stop], pairs)
    noisy = meter.noisy(sums, 2 * LATTICE * len(pairs), epsilon)
    return np.clip(noisy / (LATTICE * blocks), -1.0, 1.0)


def block_estimates(block: npt.NDArray[np.integer], pairs: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """The correlations of the normal scores of the ranks, in units of the lattice."""
    from scipy.stats import rankdata  # Half a second: a daemon should not pay for it at every start.

    scores = np.rint(SCORE_LATTICE * ndtri((rankdata(block, axis=1) - 0.5) / block.shape[1])).astype(np.int64)
    left, right = np.array(pairs).T
    lengths = np.sqrt(np.square(scores).sum(axis=1).astype(np.float64))
    products = np.array([int((scores[i] * scores[j]).sum()) for i, j in pairs], dtype=np.float64)
    norms = lengths[left] * lengths[right]
    correlations = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    estimates: npt.NDArray[np.int64] = np.rint(LATTICE * np.clip(correlations, -1.0, 1.0)).astype(np.int64)
    return estimates
