from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture
def mixture() -> Callable[..., np.ndarray]:
    """Rows in [-1, 1]^d from Gaussian clusters of unequal size."""

    def rows(attributes: int, clusters: int, size: int, seed: int, spread: float = 0.08) -> np.ndarray:
        generator = np.random.default_rng(seed)
        centres = generator.uniform(-0.8, 0.8, (clusters, attributes))
        shares = np.arange(2, clusters + 2) / np.arange(2, clusters + 2).sum()
        labels = generator.choice(clusters, size, p=shares)
        return np.clip(centres[labels] + generator.normal(size=(size, attributes)) * spread, -1, 1)

    return rows
