"""JSON as `json.loads` reads it, the last of equal keys wins, but without its extensions and its platform limits."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

DEEPEST = 256
"""Levels of nesting; far below where Python's parser gives up, so that its limit never decides."""

_HUGE = 10**400
_MOST_DIGITS = 400

_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPENERS = re.compile(rb"[\[{]")
_BRACKETS = re.compile(rb"[\[\]{}]")


def loads(value: bytes) -> Any:
    """Raises ValueError for anything but UTF-8 text of one JSON value."""
    text = value.decode("utf-8")
    if depth(value) > DEEPEST:
        raise ValueError("nested too deeply")
    return json.loads(text, parse_constant=_refuse, parse_int=_integer)


def canonical(value: Any) -> bytes:
    """One text for equal values: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def depth(value: bytes) -> int:
    """How deep brackets nest outside of strings; 0 when it cannot exceed `DEEPEST`."""
    if len(value) <= 2 * DEEPEST or len(_OPENERS.findall(value)) <= DEEPEST:
        return 0
    level = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", value)):
        level += 1 if bracket in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    """Python refuses to read very long integers; none is inside any domain, so a stand-in of their sign will do."""
    if len(digits) <= _MOST_DIGITS:
        return int(digits)
    return -_HUGE if digits.startswith("-") else _HUGE
