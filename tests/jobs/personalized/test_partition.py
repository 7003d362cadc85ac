"""The partitions are the best there are, and fast enough for a million users."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.jobs.personalized.partition import (
    precision,
    privacy_aware_partition,
    utility_partition,
    without_dominated,
)
from streamdp.jobs.personalized.preferences import Preferences

tables = st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 50)), min_size=1, max_size=7, unique_by=lambda t: t[0])


def worth(parts, epsilon, sizes, spread) -> float:
    users = np.array([sizes[start:end].sum() for start, end in parts], dtype=float)
    return float(precision(users, np.array([epsilon[start] for start, _ in parts]), spread).sum())


def waste(parts, epsilon, sizes) -> float:
    return sum(float((sizes[s:e] * (epsilon[s:e] - epsilon[s]) ** 2).sum()) for s, e in parts)


def all_partitions(levels: int):
    for count in range(levels):
        for cuts in combinations(range(1, levels), count):
            ends = (0, *cuts, levels)
            yield list(pairwise(ends))


@settings(max_examples=200, deadline=None)
@given(tables, st.sampled_from([0.0, 0.001, 0.2]), st.integers(1, 60))
def test_partitions_are_the_best_of_all(table, spread, smallest) -> None:
    table = sorted(table)
    epsilons = [Fraction(thousandths, 1000) for thousandths, _ in table]
    epsilon = np.array([float(each) for each in epsilons])
    sizes = np.array([size for _, size in table])
    floor = min(smallest, sizes.sum())
    allowed = [p for p in all_partitions(len(table)) if all(sizes[s:e].sum() >= floor for s, e in p)]
    found = utility_partition(epsilons, sizes, spread, smallest)
    assert found in allowed
    assert worth(found, epsilon, sizes, spread) == pytest.approx(max(worth(p, epsilon, sizes, spread) for p in allowed))
    aware = privacy_aware_partition(epsilons, sizes, spread, smallest)
    assert aware in allowed
    same_count = [p for p in allowed if len(p) == len(aware)]
    least = min(waste(p, epsilon, sizes) for p in same_count)
    assert waste(aware, epsilon, sizes) == pytest.approx(least, abs=1e-9)


def test_of_parts_with_equally_many_users_the_one_with_most_epsilon_stays() -> None:
    epsilons = [Fraction(1), Fraction(2), Fraction(3)]
    assert without_dominated([(0, 1), (1, 2), (2, 3)], epsilons, np.array([5, 7, 5])) == [(1, 2), (2, 3)]


def test_a_million_users_need_few_levels_and_none_is_rounded_up() -> None:
    values = np.random.default_rng(1).uniform(0.01, 1, 1_000_000)
    table = Preferences.of_table(values)
    assert len(table.epsilons) <= 256
    assert table.total == 1_000_000
    levels = table.levels_of(values)
    floats = table.floats()
    assert (floats[levels] <= values).all()
    assert (values - floats[levels]).max() < 0.0041
    assert (np.bincount(levels, minlength=len(floats)) == table.sizes).all()
    for partition in (utility_partition, privacy_aware_partition):
        parts = partition(table.epsilons, table.sizes, 0.05, 10_000)
        assert parts[0][0] == 0
        assert parts[-1][1] == len(table.epsilons)
