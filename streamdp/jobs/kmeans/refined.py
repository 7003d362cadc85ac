"""The pruned synopsis, then one noisy round on offsets from its centres, weighed by how far each can be trusted.

The seed's hybrid sums coordinates, which may lie anywhere in the domain, so its noise is that of the whole domain. The
synopsis is published before the round, so how wide each cluster is can be read off it for nothing: the round sums
*offsets* from the centre, as parts of that width and clamped to it, and the noise shrinks with the cluster. It then
moves a centre by the measured mean offset times `t / (t + s)`: `t` the variance of a position within a cell, `s` that
of the measurement. So where the measurement is poor the synopsis' centre stays.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.jobs.kmeans.dplloyd import add_to, count_weight, noisy_tallies
from streamdp.jobs.kmeans.grids import PRUNED_THETA, pruned_outcome, pruned_synopsis
from streamdp.jobs.kmeans.lloyd import nearest_points
from streamdp.jobs.kmeans.rows import LATTICE, Rows, members
from streamdp.jobs.kmeans.synopsis import Synopsis, eugkm_cells, side_for
from streamdp.jobs.kmeans.task import Outcome, Task

SYNOPSIS_SHARE = Fraction(3, 5)
# Offsets are clamped at this many standard deviations of the cluster's cells.
_DEVIATIONS = 2.0
# An offset's mean is near zero, unlike a coordinate's, so the counts need less of the budget (Eq. 4.7).
_OFFSET_RHO = 0.1


def refined(task: Task) -> Outcome:
    size = task.paid_size()
    return refined_outcome(task, size, f"for about {size} rows")


def refined_outcome(task: Task, size: int, reason: str) -> Outcome:
    """Guarantee: 3/5 of what is left for the synopsis, 2/5 for the round; they add up.

    Sensitivity of the round: as in DPLloyd. A row's cluster, offset and clamp depend on that row and on what was
    published before; the offset is rounded to the lattice row by row.
    """
    synopsis = pruned_synopsis(task, size, task.meter.left * SYNOPSIS_SHARE)
    first = pruned_outcome(task, synopsis, reason)
    widths = cluster_widths(synopsis, first.centres)
    centres, sizes = offset_round(task, synopsis, first.centres, widths)
    return replace(first, centres=centres, sizes=sizes, method="refined")


def offset_round(
    task: Task, synopsis: Synopsis, centres: Floats, widths: Floats
) -> tuple[Floats, npt.NDArray[np.int64]]:
    epsilon, weight = task.meter.left, count_weight(task.attributes, _OFFSET_RHO)
    counts, sums = _offset_tallies(task.rows, centres, widths)
    noisy_counts, noisy_sums = noisy_tallies(counts, sums, epsilon, weight, task.meter)
    rows = np.maximum(noisy_counts, 1)[:, np.newaxis]
    per_sum = float(epsilon / (task.attributes + weight))
    within_cell = cell_variance(synopsis.side)
    trust = within_cell / (within_cell + 2 * np.square(widths / (per_sum * rows)))
    offsets = np.clip(noisy_sums / rows, -1, 1) * widths
    return np.clip(centres + trust * offsets, -1, 1), noisy_counts


def _offset_tallies(rows: Rows, centres: Floats, widths: Floats) -> tuple[Floats, Floats]:
    counts, sums = np.zeros(len(centres)), np.zeros(centres.shape)
    for block in rows.blocks():
        closest = members(block, centres)
        labels = closest.argmax(axis=0)
        offsets = np.empty_like(block)
        for axis, column in enumerate(block):
            parts = (column - centres[labels, axis]) / widths[labels, axis]
            offsets[axis] = np.rint(np.clip(parts, -1, 1) * LATTICE) / LATTICE
        add_to(counts, sums, closest, offsets)
    return counts, sums


def cluster_widths(synopsis: Synopsis, centres: Floats) -> Floats:
    """Half the width of every cluster along every attribute, as the synopsis shows it."""
    points, weights = synopsis.significant(len(centres))
    labels = nearest_points(points, centres)
    mass = np.maximum(np.bincount(labels, weights=weights, minlength=len(centres)), 1)
    widths = np.empty(centres.shape)
    for axis in range(centres.shape[1]):
        squared = weights * np.square(points[:, axis] - centres[labels, axis])
        variance = np.bincount(labels, weights=squared, minlength=len(centres)) / mass
        widths[:, axis] = _DEVIATIONS * np.sqrt(variance + cell_variance(synopsis.side))
    return np.minimum(widths, 2)


def cell_variance(side: int) -> float:
    """Of a position along one attribute, uniform within a cell: its squared width over 12."""
    return (2 / side) ** 2 / 12


def round_helps(size: int, epsilon: float, attributes: int, clusters: int) -> bool:
    """Whether the round is expected to place a centre better than a cell does.

    Clusters are taken for equal cubes that fill the domain, as in the seed's analysis (section 4.5.1).
    """
    for_synopsis = epsilon * float(SYNOPSIS_SHARE)
    cells = eugkm_cells(size, for_synopsis, attributes, PRUNED_THETA)
    side = side_for(cells, attributes, clusters)
    width = _DEVIATIONS * math.pow(clusters, -1 / attributes) / math.sqrt(3)
    per_sum = (epsilon - for_synopsis) / float(attributes + count_weight(attributes, _OFFSET_RHO))
    return 2 * (width * clusters / (per_sum * size)) ** 2 <= cell_variance(side)
