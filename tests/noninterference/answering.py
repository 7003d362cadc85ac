"""A noise source that dictates what every mechanism answers, whatever the data.

With the answers fixed, whatever still differs between two datasets was not paid for: privacy.md calls this
non-interference. A loss audit cannot see such things, because it looks at mechanisms and not at what goes round them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamdp.privacy.noise import InsecureSeededSource, NoiseSource, SystemSource, uniform_below
from streamdp.privacy.queries import Comparison, NoisySum, Query, RowDraws, Selection, ThresholdNoise


class AnsweringSource(NoiseSource):
    """The n-th answer is a function of the seed, of n and of what is public in the query.

    `asked` holds what is public of every query, in order. Sums look like counts that slowly grow, so that `auto` learns
    drift, forecasts and waits for alarms. A comparison is "above" one time in `rarity`.
    """

    def __init__(self, seed: int = 1, rarity: int = 6) -> None:
        self.asked: list[Hashable] = []
        self._seed, self._rarity = seed, rarity
        self._public = InsecureSeededSource(seed)
        self._private = InsecureSeededSource(seed + 1)

    def random_bytes(self, count: int) -> bytes:
        """Draws outside of any query: of centres to begin with, of synthetic rows. Their number must be public."""
        return self._public.random_bytes(count)

    def answer(self, query: Query, run: Callable[[], Any]) -> Any:
        if isinstance(query, RowDraws):
            # As many as there are rows, so they come from elsewhere.
            return uniform_below(query.bound, query.rows, self._private)
        self.asked.append(query.public)
        number = len(self.asked)
        digest = hashlib.sha256(repr((self._seed, number, query.public)).encode()).digest()
        generator = np.random.default_rng(list(digest))
        match query:
            case NoisySum(exact, scale):
                level = 300 + 2 * number
                shape = np.arange(exact.size).reshape(exact.shape)
                noise = generator.laplace(0, min(float(scale), 1e6), exact.shape)
                return np.rint(level * (1 + shape % 7) + noise).astype(np.int64)
            case ThresholdNoise(scale):
                return round(generator.laplace(0, float(scale)))
            case Comparison():
                return bool(generator.integers(self._rarity) == 0)
            case Selection(gaps):
                return int(generator.integers(gaps.size))


@contextmanager
def answered_by(source: AnsweringSource) -> Iterator[None]:
    """Inside, everything that would draw from the operating system asks `source`."""
    before = SystemSource.answer, SystemSource.random_bytes
    SystemSource.answer = lambda self, query, run: source.answer(query, run)  # type: ignore[method-assign]
    SystemSource.random_bytes = lambda self, count: source.random_bytes(count)  # type: ignore[method-assign]
    try:
        yield
    finally:
        SystemSource.answer, SystemSource.random_bytes = before  # type: ignore[method-assign]
