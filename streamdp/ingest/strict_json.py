"""JSON as `json.loads` reads it, the last of equal keys wins, but without its extensions and its platform limits.

Everything here takes time linear in the text: it is foreign, and one message must not hold up the others.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import numpy as np

DEEPEST = 256
"""Levels of nesting; far below where Python's parser gives up, so that its limit never decides."""

_HUGE = 10**400
_MAX_DIGITS = 400

# Every byte but the brackets, and the step in depth of each bracket.
_NO_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_STEPS = np.zeros(256, np.int64)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


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
    """How deep brackets nest outside of strings; 0 when it cannot exceed `DEEPEST`.

    Of text that is not JSON: at least as deep as a parser gets before it finds out.
    """
    if len(value) <= 2 * DEEPEST or value.count(b"[") + value.count(b"{") <= DEEPEST:
        return 0
    # A backslash escapes what follows it. Without escaped backslashes and quotes, every quote begins or ends a string.
    pieces = value.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    brackets = b"".join(pieces[::2]).translate(None, _NO_BRACKETS)
    return int(np.cumsum(_STEPS[np.frombuffer(brackets, np.uint8)]).max(initial=0))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    """Python refuses to read very long integers; none is inside any domain, so a stand-in of their sign will do."""
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    return -_HUGE if digits.startswith("-") else _HUGE
