"""What a message means, written a second time from docs/input.md with `json.loads` and nothing of streamdp.ingest."""

from __future__ import annotations

import hashlib
import json
import sys
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from streamdp.domain import Attribute, Domain

MASK = 2**64 - 1


@dataclass(frozen=True)
class Settings:
    domain: Domain
    user: str = "key"
    record_id: str | None = None
    max_record_bytes: int = 4096
    max_key_bytes: int = 16_384
    latest: int | None = None


class Refused(Exception):
    pass


def meaning(settings: Settings, key: bytes | None, value: bytes | None, timestamp: int) -> tuple[Any, ...]:
    """("row", ts, delete, user, record, codes), ("rejected", reason's name) or ("dropped",)."""
    try:
        return _meaning(settings, key, value, timestamp)
    except Refused as refused:
        return ("rejected", refused.args[0])


def _meaning(settings: Settings, key: bytes | None, value: bytes | None, timestamp: int) -> tuple[Any, ...]:
    if len(key or b"") > settings.max_key_bytes or len(key or b"") + len(value or b"") > settings.max_record_bytes:
        raise Refused("TOO_LARGE")
    if value is None:
        ts = _time(timestamp, settings)
        fields = _key_fields(key)
        return ("row", ts, True, *_names(settings, key, fields), None)
    try:
        message = strict(value)
    except ValueError:
        raise Refused("BAD_JSON") from None
    if not isinstance(message, dict):
        raise Refused("NOT_AN_OBJECT")
    debezium = message.get("before") is not None or message.get("after") is not None
    if not debezium and isinstance(message.get("payload"), dict):
        debezium, message = True, message["payload"]
    if debezium:
        delete, ts, record = _debezium(settings, key, message, timestamp)
    else:
        delete, ts, record = _own(settings, message, timestamp)
    names = _names(settings, key, record)
    if delete:
        return ("row", ts, True, *names, None)
    values = [_typed(attribute, record.get(attribute.name)) for attribute in settings.domain.attributes]
    codes = [_code(attribute, v) for attribute, v in zip(settings.domain.attributes, values, strict=True)]
    missing = {a.outside for a, code in zip(settings.domain.attributes, codes, strict=True) if code is None}
    if "reject" in missing:
        raise Refused("OUTSIDE_DOMAIN")
    if missing:
        return ("dropped",)
    return ("row", ts, False, *names, tuple(codes))


def strict(value: bytes) -> Any:
    text = value.decode("utf-8")
    if nesting(text) > 256:
        raise ValueError("deep")
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.loads(text, parse_constant=_constant)
    finally:
        sys.set_int_max_str_digits(limit)


def nesting(text: str) -> int:
    level = most = 0
    inside = escaped = False
    for character in text:
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "[{":
            level += 1
            most = max(most, level)
        elif character in "]}":
            level -= 1
    return most


def _constant(name: str) -> None:
    raise ValueError(name)


def _own(settings: Settings, message: dict[str, Any], timestamp: int) -> tuple[bool, int, dict[str, Any]]:
    if set(message) - {"ts", "op", "record"}:
        raise Refused("UNKNOWN_FIELD")
    op = message.get("op")
    if op is None:
        raise Refused("MISSING_FIELD")
    if op != "upsert" and op != "delete":
        raise Refused("UNKNOWN_OP")
    ts = message.get("ts")
    ts = _time(timestamp if ts is None else ts, settings)
    record = message.get("record")
    if record is None:
        if op == "upsert":
            raise Refused("MISSING_FIELD")
        record = {}
    if not isinstance(record, dict):
        raise Refused("WRONG_TYPE")
    if (
        set(record)
        - set(settings.domain.names)
        - {settings.user if settings.user != "key" else None, settings.record_id}
    ):
        raise Refused("UNKNOWN_ATTRIBUTE")
    return op == "delete", ts, record


