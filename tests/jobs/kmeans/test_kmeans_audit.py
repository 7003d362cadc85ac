"""Monte-Carlo audit of every method on neighbours chosen to hurt. What it does not find it does not disprove."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from streamdp.audit.monte_carlo import monte_carlo_lower_bound
from streamdp.jobs import KMeans
from streamdp.jobs.kmeans import METHODS
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource

# Beside a crowd on the other side of the domain, one row is alone in its cluster, or its cluster is empty.
CROWD = np.full((8, 1), -0.9)
WITH_LONER = np.vstack([CROWD, [[0.9]]])
EMPTY, ONLY = np.zeros((0, 1)), np.full((1, 1), 0.9)


def audited(method: str, epsilon: float, size: int | None) -> object:
    """What a model tells about the far side: sizes and centres there, coarsely, and the cells when they are published.

    All that an output holds is too much to count; an event of the coarse part is an event of the whole.
    """

    def mechanism(rows: np.ndarray, source: NoiseSource | None) -> Hashable:
        model = KMeans(2, epsilon, (-1, 1), method, size, source).fit(rows)
        far = int(model.cluster_centers_.argmax())
        centre = round(float(model.cluster_centers_[far, 0]) * 2)
        size_there = min(int(model.cluster_sizes_[far]), 3)
        last_cell = None if model.synopsis_ is None else max(-2, min(int(model.synopsis_.counts[-1]), 3))
        return model.method_used_, centre, size_there, last_cell

    return mechanism


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_method_loses_more_than_it_claims(method: str) -> None:
    for rows, neighbour, size in ((CROWD, WITH_LONER, None), (EMPTY, ONLY, 20)):
        bound = monte_carlo_lower_bound(
            audited(method, 2, size), rows, neighbour, trials=500, source=InsecureSeededSource(1)
        )
        assert bound.epsilon <= 2


@pytest.mark.slow
@pytest.mark.parametrize(("method", "epsilon"), [("eugkm", 8), ("refined", 8), ("dplloyd", 40)])
def test_the_audit_has_the_power_to_find_a_loss(method: str, epsilon: int) -> None:
    """The same audit refutes a claim that is much too low."""
    source = InsecureSeededSource(1)
    bound = monte_carlo_lower_bound(audited(method, epsilon, 20), EMPTY, ONLY, trials=500, source=source)
    assert bound.epsilon > 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_method_loses_more_than_it_claims_in_many_trials(method: str) -> None:
    for rows, neighbour, size in ((CROWD, WITH_LONER, None), (EMPTY, ONLY, 20)):
        bound = monte_carlo_lower_bound(
            audited(method, 1, size), rows, neighbour, trials=4000, source=InsecureSeededSource(2)
        )
        assert bound.epsilon <= 1
