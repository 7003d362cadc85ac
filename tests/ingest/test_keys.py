"""Keys as users: a column gives what each key gives alone."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_reference import user_of_key as reference

from streamdp.ingest.keys import key_object, user_of_key, users_of_keys
from streamdp.transport.batch import Blobs

SCHEMA = b'{"type":"struct","fields":[{"field":"id"}]}'
SCHEMAS = [SCHEMA, b"1"]

values = st.integers(-5, 2**70) | st.text(max_size=4) | st.none() | st.floats() | st.booleans()
payloads = st.dictionaries(st.sampled_from(["id", "payload", "schema", "é", ""]), values, max_size=2) | values
texts = st.builds(
    lambda value, spaced, ascii: json.dumps(
        value, separators=None if spaced else (",", ":"), ensure_ascii=ascii
    ).encode("utf-8", "surrogatepass"),
    payloads,
    st.booleans(),
    st.booleans(),
)
keys = st.one_of(
    st.none(),
    st.binary(max_size=12),
    texts,
    st.builds(
        lambda schema, text: b'{"schema":%s,"payload":%s}' % (schema, text), st.sampled_from([SCHEMA, b"1"]), texts
    ),
    st.builds(lambda text: b'{"payload":%s,"schema":1}' % text, texts),
    st.builds(lambda text, more: text + more, texts, st.sampled_from([b"}", b"\n", b" ", b"x"])),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(keys, max_size=12))
def test_a_column_of_keys(column):
    expected = [reference(key) or b"" for key in column]
    assert [user_of_key(key) or b"" for key in column] == expected
    assert [user or b"" for user in users_of_keys(Blobs.from_list(column))] == expected


def test_a_changed_schema_or_spelling_does_not_change_the_user():
    spellings = [
        b'{"id":7,"shop":"a"}',
        b'{ "shop": "a", "id": 7 }',
        b'{"schema":{"v":1},"payload":{"id":7,"shop":"a"}}',
        b'{"payload":{"shop":"a","id":7},"schema":{"v":2}}',
    ]
    users = users_of_keys(Blobs.from_list(spellings))
    assert len({bytes(user or b"") for user in users}) == 1
    assert all(key_object(key) == {"id": 7, "shop": "a"} for key in spellings)


def test_a_key_that_is_no_object_is_its_bytes():
    opaque = [b"anna", b"\xff", b"7", b'"anna"', b"[1]", b"{", b' {"id":7}']
    assert list(users_of_keys(Blobs.from_list(opaque))) == opaque
    assert all(key_object(key) == {} for key in opaque)


def test_keys_that_share_a_schema_are_unwrapped_together():
    column = Blobs.from_list([b'{"schema":%s,"payload":{"id":%d}}' % (SCHEMA, i) for i in range(1000)])
    users = users_of_keys(column)
    assert list(users) == [b'{"id":%d}' % i for i in range(1000)]
    assert users.lengths().dtype == np.int64
