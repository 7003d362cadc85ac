import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.errors import ConfigurationError
from streamdp.strategies.statistic import L1Distance

RELEASED = np.array([10, 0, 5, 5, -3, 0, 8], dtype=np.int64)
COUNTS = np.array([12, 1, 1, 5, 0, 0, 6], dtype=np.int64)


def test_cell_by_cell() -> None:
    assert L1Distance(7).between(COUNTS, RELEASED) == 2 + 1 + 4 + 0 + 3 + 0 + 2


def test_groups_of_neighbouring_cells() -> None:
    # Differences 2, 1, -4, 0, 3, 0, -2 in groups of 2, 2 and 3 cells.
    assert L1Distance(7, 3).between(COUNTS, RELEASED) == 3 + 4 + 1
    assert L1Distance(7, 7).between(COUNTS, RELEASED) == L1Distance(7).between(COUNTS, RELEASED)
    assert L1Distance(7, 1).between(COUNTS, RELEASED) == 0


def test_groups_named_cell_by_cell() -> None:
    groups = np.array([9, 2, 9, 2, 2, 5, 5])
    assert L1Distance(7, groups).between(COUNTS, RELEASED) == abs(2 - 4) + abs(1 + 0 + 3) + abs(-2)


@pytest.mark.parametrize("groups", [0, 8, np.zeros(6, dtype=np.int64), np.zeros(7)])
def test_impossible_groups_are_refused(groups: object) -> None:
    with pytest.raises(ConfigurationError, match="groups"):
        L1Distance(7, groups)  # type: ignore[arg-type]


cells = st.lists(st.integers(-1_000, 1_000), min_size=7, max_size=7).map(lambda x: np.array(x, dtype=np.int64))


@settings(deadline=None)
@given(
    counts=cells,
    released=cells,
    groups=st.none() | st.integers(1, 7) | st.lists(st.integers(0, 3), min_size=7, max_size=7),
    moved=st.lists(st.integers(0, 6), max_size=4),
)
def test_a_user_with_m_records_moves_the_distance_by_at_most_m(
    counts: np.ndarray, released: np.ndarray, groups: object, moved: list[int]
) -> None:
    distance = L1Distance(7, np.array(groups) if isinstance(groups, list) else groups)  # type: ignore[arg-type]
    with_user = counts + np.bincount(np.array(moved, dtype=np.int64), minlength=7)
    assert abs(distance.between(with_user, released) - distance.between(counts, released)) <= len(moved)


def test_groups_have_a_far_lower_noise_floor() -> None:
    generator = np.random.default_rng(1)
    counts = np.full(10_000, 50, dtype=np.int64)
    noisy = counts + np.rint(generator.laplace(0, 20, counts.size)).astype(np.int64)
    assert L1Distance(10_000, 20).between(counts, noisy) < L1Distance(10_000).between(counts, noisy) / 10
