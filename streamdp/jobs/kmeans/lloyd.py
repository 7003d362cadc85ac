"""Lloyd's algorithm and k-means++ on weighted points, many starts at once. Points are public here: cells of a synopsis.

A signed weight may push a centre away, so a run on signed weights need not settle: rounds are capped.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.jobs.kmeans.packing import STARTS, public_uniform
from streamdp.jobs.kmeans.product import product

Labels = npt.NDArray[np.int64]

MAX_ROUNDS = 50
MAX_SIGNED_ROUNDS = 15
# Distances from a point to a centre that the clustering of a synopsis on signed counts may take: about two seconds.
MAX_DISTANCES = 1 << 28
# Points times centres that are looked at together: what bounds the memory of a step, and lets the cache hold it.
_STEP = 1 << 16
_SETTLED = 1e-9
_CANDIDATES = 3


def signed_starts(points: int, clusters: int) -> int:
    """How many starts `MAX_DISTANCES` allow, at least one; `clusters` is the sum of all numbers that are tried."""
    return min(max(MAX_DISTANCES // max(points * clusters * MAX_SIGNED_ROUNDS, 1), 1), STARTS)


def best_centres(points: Floats, weights: Floats, starts: Floats, rounds: int) -> tuple[Floats, float]:
    """The centres of least weighted inertia over all starts, of shape (starts, clusters, attributes)."""
    cloud = _Cloud(points, weights)
    # Noise can leave no cell with a count: the centres then stay at their start.
    together = max(1, _STEP // max(len(points) * starts.shape[1], 1))
    best, least = starts[0], np.inf
    for begin in range(0, len(starts), together):
        centres = _settle(cloud, starts[begin : begin + together], rounds)
        inertias = cloud.tally(centres)[2]
        if inertias.min() < least:
            best, least = centres[inertias.argmin()], inertias.min()
    return best, float(least)


def cluster_weights(points: Floats, weights: Floats, centres: Floats) -> Floats:
    """The weight of the points nearest to each centre."""
    return _Cloud(points, weights).tally(centres[np.newaxis])[0].reshape(-1)


def nearest_points(points: Floats, centres: Floats) -> Labels:
    cloud = _Cloud(points, np.ones(len(points)))
    return np.concatenate([labels[0] for _, labels, _ in cloud.assigned(centres[np.newaxis])])


def _settle(cloud: _Cloud, starts: Floats, rounds: int) -> Floats:
    """Rounds until every start has settled. A cluster without weight stays where it is."""
    centres = np.array(starts)
    moving = np.arange(len(centres))
    for _ in range(rounds):
        before = centres[moving]
        mass, sums, _ = cloud.tally(before)
        filled = mass > 0
        after = before.copy()
        after[filled] = np.clip(sums[filled] / mass[filled][:, np.newaxis], -1, 1)
        centres[moving] = after
        moving = moving[np.abs(after - before).max(axis=(1, 2)) > _SETTLED]
        if not moving.size:
            break
    return centres


class _Cloud:
    """Weighted points, looked at in parts that stay in the processor's cache."""

    def __init__(self, points: Floats, weights: Floats) -> None:
        self._columns = np.ascontiguousarray(points.T)
        self._weights = weights
        self._weighted = self._columns * weights
        self._norms = np.square(points).sum(axis=1)

    def assigned(self, centres: Floats) -> Iterator[tuple[slice, Labels, Floats]]:
        """Part by part: the nearest centre of each point and its squared distance, both of shape (starts, points)."""
        starts, clusters, attributes = centres.shape
        norms = (np.square(centres).sum(axis=2) / 2)[:, :, np.newaxis]
        together = max(1, _STEP // (starts * clusters))
        for begin in range(0, len(self._weights), together):
            part = slice(begin, begin + together)
            products = product(centres.reshape(-1, attributes), self._columns[:, part])
            scores = norms - products.reshape(starts, clusters, -1)
            yield part, scores.argmin(axis=1), np.maximum(2 * scores.min(axis=1) + self._norms[part], 0)

    def tally(self, centres: Floats) -> tuple[Floats, Floats, Floats]:
        """For every start: the clusters' weights, their weighted sums of coordinates, and the weighted inertia."""
        starts, clusters, attributes = centres.shape
        mass = np.zeros(starts * clusters)
        sums = np.zeros((attributes, starts * clusters))
        inertias = np.zeros(starts)
        offsets = (np.arange(starts) * clusters)[:, np.newaxis]
        for part, labels, distances in self.assigned(centres):
            flat = (labels + offsets).reshape(-1)
            mass += np.bincount(flat, np.tile(self._weights[part], starts), mass.size)
            for axis, column in enumerate(self._weighted):
                sums[axis] += np.bincount(flat, np.tile(column[part], starts), mass.size)
            inertias += (distances * self._weights[part]).sum(axis=1)
        shape = (starts, clusters)
        return mass.reshape(shape), np.moveaxis(sums.reshape(attributes, *shape), 0, 2), inertias


def seeded_starts(points: Floats, weights: Floats, clusters: int) -> Floats:
    """Starts by greedy k-means++ (Arthur, Vassilvitskii 2007), of shape (starts, clusters, attributes).

    A start is a function of the published points and of public numbers, so it costs nothing.
    """
    together = max(1, _STEP // (len(points) * _CANDIDATES))
    uniform = public_uniform(clusters, (STARTS, clusters, _CANDIDATES))
    return np.concatenate(
        [_seed(points, weights, uniform[begin : begin + together]) for begin in range(0, STARTS, together)]
    )


def _seed(points: Floats, weights: Floats, uniform: Floats) -> Floats:
    starts, clusters, _ = uniform.shape
    centres = np.empty((starts, clusters, points.shape[1]))
    norms = np.square(points).sum(axis=1)
    distances = np.ones((starts, len(points)))
    for cluster in range(clusters):
        # Of several candidates drawn with probability proportional to weight times squared distance, the one that
        # leaves the least inertia. The first centre is drawn by weight alone.
        cumulative = np.cumsum(distances * weights, axis=1)
        thresholds = uniform[:, cluster] * cumulative[:, -1:]
        drawn = np.stack([np.searchsorted(*row, side="right") for row in zip(cumulative, thresholds, strict=True)])
        candidates = points[np.minimum(drawn, len(points) - 1)]
        products = product(candidates.reshape(-1, points.shape[1]), points.T).reshape(*drawn.shape, -1)
        squared = np.square(candidates).sum(axis=2)[:, :, np.newaxis] - 2 * products + norms
        if cluster:
            np.minimum(squared, distances[:, np.newaxis], out=squared)
        np.maximum(squared, 0, out=squared)
        chosen = (squared * weights).sum(axis=2).argmin(axis=1)
        every = np.arange(starts)
        centres[:, cluster] = candidates[every, chosen]
        distances = squared[every, chosen]
    return centres
