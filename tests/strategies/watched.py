"""Data that rests and jumps, among enough records for a watch to see it."""

from typing import Any

import numpy as np

from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import Auto, make_strategy

CELLS, SHAPE = 64, (8, 8)
STILL = np.full(CELLS, 1_000, dtype=np.int64)


def build(seed: int, **settings: Any) -> Auto:
    strategy = make_strategy(
        "auto", cells=CELLS, shape=SHAPE, source=InsecureSeededSource(seed), **{"epsilon": 1, **settings}
    )
    assert isinstance(strategy, Auto)
    return strategy


def jumping(times: list[int], points: int) -> list[np.ndarray]:
    """Still, but at these points a quarter of everybody is suddenly elsewhere, or back."""
    away = STILL.copy()
    away[:32] -= 500
    away[32:] += 500
    series, is_away = [], False
    for point in range(1, points + 1):
        is_away ^= point in times
        series.append(away if is_away else STILL)
    return series
