"""What a trace is: the words of its format, and the one way to read a single line exactly.

A trace is JSON lines (docs/replay.md). Its first line may be a header, `{"streamdp_trace": 1, ...}`; every other line
is a message, in full or in short, or a mark of the clock. What a message *says* is never judged here: a payload that
makes no sense takes the way of any such payload. Only a line that is no message and no mark is broken.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from streamdp.errors import ConfigurationError, StreamdpError
from streamdp.ingest.strict_json import loads

FORMAT = 1
VERSION_FIELD = "streamdp_trace"

MAX_PARTITIONS = 1 << 10
LONGEST_MESSAGE = 2 << 20
"""Bytes of key and value that any trace may hold; more only where the configuration's `max_record_bytes` is more."""
_ESCAPED = 8
"""JSON writes a byte in six at most (`\\u0000`); the rest is room for the other fields."""
_INT64 = range(-(2**63), 2**63)


def longest_message(max_record_bytes: int) -> int:
    """Bytes of key and value that a trace of a stream with this limit holds of a message, at most."""
    return max(LONGEST_MESSAGE, max_record_bytes)


def longest_line(max_record_bytes: int = 0) -> int:
    """Bytes of a line, at most."""
    return _ESCAPED * longest_message(max_record_bytes)


class BrokenTrace(StreamdpError):
    """A line, or the file around it, is not what a trace holds. Never quotes the line: it is private."""

    def __init__(self, name: str, line: int, what: str, advice: str = "--skip-bad passes over such lines") -> None:
        super().__init__(f"{name}, line {line}: {what}; {advice}")
        self.line = line


class BrokenLine(ValueError):
    """Why one line is broken, without saying where it stands."""


class TraceMismatch(ConfigurationError):
    """The trace is sound, but belongs to another configuration."""

    def __init__(self, name: str, line: int, what: str) -> None:
        super().__init__(f"{name}, line {line}: {what}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Header:
    """What a trace says of itself; every field may be missing.

    Point 1 opened at `first_open` and points are `length` long, in milliseconds. Messages above the mark `{"open": 1}`
    were waiting when the stream began, and were taken with timestamps up to `backlog_latest_ts`.
    """

    stream: str | None = None
    domain: str | None = None
    """The fingerprint of the domain the messages were made for."""
    first_open: int | None = None
    length: int | None = None
    backlog_latest_ts: int | None = None
    marks: bool | None = None
    """Whether the trace has marks; None when only reading it would tell."""

    def to_json(self) -> bytes:
        given = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        return json.dumps({VERSION_FIELD: FORMAT, **given}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Mark:
    """The clock's word at a line: point `time_point` closes, or (`opens`) what was waiting ends and the point opens."""

    line: int
    time_point: int
    opens: bool = False
    missed: bool = False
    """Nobody watched the point, nor those between it and the mark before."""

    def to_json(self) -> bytes:
        what: dict[str, Any] = {"open" if self.opens else "close": self.time_point}
        return json.dumps({**what, "missed": True} if self.missed else what, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, repr=False)
class Row:
    """One message."""

    topic: str | None
    """None in the short form: the configuration's first topic."""
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_header(line: bytes) -> Header | None:
    """The header, if this first line is one. Raises `BrokenLine` for one of another format."""
    if VERSION_FIELD.encode() not in line:
        return None
    try:
        fields = loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict) or VERSION_FIELD not in fields:
        return None
    if fields[VERSION_FIELD] != FORMAT:
        raise BrokenLine(f"the trace is of a format that this version, which reads {FORMAT}, does not know")
    known = {name: fields.get(name) for name in Header.__slots__}
    texts = all(known[name] is None or isinstance(known[name], str) for name in ("stream", "domain"))
    numbers = ("first_open", "length", "backlog_latest_ts")
    if not texts or not all(known[name] is None or _is_int64(known[name]) for name in numbers):
        raise BrokenLine("the header has a field of the wrong type")
    if known["marks"] not in (None, True, False) or (known["length"] is not None and known["length"] < 1):
        raise BrokenLine("the header has a field of the wrong type")
    return Header(**known)


def read_line(line: bytes, number: int) -> Row | Mark:
    """One line by the letter of the format: what the vectorised reading must agree with. Raises `BrokenLine`."""
    try:
        fields = loads(line)
    except ValueError:
        raise BrokenLine("not JSON") from None
    if not isinstance(fields, dict):
        raise BrokenLine("not a JSON object")
    if "key" in fields and "ts" in fields:
        return _short(fields, number)
    if "close" in fields or "open" in fields:
        return _mark(fields, number)
    if VERSION_FIELD in fields:
        raise BrokenLine("a header stands on the first line only")
    if "value" in fields or "value_base64" in fields:
        return _full(fields)
    if "key" not in fields:
        raise BrokenLine("neither a message (it has no value and no key) nor a mark")
    return _short(fields, number)


def _mark(fields: Mapping[str, Any], number: int) -> Mark:
    opens = "open" in fields
    time_point, missed = fields["open" if opens else "close"], fields.get("missed", False)
    if not _is_int64(time_point) or time_point < 1 or missed not in (True, False) or len(fields) > 1 + bool(missed):
        raise BrokenLine('a mark is {"close": i} or {"close": i, "missed": true}, with i from 1 on')
    if opens and (time_point != 1 or missed):
        raise BrokenLine('the mark of the opening is {"open": 1}')
    return Mark(number, time_point, opens, missed)


def _full(fields: Mapping[str, Any]) -> Row:
    missing = [name for name in ("topic", "partition", "offset", "timestamp") if name not in fields]
    if "key" not in fields and "key_base64" not in fields:
        missing.append("key")
    if missing:
        raise BrokenLine(f"the message lacks {', '.join(missing)}")
    topic, partition, offset = fields["topic"], fields["partition"], fields["offset"]
    if not isinstance(topic, str) or not _is_int64(offset) or offset < 0 or not _is_int64(fields["timestamp"]):
        raise BrokenLine("topic is text, offset and timestamp are integers")
    if not _is_int64(partition) or not 0 <= partition < MAX_PARTITIONS:
        raise BrokenLine(f"partition is an integer from 0 to {MAX_PARTITIONS - 1}")
    return Row(topic, partition, offset, fields["timestamp"], _content(fields, "key"), _content(fields, "value"))


def _short(fields: dict[str, Any], number: int) -> Row:
    """Everything but the key is the value; the line's number is the offset."""
    key = fields.pop("key")
    if key is not None and not isinstance(key, str):
        raise BrokenLine("key is text or null")
    ts = fields.get("ts")
    value = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return Row(None, 0, number, ts if _is_int64(ts) else 0, _bytes(key), _bytes(value))


def _content(fields: Mapping[str, Any], name: str) -> bytes | None:
    plain, encoded = fields.get(name), fields.get(f"{name}_base64")
    if encoded is None:
        if plain is not None and not isinstance(plain, str):
            raise BrokenLine(f"{name} is text or null; other bytes are {name}_base64")
        return _bytes(plain)
    if plain is not None or not isinstance(encoded, str):
        raise BrokenLine(f"give {name} or {name}_base64, as text")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BrokenLine(f"{name}_base64 is not base64") from None


def _bytes(text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError:
        raise BrokenLine("text with half a character (a lone surrogate)") from None


def _is_int64(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT64
