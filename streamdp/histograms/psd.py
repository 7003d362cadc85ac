"""Private spatial decomposition: a tree of boxes that follows the data above and halves evenly below."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts
from streamdp.histograms.base import Noisy, Statement
from streamdp.histograms.post import integer_sums
from streamdp.histograms.tree import Level, consistent_leaves, measure
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.selection import permute_and_flip

DEEPEST = 10
MEDIAN_SHARE = Fraction(3, 10)
# Each level's share is this times that of the level above. The paper's cube root of 2 is for levels that cut a box in
# four; a level here cuts it in two, so this is near the sixth root.
GROWTH = Fraction(9, 8)
# A box whose noisy sum is below this many scales of its noise is not cut: its halves would be noise. It is measured
# again in the levels below, as it is.
MIN_SCALES = 8

Box = tuple[tuple[int, int], ...]


class Psd:
    """The kd-tree hybrid of Cormode, Procopiuc, Srivastava, Shen, Yu (2012).

    Guarantee: `epsilon`-differential privacy. The upper half of the levels cuts the longest side of each box at a
    private median, the lower half in the middle. Every level's sums get noise, then the tree is made consistent, and a
    leaf is spread evenly over its cells. Boxes of a level are disjoint: a level costs one median and one count. Which
    boxes are cut at all depends on noisy sums only (the paper prunes afterwards instead). The median's score, the
    absolute difference between the two sides, has sensitivity `sensitivity`, as have the sums.
    """

    name = "psd"
    statement = Statement(
        lattice="sums of counts, so the integers; the estimates are rounded to integers, which is post-processing",
        sensitivity="m in each level, whose boxes are disjoint; m for the score of a median",
        budget="3/10 for the medians, shared equally by the upper half of the levels; 7/10 for the sums, each level "
        "9/8 of the one above",
        structure="medians are chosen by permute-and-flip with their level's share; cuts in the middle are public",
    )

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """Every count as its even part of a leaf's estimate."""
        cells = counts.reshape(shape)
        depth = max(min((counts.size - 1).bit_length(), DEEPEST), 1)
        following_data = depth // 2
        for_medians = epsilon * MEDIAN_SHARE if following_data else Fraction(0)
        shares = _growing_shares(epsilon - for_medians, depth)
        boxes: list[Box] = [tuple((0, size) for size in shape)]
        levels: list[Level] = []
        worth_cutting = np.ones(1, dtype=np.bool_)
        for depth_here, share in enumerate(shares):
            parents: list[int] = []
            children: list[Box] = []
            for place, box in enumerate(boxes):
                by_median = for_medians / following_data if depth_here < following_data else None
                halves = _halves(cells, box, by_median, sensitivity, source) if worth_cutting[place] else [box]
                children += halves
                parents += [place] * len(halves)
            boxes = children
            sums = np.array([_part(cells, box).sum() for box in boxes], dtype=np.int64)
            levels.append(measure(sums, np.array(parents, dtype=np.intp), share, sensitivity, source))
            worth_cutting = levels[-1].noisy > MIN_SCALES * float(levels[-1].scale)
        estimate = np.empty(shape)
        for box, total in zip(boxes, consistent_leaves(levels).tolist(), strict=True):
            part = _part(estimate, box)
            part[...] = total / part.size
        return Noisy(integer_sums(estimate.reshape(-1)), None)


def _growing_shares(epsilon: Fraction, depth: int) -> list[Fraction]:
    weights = [GROWTH**level for level in range(depth)]
    return [epsilon * weight / sum(weights) for weight in weights]


def _part(cells: npt.NDArray[np.generic], box: Box) -> npt.NDArray[np.generic]:
    return cells[tuple(slice(low, high) for low, high in box)]


def _halves(
    cells: Counts, box: Box, epsilon: Fraction | None, sensitivity: int, source: NoiseSource | None
) -> list[Box]:
    """The two parts of a box, cut at a median that costs `epsilon`, or in the middle. A box of one cell stays whole."""
    lengths = [high - low for low, high in box]
    axis = int(np.argmax(lengths))
    if lengths[axis] < 2:
        return [box]
    low, high = box[axis]
    if epsilon is None:
        cut = (low + high) // 2
    else:
        others = tuple(other for other in range(len(box)) if other != axis)
        upto = np.cumsum(_part(cells, box).sum(axis=others))
        difference = np.abs(2 * upto[:-1] - upto[-1])
        cut = low + 1 + permute_and_flip(-difference, epsilon, sensitivity, source=source)
    return [(*box[:axis], half, *box[axis + 1 :]) for half in ((low, cut), (cut, high))]
