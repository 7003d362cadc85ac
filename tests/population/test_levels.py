"""Users' levels: looked up by digest, never rising, whatever order the news come in."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.population.levels import LevelTable

# Few words, so that digests often share their first one.
digests = st.tuples(st.integers(0, 3), st.integers(0, 3))
entries = st.lists(st.tuples(digests, st.integers(0, 4)), max_size=12)


def table(found: list[tuple[tuple[int, int], int]]) -> LevelTable:
    users = np.array([user for user, _ in found], np.uint64).reshape(-1, 2)
    return LevelTable.of_entries(users, np.array([level for _, level in found], np.uint8))


def as_dict(levels: LevelTable) -> dict[tuple[int, int], int]:
    pairs = zip(map(tuple, levels.users.tolist()), levels.levels.tolist(), strict=True)
    return dict(pairs)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.booleans(), entries), max_size=5), st.lists(digests, max_size=10))
def test_agrees_with_a_dictionary(news, asked) -> None:
    levels, model = LevelTable.empty(), dict[tuple[int, int], int]()
    for complete, found in news:
        fresh = {}
        for user, level in found:
            fresh[user] = min(level, fresh.get(user, level))
        before = dict(model)
        for user, level in fresh.items():
            model[user] = min(level, model.get(user, level))
        if complete:
            model |= {user: 0 for user in model if user not in fresh}
        after = levels.lowered_by(table(found), complete=complete)
        changed = {user: level for user, level in model.items() if before.get(user) != level}
        assert as_dict(after.changed_since(levels)) == changed
        levels = after
        assert as_dict(levels) == model
    assert levels.of(np.array(asked, np.uint64).reshape(-1, 2)).tolist() == [model.get(user, 0) for user in asked]
    assert levels.sizes(5) == [list(model.values()).count(level) for level in range(5)]


def test_a_million_users_are_joined_in_columns() -> None:
    words = np.random.default_rng(1).integers(0, 2**63, (1_000_000, 2), dtype=np.uint64)
    levels = np.arange(1_000_000) % 7
    found = LevelTable.of_entries(words, levels)
    assert (found.of(words[::-1]) == levels[::-1]).all()
    assert not found.of(words + np.uint64(1)).any()
