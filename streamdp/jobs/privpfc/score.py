"""The qualities of many grids at once.

Grids that divide much the same attributes share one pass over the records, to the finest histogram that any of them
needs; each is then summed up from histograms, one axis at a time. So the cost is records times shared passes plus cells
times grids, not records times grids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Integers
from streamdp.jobs.privpfc.grids import Grids
from streamdp.jobs.privpfc.quality import LATTICE, Quality
from streamdp.jobs.privpfc.records import Records

# How many cells a shared histogram may have: so many that it costs no more to sum up than a pass over the records.
_LEAST_SHARED, _RECORDS_PER_CELL = 2**15, 4
# Cells are scored together up to this many, so that numpy's price for a call is paid once.
_BATCH_CELLS = 2**16

# How often progress is told.
MARKS = 20

Progress = Callable[[int, int], None]


def scores_of(records: Records, grids: Grids, quality: Quality, progress: Progress) -> Integers:
    """The quality of every grid in units of `1 / LATTICE`, up to the constant that all grids share."""
    scores = np.zeros(len(grids), dtype=np.int64)
    batch = _Batch(quality, records.classes, scores)
    done = mark = 0
    for members in _shareable(records, grids):
        top = grids[members].max(axis=0)
        attributes = np.flatnonzero(top)
        counts = records.histogram(attributes.tolist(), top[attributes].tolist())
        if records.classes == 2:
            counts = counts[..., :1] - counts[..., 1:]
        _sum_up(records, counts, attributes, top[attributes], grids[np.ix_(members, attributes)], members, batch)
        done += len(members)
        # How grids share passes depends on the records, so progress is told at public marks only.
        while mark < MARKS and done * MARKS >= (mark + 1) * len(grids):
            mark += 1
            progress(mark, MARKS)
    batch.flush()
    return scores


def _shareable(records: Records, grids: Grids) -> Iterator[Integers]:
    """Places of grids whose common finest histogram is not too large.

    In the order of the attributes they divide, then of their levels, neighbours are alike, so a part is closed where
    the next grid would make it too large.
    """
    limit = max(_LEAST_SHARED, len(records.labels) // _RECORDS_PER_CELL)
    sizes = [taxonomy.nodes for taxonomy in records.taxonomies]
    order = np.lexsort([*grids.T, *(grids.T > 0)])
    top, begin = [0] * len(sizes), 0
    for place, grid in enumerate(grids[order].tolist()):
        wider = list(map(max, top, grid))
        if wider != top:
            cells = 1
            for own, level in zip(sizes, wider, strict=True):
                cells *= own[level]
            if cells > limit and place > begin:
                yield order[begin:place]
                begin, wider = place, grid
            top = wider
    yield order[begin:]


def _sum_up(
    records: Records,
    counts: Integers,
    attributes: Integers,
    top: npt.NDArray[np.int16],
    levels: Grids,
    members: Integers,
    batch: _Batch,
    axis: int = 0,
) -> None:
    """Coarsen one axis to each level that is asked for, and go on with the next axis."""
    if axis == len(attributes):
        batch.add(counts.reshape(-1, counts.shape[-1]), members[0])
        return
    taxonomy = records.taxonomies[attributes[axis]]
    for level in np.unique(levels[:, axis]):
        coarse = counts
        if level != top[axis]:
            first = np.searchsorted(taxonomy.starts[top[axis]], taxonomy.starts[level])
            coarse = np.add.reduceat(counts, first, axis=axis)
        chosen = levels[:, axis] == level
        _sum_up(records, coarse, attributes, top, levels[chosen], members[chosen], batch, axis + 1)


class _Batch:
    def __init__(self, quality: Quality, classes: int, scores: Integers) -> None:
        self._quality = quality
        self._classes = classes
        self._scores = scores
        self._cells: list[Integers] = []
        self._places: list[int] = []
        self._waiting = 0

    def add(self, cells: Integers, place: int) -> None:
        self._cells.append(cells)
        self._places.append(place)
        self._waiting += len(cells)
        if self._waiting >= _BATCH_CELLS:
            self.flush()

    def flush(self) -> None:
        if not self._cells:
            return
        cells = np.concatenate(self._cells)
        starts = np.cumsum([0, *map(len, self._cells[:-1])])
        if self._classes == 2:
            gains = self._quality.gains(np.abs(cells[:, 0]))
        else:
            ranked = np.sort(cells, axis=1)
            gains = self._quality.gains(ranked[:, -1] - ranked[:, -2])
            gains -= LATTICE // 2 * ranked[:, :-2].sum(axis=1)
        self._scores[self._places] = np.add.reduceat(gains, starts)
        self._cells, self._places, self._waiting = [], [], 0
