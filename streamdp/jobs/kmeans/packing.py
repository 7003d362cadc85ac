"""Initial centres that keep apart from each other and from the corners of the domain (Su et al. 2016).

Packings depend on the number of clusters and of attributes only, so they are public and cached. The generator behind
them has a fixed public key: it makes them the same everywhere and protects nobody.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from streamdp.arrays import Floats
from streamdp.privacy.noise import InsecureSeededSource

STARTS = 30
# Algorithm 12 leaves its number of trials open: a radius is too large when this many points a centre do not fit it.
_CANDIDATES_PER_CENTRE = 30
_MAX_CANDIDATES = 2000
_MAX_HALVINGS = 12
# Candidates times centres times halvings: a packing of very many centres is searched less, or not at all.
_MAX_WORK = 1 << 20


def public_uniform(key: int, shape: tuple[int, ...]) -> Floats:
    """Numbers in [0, 1) that anybody can draw again: for choices that are public, never for noise."""
    words = np.frombuffer(InsecureSeededSource(key).random_bytes(8 * int(np.prod(shape))), dtype="<u8")
    return (words >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53


@lru_cache(maxsize=4096)
def packed_centres(clusters: int, attributes: int, start: int) -> Floats:
    """Centres in [-1, 1]^d with the largest radius that a binary search finds; `start` numbers independent packings."""
    amount = max(clusters, min(_CANDIDATES_PER_CENTRE * clusters, _MAX_CANDIDATES))
    candidates = 2 * public_uniform((clusters << 64) + (attributes << 32) + start, (amount, attributes)) - 1
    best = candidates[:clusters]
    low, high = 0.0, float(np.sqrt(attributes))
    for _ in range(min(_MAX_HALVINGS, _MAX_WORK // (amount * clusters))):
        radius = (low + high) / 2
        packed = _pack(candidates, clusters, radius)
        if packed is None:
            high = radius
        else:
            best, low = packed, radius
    best.flags.writeable = False
    return best


def _pack(candidates: Floats, clusters: int, radius: float) -> Floats | None:
    """The first candidates at least `radius` from each corner and `2 * radius` from each other, if enough do."""
    free = np.square(1 - np.abs(candidates)).sum(axis=1) >= radius**2
    chosen = np.empty((clusters, candidates.shape[1]))
    for cluster in range(clusters):
        first = int(free.argmax())
        if not free[first]:
            return None
        chosen[cluster] = candidates[first]
        free &= np.square(candidates - candidates[first]).sum(axis=1) >= (2 * radius) ** 2
        free[first] = False
    return chosen


def packings(clusters: int, attributes: int, starts: int = STARTS) -> Floats:
    """That many packings, of shape (starts, clusters, attributes)."""
    return np.stack([packed_centres(clusters, attributes, start) for start in range(starts)])
