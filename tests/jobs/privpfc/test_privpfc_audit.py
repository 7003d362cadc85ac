"""Monte-Carlo audit over selection and counts, on neighbours that flip the best grid.

What it does not find it does not disprove; `test_privpfc_quality` computes the selection's loss exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

from streamdp.audit.monte_carlo import monte_carlo_lower_bound
from streamdp.domain import Attribute
from streamdp.jobs import PrivPfC
from streamdp.jobs.privpfc import Taxonomy
from streamdp.jobs.privpfc.grids import level_wise
from streamdp.jobs.privpfc.quality import Quality
from streamdp.jobs.privpfc.records import Records
from streamdp.jobs.privpfc.score import scores_of
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource

TAXONOMIES = [Taxonomy(Attribute.categorical(name, "ab")) for name in ("one", "two")]
Rows = list[tuple[int, int, int]]
# Attribute one tells the classes apart as well as attribute two does, until the last record speaks for one of them.
EVEN: Rows = [(0, 0, 0), (1, 1, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1)]
FLIPPED: Rows = [*EVEN, (1, 0, 1)]
EMPTY: Rows = []
ALONE: Rows = [(1, 1, 1)]


def best_grid(rows: Rows, counts_epsilon: Any) -> list[int]:
    one, two, labels = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    grids = level_wise([(1, 2), (1, 2)], 2, 100, None)
    records = Records.distinct(TAXONOMIES, [one, two], labels, 2, 2)
    scores = scores_of(records, grids, Quality.for_epsilon(as_fraction(counts_epsilon)), lambda *_: None)
    return list(grids[int(scores.argmax())])


def audited(epsilon: float, **settings: Any) -> Callable[[Rows, NoiseSource | None], Hashable]:
    """The grid, and coarsely the counts where the last record is."""

    def mechanism(rows: Rows, source: NoiseSource | None) -> Hashable:
        one, two, labels = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        model = PrivPfC(epsilon, TAXONOMIES, [0, 1], source=source, **settings).fit_codes(
            {"one": one, "two": two}, labels
        )
        counts = model.histogram_.counts.reshape(-1, 2)
        return tuple(model.grid_), min(int(counts[-1, 1]), 3), min(int(counts[0, 0]), 2)

    return mechanism


def test_one_record_flips_the_best_grid() -> None:
    assert best_grid(EVEN, 1) != best_grid(FLIPPED, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"size": 10}, {"size": 10, "selection": "exponential"}, {"size": 40, "rounds": 2}, {}]
)
def test_selection_and_counts_lose_no_more_than_they_claim(settings: dict[str, Any]) -> None:
    for rows, neighbour in ((EVEN, FLIPPED), (EMPTY, ALONE)):
        mechanism = audited(2, **settings)
        bound = monte_carlo_lower_bound(mechanism, rows, neighbour, trials=300, source=InsecureSeededSource(1))
        assert bound.epsilon <= 2


@pytest.mark.slow
def test_the_audit_has_the_power_to_find_a_loss() -> None:
    """The same audit refutes a claim that is much too low."""
    mechanism = audited(12, size=10)
    bound = monte_carlo_lower_bound(mechanism, EMPTY, ALONE, trials=300, source=InsecureSeededSource(1))
    assert bound.epsilon > 2


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["permute_and_flip", "exponential"])
def test_the_audit_of_the_grid_alone_finds_a_loss(selection: str) -> None:
    """On neighbours that flip the best grid, which of them was chosen tells nearly all that a selection may lose."""

    def mechanism(rows: Rows, source: NoiseSource | None) -> Hashable:
        return audited(12, size=10, selection=selection)(rows, source)[0]  # type: ignore[index]

    bound = monte_carlo_lower_bound(mechanism, EVEN, FLIPPED, trials=600, source=InsecureSeededSource(1))
    # The selection has 37/97 of 12.
    assert 1 < bound.epsilon <= 12 * 37 / 97


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("selection", ["permute_and_flip", "exponential"])
def test_selection_and_counts_lose_no_more_than_they_claim_in_many_trials(selection: str) -> None:
    # A public size of 40 leaves room for four cells: there are four grids to choose from.
    for settings in ({"size": 40}, {}):
        for rows, neighbour in ((EVEN, FLIPPED), (EMPTY, ALONE)):
            mechanism = audited(1, selection=selection, **settings)
            source = InsecureSeededSource(3)
            assert monte_carlo_lower_bound(mechanism, rows, neighbour, trials=20_000, source=source).epsilon <= 1
