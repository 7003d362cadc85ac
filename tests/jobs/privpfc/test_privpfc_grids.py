from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from streamdp.jobs.privpfc.grids import around, level_wise
from streamdp.privacy.noise import InsecureSeededSource

NODES = [(1, 2, 4), (1, 3), (1,), (1, 2, 5, 9)]


def every_grid(max_cells: int) -> set[tuple[int, ...]]:
    return {
        grid
        for grid in product(*(range(len(own)) for own in NODES))
        if np.prod([own[level] for own, level in zip(NODES, grid, strict=True)]) <= max_cells
    }


@pytest.mark.parametrize("max_cells", [0, 1, 2, 6, 20, 10**6])
def test_each_grid_within_the_cells_is_made_once(max_cells: int) -> None:
    pool = [tuple(grid) for grid in level_wise(NODES, max_cells, 10**4, None).tolist()]
    assert len(pool) == len(set(pool))
    assert set(pool) == every_grid(max_cells) | {(0, 0, 0, 0)}


def test_fewer_attributes_come_first_and_the_cut_is_a_random_subset_of_its_level() -> None:
    first = {grid for grid in every_grid(10**6) if np.count_nonzero(grid) <= 1}
    second = {grid for grid in every_grid(10**6) if np.count_nonzero(grid) == 2}
    seen: set[tuple[int, ...]] = set()
    for seed in range(200):
        pool = {tuple(grid) for grid in level_wise(NODES, 10**6, len(first) + 2, InsecureSeededSource(seed)).tolist()}
        assert first < pool
        assert len(pool - first) == 2
        assert pool - first < second
        seen |= pool - first
    assert seen == second


def test_around_a_grid_are_those_that_differ_in_one_attribute_or_two() -> None:
    grid = (1, 0, 0, 2)
    near = {other for other in every_grid(20) if sum(one != two for one, two in zip(grid, other, strict=True)) <= 2}
    pool = [tuple(row) for row in around(np.array(grid, dtype=np.int16), NODES, 20, 10**4, None).tolist()]
    assert len(pool) == len(set(pool))
    assert set(pool) == near
    few = around(np.array(grid, dtype=np.int16), NODES, 20, 3, InsecureSeededSource(1))
    assert len(few) == 3
    assert tuple(few[0]) == grid


def test_many_attributes_do_not_exhaust_memory() -> None:
    nodes = [(1, 2, 4, 8, 16, 32)] * 150
    pool = level_wise(nodes, 100, 2_000, InsecureSeededSource(1))
    assert pool.shape == (2_000, 150)
    assert len(around(pool[-1], nodes, 100, 2_000, InsecureSeededSource(1))) == 2_000


def test_where_nothing_can_be_divided_there_is_one_grid() -> None:
    nodes = [(1,), (1,)]
    assert level_wise(nodes, 100, 100, None).tolist() == [[0, 0]]
    assert around(np.zeros(2, dtype=np.int16), nodes, 100, 100, None).tolist() == [[0, 0]]
