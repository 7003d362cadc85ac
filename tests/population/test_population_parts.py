"""The batch, index and counting primitives against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from streamdp.population import counts as counts_module
from streamdp.population.batch import by_digest, newest_of_each
from streamdp.population.index import REMOVED, SlotIndex


@pytest.mark.parametrize("distinct", [1, 7, 500])
@pytest.mark.parametrize("prefix_only", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_newest_of_each(distinct: int, prefix_only: bool, ordered: bool) -> None:
    random = np.random.default_rng(distinct)
    keys = random.integers(0, 2**64, (distinct, 2), dtype=np.uint64)
    if prefix_only:
        # Differ only in bits that the sort word gives to the position, or in the second word.
        keys[:, 0] = np.uint64(1 << 63) + np.arange(distinct, dtype=np.uint64) % np.uint64(4)
    digests = keys[random.integers(0, distinct, 1000)]
    ts = np.arange(1000) // 3 if ordered else random.integers(0, 20, 1000)
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    sizes: dict[tuple[int, int], int] = {}
    for place, key in enumerate(map(tuple, digests.tolist())):
        sizes[key] = sizes.get(key, 0) + 1
        expected[key] = max(expected.get(key, (-1, -1)), (int(ts[place]), place))
    chosen, counted = newest_of_each(digests, ts)
    found = {tuple(digests[place].tolist()): (int(ts[place]), int(place)) for place in chosen}
    assert found == expected
    assert {tuple(digests[place].tolist()): int(size) for place, size in zip(chosen, counted, strict=True)} == sizes


def test_by_digest_of_one_row() -> None:
    order, first = by_digest(np.array([[5, 6]], np.uint64))
    assert (order.tolist(), first.tolist()) == ([0], [True])


@pytest.mark.parametrize("crowded", [False, True])
def test_index_against_a_dictionary(crowded: bool) -> None:
    random = np.random.default_rng(3)
    core = np.zeros((2000, 4), np.uint64)
    core[:, :2] = random.integers(0, 2**64, (2000, 2), dtype=np.uint64)
    if crowded:
        core[:, 0] |= np.uint64(0xFFFFFFFF << 32)  # every home is the last slot, so probes wrap round
    index, held = SlotIndex(), set()
    for _ in range(60):
        absent = np.array(sorted(set(range(2000)) - held), np.uint32)
        come = random.choice(absent, min(len(absent), int(random.integers(1, 60))), replace=False)
        if index.has_room(len(come)):
            index.insert(core[come, 0], come)
        else:
            rows = np.array(sorted(held | set(come.tolist())), np.uint32)
            index.rebuild(len(rows), [(core[part, 0], part) for part in np.array_split(rows, 3)])
        held |= set(come.tolist())
        go = random.choice(np.array(sorted(held), np.uint32), int(random.integers(0, len(held))) // 2, replace=False)
        index.move(core[go, 0], go, np.full(len(go), REMOVED))
        held -= set(go.tolist())
        found, row, lines = index.find(core[:, 0], core[:, 1], core)
        assert set(np.flatnonzero(found).tolist()) == held
        assert (row[found] == np.flatnonzero(found)).all()
        assert (lines[found] == core[found]).all()
        assert index.keys == len(held)
        assert 2 * index.keys <= len(index.slots)


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_net_changes_by_either_way(size: int) -> None:
    random = np.random.default_rng(5)
    left, came = random.integers(0, size, 300), random.integers(0, size, 200)
    came[:50] = left[:50]
    expected = np.bincount(came, minlength=size) - np.bincount(left, minlength=size)
    cells, changes = counts_module._net(size, left, came)
    assert (cells == np.flatnonzero(expected)).all()
    assert (changes == expected[cells]).all()
    for nothing in counts_module._net(size, left[:0], came[:0]):
        assert len(nothing) == 0
