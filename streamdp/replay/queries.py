"""Random range-count queries, and how far answers from a release are from the truth."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from streamdp.arrays import Counts
from streamdp.replay.draws import Draws

QUERIES = 1_000
SANITY_FRACTION = 0.001
"""Relative errors are relative to the true answer, or to this fraction of all records (at least one) when the answer is
smaller: without such a bound, empty ranges would decide the mean."""
_SEED = 20_120_101
_MAX_CORNERS = 1 << 20


class RangeQueries:
    """The same random ranges for every point: on each axis an interval with both ends uniform (Li et al. 2015).

    A histogram is answered from its running sums along all axes: a range is a signed sum over its corners there.
    """

    def __init__(self, shape: tuple[int, ...], count: int = QUERIES, seed: int = _SEED) -> None:
        self._shape = shape
        self.count = max(1, min(count, _MAX_CORNERS >> len(shape)))
        draws = Draws(seed)
        bounds = []
        for size in shape:
            ends = np.sort(np.stack([draws.integers(size, self.count), draws.integers(size, self.count)]), axis=0)
            bounds.append((ends[0], ends[1] + 1))
        strides = [prod(size + 1 for size in shape[place + 1 :]) for place in range(len(shape))]
        corners, signs = [], []
        for sides in product((0, 1), repeat=len(shape)):
            places = zip(bounds, strides, sides, strict=True)
            corners.append(sum(pair[side] * stride for pair, stride, side in places))
            signs.append((-1) ** (len(shape) - sum(sides)))
        self._corners = np.stack(corners)
        self._signs = np.array(signs, np.int64)

    def answers(self, counts: Counts) -> Counts:
        """The answer to every query, from flat counts."""
        table = np.zeros([size + 1 for size in self._shape], np.int64)
        inner = table[tuple(slice(1, None) for _ in self._shape)]
        inner[...] = counts.reshape(self._shape)
        for axis in range(len(self._shape)):
            np.cumsum(inner, axis=axis, out=inner)
        answers: Counts = self._signs @ table.reshape(-1)[self._corners]
        return answers


def errors(truth: Counts, answered: Counts, records: int) -> tuple[float, float]:
    """Mean absolute and mean relative error over the queries, given their true answers and the number of records."""
    absolute = np.abs(answered - truth)
    relative = absolute / np.maximum(truth, max(1.0, SANITY_FRACTION * records))
    return int(absolute.sum()) / len(absolute), float(relative.mean())
