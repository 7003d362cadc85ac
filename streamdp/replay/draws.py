"""Reproducible draws for made-up data and for random queries. Never for noise.

They come from the bytes of the seeded source, so that randomness keeps its one door.
"""

from __future__ import annotations

from math import pi

import numpy as np
from numpy.typing import NDArray

from streamdp.arrays import Floats, Integers
from streamdp.privacy.noise import InsecureSeededSource


class Draws:
    def __init__(self, seed: int) -> None:
        self._source = InsecureSeededSource(seed)

    def uniforms(self, count: int) -> Floats:
        """In [0, 1), 53 bits each."""
        words = np.frombuffer(self._source.random_bytes(8 * count), "<u8")
        uniforms: Floats = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return uniforms

    def integers(self, limit: int, count: int) -> Integers:
        """From 0 to limit - 1."""
        return np.minimum((self.uniforms(count) * limit).astype(np.int64), limit - 1)

    def normals(self, count: int) -> Floats:
        """Standard normal, by Box and Muller."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniforms(count)))
        normals: Floats = radius * np.cos(2.0 * pi * self.uniforms(count))
        return normals

    def choices(self, weights: Floats, count: int) -> Integers:
        """Indices, each with probability proportional to its weight."""
        bounds = np.cumsum(weights)
        found: Integers = np.searchsorted(bounds[:-1], self.uniforms(count) * bounds[-1], "right").astype(np.int64)
        return found

    def some(self, limit: int, count: int) -> Integers:
        """About `count` different integers from 0 to limit - 1, in random order: those of `count` draws that differ."""
        drawn = self.integers(limit, count)
        _, first = np.unique(drawn, return_index=True)
        return drawn[np.sort(first)]

    def shuffled(self, count: int) -> Integers:
        return np.argsort(self.uniforms(count), kind="stable").astype(np.int64)

    def yes(self, probability: float, count: int) -> NDArray[np.bool_]:
        return self.uniforms(count) < probability
