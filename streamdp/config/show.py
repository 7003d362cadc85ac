"""A configuration written out in full: defaults filled in, secrets left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

REDACTED = "<redacted>"


def normalised(model: BaseModel) -> dict[str, Any]:
    """Every setting in force, as TOML's types. What is a secret is replaced; what is not set is left out."""
    plain: dict[str, Any] = _redact(model.model_dump(mode="python", exclude_none=True))
    return plain


def to_json(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False, default=_datetime_text)


def to_toml(settings: Mapping[str, Any]) -> str:
    """TOML that reads back as `settings`."""
    return "\n".join(_table_lines(settings, ())).strip() + "\n"


def _redact(value: Any) -> Any:
    if isinstance(value, SecretStr | SecretBytes):
        return REDACTED
    if isinstance(value, dict):
        return {key: _redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact(item) for item in value]
    return value


def _datetime_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} is not written")


def _table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines = [f"{_key(key)} = {toml_value(value)}" for key, value in table.items() if not _is_table(value)]
    for key, value in table.items():
        here = (*path, key)
        name = ".".join(map(_key, here))
        if isinstance(value, dict):
            # A table of tables only needs no header of its own.
            header = [] if value and all(map(_is_table, value.values())) else ["", f"[{name}]"]
            lines += [*header, *_table_lines(value, here)]
        elif _is_table(value):
            for item in value:
                lines += ["", f"[[{name}]]", *_table_lines(item, here)]
    return lines


def _is_table(value: Any) -> bool:
    """Whether it gets a header of its own, which a list with anything but tables in it cannot."""
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
    )


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _text(value: str) -> str:
    """A TOML basic string: a JSON string, but for DEL, which it wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_value(value: Any) -> str:
    """A value on one line, as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return _datetime_text(value) if isinstance(value, datetime) else repr(value)
