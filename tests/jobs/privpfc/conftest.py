from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamdp.domain import Attribute
from streamdp.jobs.privpfc import Taxonomy

JOBS = {"office": ["clerk", "manager"], "field": ["driver", "farmer", "miner"]}


@pytest.fixture
def taxonomies() -> list[Taxonomy]:
    return [
        Taxonomy(Attribute.integer("age", 0, 99)),
        Taxonomy(Attribute.categorical("job", ["clerk", "driver", "farmer", "manager", "miner"]), JOBS),
        Taxonomy(Attribute.real("height", 1, 2, bins=16, outside="clamp")),
        Taxonomy(Attribute.categorical("planet", ["earth"])),
    ]


@pytest.fixture
def people() -> Callable[[int, int], tuple[dict[str, np.ndarray], np.ndarray]]:
    """Rows whose class is known from age and job, nine times in ten; height says nothing."""

    def make(size: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        generator = np.random.default_rng(seed)
        jobs = np.array(["clerk", "driver", "farmer", "manager", "miner"])
        columns = {
            "age": generator.integers(0, 100, size),
            "job": generator.choice(jobs, size),
            "height": generator.uniform(1, 2, size),
            "planet": np.full(size, "earth"),
        }
        rich = (columns["age"] >= 50) ^ np.isin(columns["job"], ["clerk", "manager"])
        rich ^= generator.random(size) < 0.1
        return columns, np.where(rich, "rich", "poor")

    return make
