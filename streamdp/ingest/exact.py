"""The meaning of one message, said plainly in Python: the reference the vectorised path must agree with.

It reads the rows that the vectorised path cannot vouch for, and nothing else, so it may be slow but never wrong. What
a message becomes is a function of its own key, value and timestamp and of the public limit: not of its neighbours, and
not of which path read it.

The checks come in one order, and the first that fails is the reason: JSON, object, envelope, op, timestamp, record,
unknown attributes, user, record id, attributes one by one, domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from streamdp.domain import Domain
from streamdp.ingest.decoded import Reason
from streamdp.ingest.keys import key_object, user_of_key
from streamdp.ingest.strict_json import loads

MAX_MILLISECONDS = 2**63 - 1

Envelope = Literal["own", "debezium", "wrapped"]

ENVELOPE_FIELDS = frozenset({"ts", "op", "record"})
UPSERT, DELETE = "upsert", "delete"
DEBEZIUM_UPSERTS = ("c", "u", "r")
DEBEZIUM_DELETE = "d"


class Rejected(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


@dataclass(frozen=True, slots=True, repr=False)
class Row:
    """A message that is good so far: whether its values lie in the domain is for the columns to tell."""

    ts: int
    delete: bool
    user: bytes
    record: bytes | None
    values: tuple[Any, ...]
    """One per attribute: text, int or float; empty for a delete."""


def envelope_of(message: dict[str, Any]) -> Envelope:
    if message.get("before") is not None or message.get("after") is not None:
        return "debezium"
    return "wrapped" if isinstance(message.get("payload"), dict) else "own"


def record_of(message: dict[str, Any]) -> dict[str, Any]:
    """The record, the row after a change, or the one before; whichever is an object first."""
    envelope = envelope_of(message)
    holder = message["payload"] if envelope == "wrapped" else message
    candidates = (holder.get(name) for name in (("record",) if envelope == "own" else ("after", "before")))
    return next((candidate for candidate in candidates if isinstance(candidate, dict)), {})


def text_of(value: Any) -> bytes:
    """The bytes that name a user or a record: the text of a string, the digits of an integer.

    5 and "5" are the same user on purpose: were they two, one person would be counted, and protected, twice.
    """
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise Rejected(Reason.WRONG_TYPE) from None
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return b"%d" % value
    raise Rejected(Reason.WRONG_TYPE)


class ExactReader:
    """Reads one message at a time. `user` is "key" or a field of the record; `record_id` a field or None."""

    def __init__(self, domain: Domain, user: str, record_id: str | None) -> None:
        self._domain = domain
        self._user = None if user == "key" else user
        self._record_id = record_id
        self._known = frozenset(domain.names) | {name for name in (self._user, record_id) if name is not None}

    def read(self, key: bytes | None, value: bytes | None, timestamp: int, latest: int | None) -> Row | Reason:
        try:
            return self._read(key, value, timestamp, latest)
        except Rejected as rejected:
            return rejected.reason

    def _read(self, key: bytes | None, value: bytes | None, timestamp: int, latest: int | None) -> Row:
        if value is None:
            ts = _checked(timestamp, latest)
            source = key_object(key)
            return Row(ts, True, self._user_text(key, source), self._record_text(source), ())
        try:
            message = loads(value)
        except ValueError:
            raise Rejected(Reason.BAD_JSON) from None
        if not isinstance(message, dict):
            raise Rejected(Reason.NOT_AN_OBJECT)
        envelope = envelope_of(message)
        if envelope == "own":
            return self._own(key, message, timestamp, latest)
        return self._debezium(key, message if envelope == "debezium" else message["payload"], timestamp, latest)

    def _own(self, key: bytes | None, message: dict[str, Any], timestamp: int, latest: int | None) -> Row:
        if not message.keys() <= ENVELOPE_FIELDS:
            raise Rejected(Reason.UNKNOWN_FIELD)
        op = message.get("op")
        if op is None:
            raise Rejected(Reason.MISSING_FIELD)
        if op not in (UPSERT, DELETE):
            raise Rejected(Reason.UNKNOWN_OP)
        own_ts = message.get("ts")
        ts = _checked(timestamp if own_ts is None else own_ts, latest)
        record = message.get("record")
        record = {} if record is None and op == DELETE else _object(record)
        if not record.keys() <= self._known:
            raise Rejected(Reason.UNKNOWN_ATTRIBUTE)
        return self._row(ts, op == DELETE, key, record)

    def _debezium(self, key: bytes | None, message: dict[str, Any], timestamp: int, latest: int | None) -> Row:
        op = message.get("op")
        if op is None:
            raise Rejected(Reason.MISSING_FIELD)
        delete = op == DEBEZIUM_DELETE
        if not delete and op not in DEBEZIUM_UPSERTS:
            raise Rejected(Reason.UNKNOWN_OP)
        # Per key a change stream is ordered by offset, and so are its messages' timestamps. The database's own, inside,
        # are older: by them a row inserted again soon after its delete would lose to the null that follows a delete.
        ts = _checked(timestamp, latest)
        if not delete:
            return self._row(ts, delete, key, _object(message.get("after")))
        # What the table's replica identity leaves out of `before` may still be in the key.
        before = message.get("before")
        before = {} if before is None else _object(before)
        held = {name: field for name, field in before.items() if field is not None}
        return self._row(ts, delete, key, key_object(key) | held)

    def _row(self, ts: int, delete: bool, key: bytes | None, record: dict[str, Any]) -> Row:
        user, record_id = self._user_text(key, record), self._record_text(record)
        values = () if delete else tuple(_value(record.get(a.name), a.kind) for a in self._domain.attributes)
        return Row(ts, delete, user, record_id, values)

    def _user_text(self, key: bytes | None, record: dict[str, Any]) -> bytes:
        if self._user is None:
            text = user_of_key(key)
        else:
            named = record.get(self._user)
            text = None if named is None else text_of(named)
        if not text:
            raise Rejected(Reason.NO_USER)
        return text

    def _record_text(self, record: dict[str, Any]) -> bytes | None:
        if self._record_id is None:
            return None
        named = record.get(self._record_id)
        if named is None:
            raise Rejected(Reason.MISSING_FIELD)
        return text_of(named)


def _value(value: Any, kind: str) -> Any:
    if value is None:
        raise Rejected(Reason.MISSING_FIELD)
    if isinstance(value, bool):
        raise Rejected(Reason.WRONG_TYPE)
    if kind == "categorical":
        right: bool = isinstance(value, str)
    elif kind == "integer":
        right = isinstance(value, int)
    else:
        right = isinstance(value, int | float)
    if not right:
        raise Rejected(Reason.WRONG_TYPE)
    return value


def _checked(ts: Any, latest: int | None) -> int:
    if not isinstance(ts, int) or isinstance(ts, bool) or not 0 <= ts <= MAX_MILLISECONDS:
        raise Rejected(Reason.BAD_TIMESTAMP)
    if latest is not None and ts > latest:
        raise Rejected(Reason.TOO_FAR_AHEAD)
    return ts


def _object(record: Any) -> dict[str, Any]:
    if record is None:
        raise Rejected(Reason.MISSING_FIELD)
    if not isinstance(record, dict):
        raise Rejected(Reason.WRONG_TYPE)
    return record
