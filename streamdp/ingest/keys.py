"""Message keys as users.

A key is opaque bytes, except that one which is a JSON object is read as Kafka Connect writes it: what counts is the
`payload` of `{"schema": ..., "payload": ...}`, in canonical form. Otherwise a change of the key's schema would turn
every user into somebody else, and one person would be counted twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamdp.ingest.strict_json import canonical, loads
from streamdp.transport.batch import Blobs

_BRACE = ord("{")

# An object with one field, spelled exactly as `canonical` would spell it.
_ONE_FIELD = r'^\{"[ !#-\[\]-~]+":(?:0|-?[1-9][0-9]{0,17}|"[ !#-\[\]-~]*")\}$'
_PAYLOAD = b'"payload":'


def user_of_key(key: bytes | None) -> bytes | None:
    """The bytes that name the user, or None when the key names nobody."""
    if not key:
        return None
    found, payload = _payload(key)
    if not found:
        return key
    return None if payload is None else canonical(payload)


def key_object(key: bytes | None) -> dict[str, Any]:
    """The fields of a key that is an object; no fields for any other."""
    if not key:
        return {}
    _, payload = _payload(key)
    return payload if isinstance(payload, dict) else {}


def _payload(key: bytes) -> tuple[bool, Any]:
    """Whether the key is a JSON object, and what it says."""
    if key[0] != _BRACE:
        return False, None
    try:
        fields = loads(key)
    except ValueError:
        return False, None
    if "payload" in fields and fields.keys() <= {"schema", "payload"}:
        return True, fields["payload"]
    return True, fields


def users_of_keys(keys: Blobs) -> Blobs:
    """`user_of_key` of a column."""
    if not len(keys) or not keys.nbytes:
        return keys
    content = np.frombuffer(keys.data, np.uint8)
    braces = content.take(keys.starts[:-1], mode="clip") == _BRACE
    braces &= keys.lengths() > 0
    if not braces.any():
        return keys
    column = keys.to_arrow()
    plain = _matches(column) & ~_true(pc.starts_with(column, "{" + _PAYLOAD.decode()))
    unread = braces & ~plain
    if unread.any():
        column, unread = _unwrap(column, unread)
    if unread.any():
        rows = np.flatnonzero(unread)
        texts = pa.array([user_of_key(keys[row]) for row in rows.tolist()], pa.large_binary())
        column = pc.replace_with_mask(column, pa.array(unread), texts)
    return Blobs.from_arrow(column)


def _unwrap(column: pa.LargeBinaryArray, unread: NDArray[np.bool_]) -> tuple[pa.LargeBinaryArray, NDArray[np.bool_]]:
    """Cut the payload out of keys that share the first one's schema and hold one field; return who is left."""
    first = column[int(np.argmax(unread))].as_py()
    prefix = first[: first.find(_PAYLOAD) + len(_PAYLOAD)]
    try:
        fields = loads(prefix + b"null}")
    except ValueError:
        return column, unread
    if not isinstance(fields, dict) or not fields.keys() <= {"schema", "payload"}:
        return column, unread
    payload = pc.binary_slice(column, len(prefix), -1)
    cut = unread & _true(pc.starts_with(column, prefix)) & _true(pc.ends_with(column, b"}")) & _matches(payload)
    return pc.if_else(pa.array(cut), payload, column), unread & ~cut


def _matches(column: pa.LargeBinaryArray) -> NDArray[np.bool_]:
    return _true(pc.match_substring_regex(column, _ONE_FIELD))


def _true(mask: pa.BooleanArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return found
