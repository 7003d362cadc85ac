"""Faults in a configuration, in plain words: where, what was found, what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

# What could be a secret is not repeated, even when it is wrong.
_SECRET = re.compile(r"password|secret|token|passphrase|credential|private", re.IGNORECASE)

_KINDS: dict[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "list_type": "a list in square brackets",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "datetime_type": "a date and time such as 2026-01-01T00:00:00Z",
    "timezone_aware": "a time zone too, such as 2026-01-01T00:00:00Z",
}
_LIMITS: dict[str, tuple[str, str]] = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "{} or less"),
}
_PATTERNS = {
    r"^[a-z0-9][a-z0-9._-]{0,99}$": "1 to 100 lower-case letters, digits, dots, dashes and underscores, beginning with"
    " a letter or digit",
    r"^[a-zA-Z0-9._-]{1,249}$": "1 to 249 letters, digits, dots, dashes and underscores",
    r"^(key|field:.+)$": '"key" for the message key, or "field:NAME" for a field of the record',
}
_REFUSED = {
    "calibration": "not for a running stream: the calibration as published does not give the privacy it claims. Leave"
    " it out; `streamdp.strategies` offers it for comparisons",
}


@dataclass(frozen=True)
class Fault:
    """One thing wrong at one path."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def describe_faults(faults: Sequence[Fault]) -> str:
    return "\n".join(f"  {fault}" for fault in faults)


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Every fault that pydantic found when it read a whole file as `model`."""
    return [_fault(details, model) for details in error.errors(include_url=False)]


def _fault(details: ErrorDetails, model: type[BaseModel]) -> Fault:
    location, section = _walk(details["loc"], model)
    path = join(location)
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    found = f"found {_shown(value, path)}; give "
    if kind == "missing":
        return Fault(path, f"missing; {_purpose(section, location)}")
    if kind == "extra_forbidden":
        return Fault(path, _unknown_key(str(location[-1]), section))
    if kind == "value_error":
        message = str(context["error"])
        if isinstance(value, Mapping):
            # What a table's own check says about several of its keys; the domain's messages begin with a stand-in name.
            return Fault(path, re.sub(r"^(values|bins): ", "", message))
        return Fault(path, f"found {_shown(value, path)}; {message}")
    if kind in _KINDS:
        return Fault(path, found + _KINDS[kind])
    if kind in _LIMITS:
        key, phrase = _LIMITS[kind]
        limit = context[key]
        return Fault(path, found + phrase.format(int(limit) if limit == int(limit) else limit))
    if kind == "literal_error":
        return Fault(path, found + context["expected"])
    if kind == "union_tag_not_found":
        key = context["discriminator"].strip("'")
        return Fault(join((*location, key)), f"missing; give one of {_tags(section)}")
    if kind == "union_tag_invalid":
        key = context["discriminator"].strip("'")
        return Fault(join((*location, key)), f"found {context['tag']!r}; give one of {_tags(section)}")
    if kind == "string_pattern_mismatch":
        return Fault(path, found + _PATTERNS[context["pattern"]])
    if kind in ("too_short", "string_too_short"):
        return Fault(path, "found nothing in it; give at least one")
    return Fault(path, f"found {_shown(value, path)}, which is not allowed here")


def join(location: Iterable[int | str]) -> str:
    """A path as in `histogram[0].parameters.releases`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            path += f".{name}" if path else name
    return path


def _walk(location: Sequence[int | str], model: Any) -> tuple[tuple[int | str, ...], Any]:
    """The location as in the file (pydantic adds the tag of a union's member), and the type that holds its last key."""
    here, holder = model, model
    path: list[int | str] = []
    for part in location:
        here = _bare(here)
        members = _members(here)
        if members and part in members:
            here = members[str(part)]
            continue
        holder = here
        path.append(part)
        origin = get_origin(here)
        if origin is list:
            here = get_args(here)[0]
        elif origin is dict:
            here = get_args(here)[1]
        elif isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            here = here.model_fields[str(part)]
        else:
            here = None
    return tuple(path), here if _members(_bare(here)) else holder


def _bare(annotation: Any) -> Any:
    """Without field metadata, `Annotated` and `| None`."""
    while True:
        if isinstance(annotation, FieldInfo):
            annotation = annotation.annotation
        elif get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation):
            rest = [member for member in get_args(annotation) if member is not type(None)]
            if len(rest) != 1:
                return annotation
            annotation = rest[0]
        else:
            return annotation


def _members(annotation: Any) -> dict[str, Any]:
    """The members of a tagged union by tag; empty for anything else."""
    if get_origin(annotation) not in (Union, UnionType):
        return {}
    found: dict[str, Any] = {}
    for member in get_args(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            for key in ("type", "strategy"):
                field = member.model_fields.get(key)
                if field is not None and get_origin(field.annotation) is Literal:
                    found[get_args(field.annotation)[0]] = member
    return found


def _tags(section: Any) -> str:
    return ", ".join(repr(tag) for tag in _members(_bare(section)))


def _unknown_key(key: str, section: Any) -> str:
    if key in _REFUSED:
        return _REFUSED[key]
    known = list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []
    near = get_close_matches(key, known, n=1)
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    return f"unknown key; known here: {', '.join(known)}" if known else "unknown key; nothing goes here"


def _purpose(section: Any, location: Sequence[int | str]) -> str:
    if location and isinstance(section, type) and issubclass(section, BaseModel):
        field = section.model_fields.get(str(location[-1]))
        if field is not None and field.description:
            return "needed: " + " ".join(field.description.split())
    return "it is needed"


def _shown(value: Any, path: str) -> str:
    if _SECRET.search(path):
        return "a value (not shown)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, date | time):
        return value.isoformat()
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
