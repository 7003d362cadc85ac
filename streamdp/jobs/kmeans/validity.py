"""How many clusters a published synopsis shows (Su 2016, section 4.6.7): post-processing, so at no cost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamdp.arrays import Floats


def ray_turi(centres: Floats, inertia: float, weight: float) -> float:
    """Mean squared distance to the own centre over the least squared distance of two centres; smaller is better.

    Ray and Turi 1999. Centres that coincide, or fewer than two, are the worst there is.
    """
    if len(centres) < 2 or weight <= 0:
        return float("inf")
    squared = np.square(centres[:, np.newaxis] - centres[np.newaxis]).sum(axis=2)
    apart = squared[np.triu_indices(len(centres), 1)].min()
    return max(inertia, 0) / weight / float(apart) if apart > 0 else float("inf")


def best_by_validity(candidates: range, cluster: Callable[[int], tuple[Floats, float]], weight: float) -> Floats:
    """The centres whose number has the best index; the smallest number among equals."""
    if len(candidates) == 1:
        return cluster(candidates[0])[0]
    found = [cluster(clusters) for clusters in candidates]
    indices = [ray_turi(centres, inertia, weight) for centres, inertia in found]
    return found[int(np.argmin(indices))][0]