def _debezium(
    settings: Settings, key: bytes | None, message: dict[str, Any], timestamp: int
) -> tuple[bool, int, dict[str, Any]]:
    op = message.get("op")
    if op is None:
        raise Refused("MISSING_FIELD")
    if op not in ("c", "u", "r", "d"):
        raise Refused("UNKNOWN_OP")
    ts = _time(timestamp, settings)
    row = message.get("before" if op == "d" else "after")
    if op == "d":
        if row is not None and not isinstance(row, dict):
            raise Refused("WRONG_TYPE")
        row = {**_key_fields(key), **{k: v for k, v in (row or {}).items() if v is not None}}
    if row is None:
        raise Refused("MISSING_FIELD")
    if not isinstance(row, dict):
        raise Refused("WRONG_TYPE")
    return op == "d", ts, row


def _time(ts: Any, settings: Settings) -> int:
    if type(ts) is not int or ts < 0 or ts > 2**63 - 1:
        raise Refused("BAD_TIMESTAMP")
    if settings.latest is not None and ts > settings.latest:
        raise Refused("TOO_FAR_AHEAD")
    return ts


def _names(settings: Settings, key: bytes | None, record: dict[str, Any]) -> tuple[bytes, bytes | None]:
    if settings.user == "key":
        user = user_of_key(key)
    else:
        user = None if record.get(settings.user) is None else _text(record[settings.user])
    if not user:
        raise Refused("NO_USER")
    if settings.record_id is None:
        return user, None
    if record.get(settings.record_id) is None:
        raise Refused("MISSING_FIELD")
    return user, _text(record[settings.record_id])


def _text(value: Any) -> bytes:
    if type(value) is int and -(2**63) <= value < 2**63:
        return str(value).encode()
    if type(value) is str:
        try:
            return value.encode()
        except UnicodeEncodeError:
            pass
    raise Refused("WRONG_TYPE")


def _key_json(key: bytes | None) -> Any:
    if not key or key[:1] != b"{":
        raise ValueError
    parsed = strict(key)
    return parsed["payload"] if "payload" in parsed and not set(parsed) - {"schema", "payload"} else parsed


def user_of_key(key: bytes | None) -> bytes | None:
    try:
        payload = _key_json(key)
    except ValueError:
        return key
    return None if payload is None else json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()


def _key_fields(key: bytes | None) -> dict[str, Any]:
    try:
        payload = _key_json(key)
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}


def _typed(attribute: Attribute, value: Any) -> Any:
    if value is None:
        raise Refused("MISSING_FIELD")
    right = {"categorical": (str,), "integer": (int,), "real": (int, float)}[attribute.kind]
    if type(value) not in right:
        raise Refused("WRONG_TYPE")
    return value


def _code(attribute: Attribute, value: Any) -> int | None:
    """By Python's exact comparison of integers and floats; None when outside."""
    if attribute.kind == "categorical":
        return attribute.values.index(value) if value in attribute.values else None
    if value < attribute.low:
        return 0 if attribute.outside == "clamp" else None
    if value > attribute.high:
        return attribute.size - 1 if attribute.outside == "clamp" else None
    return min(bisect_right(attribute.edges, value) - 1, attribute.size - 1)


def digest_128(key: bytes, text: bytes) -> tuple[int, int]:
    if len(text) <= 512:
        return siphash_128(key, text)
    digest = hashlib.blake2b(text, digest_size=16, key=key).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


@lru_cache(maxsize=100_000)
def siphash_128(key: bytes, text: bytes) -> tuple[int, int]:
    """SipHash-2-4-128, one input at a time."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) % 256])
    for begin in range(0, len(padded), 8):
        word = int.from_bytes(padded[begin : begin + 8], "little")
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    _rounds(v, 4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _rounds(v, 4)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[1] = _left(v[1], 13) ^ v[0]
        v[0] = _left(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = _left(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = _left(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = _left(v[1], 17) ^ v[2]
        v[2] = _left(v[2], 32)


def _left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & MASK
