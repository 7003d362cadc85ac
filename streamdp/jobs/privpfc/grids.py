"""Which grids to choose from: a public list, or one made from what has been paid for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamdp.privacy.noise import NoiseSource, uniform_below

# A grid is the level of every attribute, 0 for the whole domain; a pool has a row for each grid.
Grid = npt.NDArray[np.int16]
Grids = npt.NDArray[np.int16]
Nodes = Sequence[tuple[int, ...]]

# Bounds the memory of an enumeration over very many attributes.
_MAX_STEPS = 2**22
_MAX_CHANGES = 2**10


def level_wise(nodes: Nodes, max_cells: int, max_grids: int, source: NoiseSource | None) -> Grids:
    """The whole domain, then all grids that divide one attribute, two, and so on, of at most `max_cells` cells.

    `nodes[a][l]` is the number of nodes of attribute `a` on level `l`. Each grid is made once: an attribute is added
    behind those already divided. Where `max_grids` cuts, a uniform subset of that number of attributes is taken. The
    whole domain is always there, so there is something to choose however small `max_cells` is.
    """
    pool: Grids = np.zeros((1, len(nodes)), dtype=np.int16)
    frontier, last = pool, np.full(1, -1)
    every_level = sum(len(own) - 1 for own in nodes)
    while len(frontier) and len(pool) < max_grids and every_level:
        thinned = _subset(len(frontier), max(_MAX_STEPS // every_level, 1), source)
        frontier, last = frontier[thinned], last[thinned]
        cells = _cell_counts(frontier, nodes)
        steps = []
        for attribute, own in enumerate(nodes):
            before = np.flatnonzero(last < attribute)
            for level in range(1, len(own)):
                parents = before[cells[before] * own[level] <= max_cells]
                steps.append(np.column_stack([parents, np.full_like(parents, attribute), np.full_like(parents, level)]))
        table = np.concatenate(steps)
        parents, last, levels = table[_subset(len(table), max_grids - len(pool), source)].T
        frontier = frontier[parents]
        frontier[np.arange(len(frontier)), last] = levels
        pool = np.concatenate([pool, frontier])
    return pool


def around(grid: Grid, nodes: Nodes, max_cells: int, max_grids: int, source: NoiseSource | None) -> Grids:
    """The grid and those that differ from it in one attribute or two, of at most `max_cells` cells.

    Where `max_grids` cuts, a uniform subset of those that differ in as many attributes is taken.
    """
    others = [(place, level) for place, own in enumerate(nodes) for level in range(len(own)) if level != grid[place]]
    changes = np.array(others, dtype=np.int64).reshape(-1, 2)
    some = changes[_subset(len(changes), _MAX_CHANGES, source)]
    one, other = np.triu_indices(len(some), 1)
    apart = some[one, 0] != some[other, 0]
    pool = grid[np.newaxis]
    for choices in ([changes], [some[one[apart]], some[other[apart]]]):
        made = np.repeat(grid[np.newaxis], len(choices[0]), axis=0)
        for attributes, levels in (choice.T for choice in choices):
            made[np.arange(len(made)), attributes] = levels
        made = made[_cell_counts(made, nodes) <= max_cells]
        pool = np.concatenate([pool, made[_subset(len(made), max_grids - len(pool), source)]])
    return pool


def _cell_counts(grids: Grids, nodes: Nodes) -> npt.NDArray[np.float64]:
    """The number of cells of each grid; a float, for it may be beyond any integer type."""
    cells = np.ones(len(grids))
    for own, levels in zip(nodes, grids.T, strict=True):
        cells *= np.array(own, dtype=np.float64)[levels]
    return cells


def _subset(size: int, most: int, source: NoiseSource | None) -> npt.NDArray[np.intp]:
    """All of `size` places, or a uniform subset of `most`, in order."""
    if size <= most:
        return np.arange(size)
    keys = uniform_below(2**63, size, source)
    return np.sort(np.argpartition(keys, most)[: max(most, 0)])
