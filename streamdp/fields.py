"""Typed settings: the base of every table, and values that TOML has no type for: exact numbers, durations, names."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)

from streamdp.privacy.exact import as_fraction, decimal_text, to_text

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.ASCII)


class Settings(BaseModel):
    """A table: unknown keys are refused, values are taken as written, and nothing changes after loading.

    An error does not repeat what was given.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


def _read_exact(value: Any) -> Fraction:
    try:
        return as_fraction(value)
    except (TypeError, ValueError):
        raise ValueError('give an exact number, as text ("0.1", "1/3") or as a number') from None


def exact_text(value: Fraction) -> str:
    """The shortest text that reads back as the same rational."""
    text = decimal_text(value)
    return to_text(value) if text.startswith("≈") else text


def _positive(value: Fraction) -> Fraction:
    if value <= 0:
        raise ValueError("give a number above 0")
    return value


def _share(value: Fraction) -> Fraction:
    if not 0 < value <= 1:
        raise ValueError("give a share above 0 and at most 1")
    return value


Exact = Annotated[
    Fraction,
    PlainValidator(_read_exact),
    PlainSerializer(exact_text),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
PositiveExact = Annotated[Exact, AfterValidator(_positive)]
Share = Annotated[Exact, AfterValidator(_share)]


def _read_duration(value: Any) -> int:
    wrong = ValueError('give a duration such as "500ms", "90s", "5m", "1h", "1d", or a number of seconds')
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise wrong
        milliseconds = as_fraction(match[1]) * _UNITS[match[2]]
    else:
        milliseconds = _read_exact(value) * 1_000
    if milliseconds < 0:
        raise ValueError("a duration is not negative")
    if milliseconds.denominator != 1:
        raise ValueError("a duration is a whole number of milliseconds")
    return int(milliseconds)


def duration_text(milliseconds: int) -> str:
    """As the configuration would write it: the largest unit that divides it."""
    unit = next((unit for unit in ("d", "h", "m", "s") if milliseconds and milliseconds % _UNITS[unit] == 0), "ms")
    return f"{milliseconds // _UNITS[unit]}{unit}" if milliseconds else "0s"


Duration = Annotated[
    int,
    PlainValidator(_read_duration),
    PlainSerializer(duration_text),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$"}, {"type": "number"}]}),
]


def _positive_duration(milliseconds: int) -> int:
    if milliseconds < 1:
        raise ValueError("give a duration of at least 1ms")
    return milliseconds


PositiveDuration = Annotated[Duration, AfterValidator(_positive_duration)]

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
Topic = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
