"""Any batch that can be made up: row by row what the reference says."""

from __future__ import annotations

import json

import pytest
from decoder_samples import (
    ALL_SETTINGS,
    CHANGES,
    GOOD,
    GOOD_WITH_NAMES,
    KEYS,
    LATEST,
    NASTY,
    SCALARS,
    WRAPPED,
    check,
    own,
)
from hypothesis import given, settings
from hypothesis import strategies as st

fragments = st.sampled_from(SCALARS)

names = st.sampled_from(
    ["age", "city", "height", "visits", "shop", "who", "id", "ts", "op", "record", "x", "\\u0061ge"]
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | names, inner, max_size=4),
    max_leaves=8,
)

objects = st.lists(st.tuples(names, fragments), max_size=7).map(
    lambda pairs: "{" + ",".join(f'"{name}":{text}' for name, text in pairs) + "}"
)

overlays = st.dictionaries(names, fragments | objects, max_size=2)


def overlaid(changes: dict[str, str], last: bool) -> bytes:
    """A good message, some of whose fields are replaced or doubled."""
    record = {"age": "41", "city": '"y"', "height": "0.9", "visits": "-2", "shop": '"q"', "who": '"b"', "id": '"7"'}
    pairs = [*record.items(), *changes.items()] if last else [*changes.items(), *record.items()]
    text = "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"
    return own(record=text).encode("utf-8", "surrogatepass")


values = st.one_of(
    st.sampled_from(NASTY),
    st.binary(max_size=40),
    st.builds(overlaid, overlays, st.booleans()),
    st.builds(lambda ts, op, record: own(ts, op, record).encode(), fragments, st.just('"upsert"') | fragments, objects),
    json_values.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.builds(lambda value, cut: (value or b"")[:cut], st.sampled_from(NASTY), st.integers(0, 120)),
    st.builds(
        lambda value, place, byte: value[:place] + bytes([byte]) + value[place + 1 :],
        st.sampled_from([GOOD, GOOD_WITH_NAMES, CHANGES[0].encode(), WRAPPED[0].encode()]),
        st.integers(0, 100),
        st.integers(0, 255),
    ),
)

rows_of_a_batch = st.lists(
    st.tuples(st.sampled_from(KEYS), values | st.sampled_from([GOOD, GOOD_WITH_NAMES]), st.integers(-2, LATEST + 2)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ALL_SETTINGS), rows_of_a_batch)
def test_any_batch(which, rows):
    check(which, rows)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(ALL_SETTINGS), rows_of_a_batch)
def test_any_batch_at_length(which, rows):
    check(which, rows)
    for row in rows:
        check(which, [row])
