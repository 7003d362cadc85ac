"""k-means on a published synopsis: UGkM, EUGkM and MkM as printed (Su 2016, section 4.4), and the pruned form."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from streamdp.arrays import Floats
from streamdp.jobs.kmeans.lloyd import (
    MAX_DISTANCES,
    MAX_ROUNDS,
    MAX_SIGNED_ROUNDS,
    best_centres,
    cluster_weights,
    seeded_starts,
    signed_starts,
)
from streamdp.jobs.kmeans.packing import packings
from streamdp.jobs.kmeans.synopsis import (
    Synopsis,
    eugkm_cells,
    mkm_cells,
    release_synopsis,
    side_for,
    ugkm_cells,
)
from streamdp.jobs.kmeans.task import Outcome, Task
from streamdp.jobs.kmeans.validity import best_by_validity

# Eq. 4.13 weighs the noise of all cells; with the insignificant ones gone, a finer grid is the better balance.
PRUNED_THETA = 5


def ugkm(task: Task) -> Outcome:
    return _signed(task, ugkm_cells, "ugkm")


def eugkm(task: Task) -> Outcome:
    return _signed(task, eugkm_cells, "eugkm")


def mkm(task: Task) -> Outcome:
    return _signed(task, mkm_cells, "mkm")


def pruned(task: Task) -> Outcome:
    size = task.paid_size()
    synopsis = pruned_synopsis(task, size, task.meter.left)
    return pruned_outcome(task, synopsis, f"a grid of {synopsis.side} cells a side, for about {size} rows")


def _signed(task: Task, cells: Callable[[int, float, int], float], method: str) -> Outcome:
    size = task.paid_size()
    epsilon = task.meter.left
    synopsis = signed_synopsis(task, cells(size, float(epsilon), task.attributes), epsilon)
    return signed_outcome(task, synopsis, method, f"a grid of {synopsis.side} cells a side, for about {size} rows")


def signed_synopsis(task: Task, cells: float, epsilon: Fraction) -> Synopsis:
    """With no more cells than one start can afford: all of them take part in the clustering."""
    return _synopsis(task, min(cells, MAX_DISTANCES / (sum(task.clusters) * MAX_SIGNED_ROUNDS)), epsilon)


def pruned_synopsis(task: Task, size: int, epsilon: Fraction) -> Synopsis:
    return _synopsis(task, eugkm_cells(size, float(epsilon), task.attributes, PRUNED_THETA), epsilon)


def _synopsis(task: Task, cells: float, epsilon: Fraction) -> Synopsis:
    side = side_for(cells, task.attributes, task.clusters[-1])
    return release_synopsis(task.rows, task.bounds, side, epsilon, task.meter)


def signed_outcome(task: Task, synopsis: Synopsis, method: str, reason: str) -> Outcome:
    """All cells with their signed counts, so that noise cancels; the best of up to 30 packed starts on the synopsis."""
    # Cells that count zero move nothing, and at a large epsilon they are most of them.
    cells = np.flatnonzero(synopsis.counts)
    points = synopsis.points(cells)
    weights = synopsis.counts.reshape(-1)[cells].astype(np.float64)
    starts = signed_starts(len(points), sum(task.clusters))

    def cluster(clusters: int) -> tuple[Floats, float]:
        return best_centres(points, weights, packings(clusters, task.attributes, starts), MAX_SIGNED_ROUNDS)

    centres = best_by_validity(task.clusters, cluster, float(weights.sum()))
    return _outcome(points, weights, centres, synopsis, method, reason)


def pruned_outcome(task: Task, synopsis: Synopsis, reason: str) -> Outcome:
    """Ordinary weighted k-means on the significant cells, 30 starts by k-means++."""
    points, weights = synopsis.significant(task.clusters[-1])

    def cluster(clusters: int) -> tuple[Floats, float]:
        return best_centres(points, weights, seeded_starts(points, weights, clusters), MAX_ROUNDS)

    centres = best_by_validity(task.clusters, cluster, float(weights.sum()))
    return _outcome(points, weights, centres, synopsis, "pruned", reason)


def _outcome(points: Floats, weights: Floats, centres: Floats, synopsis: Synopsis, method: str, reason: str) -> Outcome:
    sizes = cluster_weights(points, weights, centres).astype(np.int64)
    return Outcome(centres, sizes, synopsis, method, reason)
