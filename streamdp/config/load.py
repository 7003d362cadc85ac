"""From a TOML file to a checked configuration, or to every fault in it at once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from streamdp.config.agreement import Unsound, disagreements
from streamdp.config.attributes import AttributeSection, NamedAttribute
from streamdp.config.faults import Fault, describe_faults, faults_of
from streamdp.config.histograms import HistogramSection
from streamdp.config.stream import StreamConfig
from streamdp.errors import ConfigurationError


def load(path: str | Path) -> StreamConfig:
    """Read and check one file; relative paths in it are taken from its directory.

    Raises ConfigurationError that names every fault: the path in the file, what was found, what would be right.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text (byte {error.start}); a configuration is TOML") from None
    return parse(text, str(path)).placed_in(path.parent)


def parse(text: str, source: str = "configuration") -> StreamConfig:
    """The same from text; `source` is what errors call it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source} is not valid TOML: {error}") from None
    faults = find_faults(data)
    if faults:
        count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise ConfigurationError(f"{source} has {count}:\n{describe_faults(faults)}")
    return StreamConfig.model_validate(data)


def find_faults(data: dict[str, Any]) -> list[Fault]:
    """Every fault in parsed TOML.

    Each table, each attribute and each histogram is checked on its own, so that a fault in one hides none in another;
    what is sound is then checked together.
    """
    try:
        StreamConfig.model_validate(data)
        return []
    except ValidationError as error:
        # What has no path is the check of the whole, which ran if every part was sound; it is done again below, so that
        # it also runs when some part was not.
        faults = [fault for fault in faults_of(error, StreamConfig) if fault.path]
    sections: dict[str, Any] = {}
    for name, field in StreamConfig.model_fields.items():
        value = data.get(name)
        if name == "histogram":
            items = value if isinstance(value, list) else []
            sections[name] = [_sound(HistogramSection, item) or _unsound(item) for item in items]
        elif name == "domain":
            attributes = value if isinstance(value, dict) else {}
            sections[name] = {key: _sound(AttributeSection, item) for key, item in attributes.items()}
        elif name in data:
            sections[name] = _sound(field.annotation, value)
        else:
            sections[name] = None if field.is_required() else field.default
    return [*faults, *disagreements(sections)]


def _sound(kind: Any, value: Any) -> Any | None:
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return None


def _unsound(item: Any) -> Unsound:
    table = item if isinstance(item, dict) else {}
    return Unsound(_sound(list[NamedAttribute], table.get("attributes")), _sound(str, table.get("strategy")))
