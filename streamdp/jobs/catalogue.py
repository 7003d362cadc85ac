"""Every kind of job there is, and what its parameters mean, from their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from pydantic import ValidationError

from streamdp.domain import Domain
from streamdp.fields import Settings
from streamdp.jobs.base import ParameterError
from streamdp.jobs.kind import Kind
from streamdp.jobs.kinds import copula, kmeans, personalized, privpfc

KINDS: dict[str, Kind[Any]] = {kind.name: kind for kind in (copula.KIND, kmeans.KIND, personalized.KIND, privpfc.KIND)}


def checked(
    kind: Kind[Any], params: Mapping[str, Any], epsilon: Fraction, domain: Domain, records_per_user: int
) -> Settings:
    """The parameters as their type, or a ParameterError that repeats nothing of what was sent."""
    try:
        parameters: Settings = kind.parameters.model_validate(dict(params))
    except ValidationError as error:
        raise ParameterError("; ".join(dict.fromkeys(_faults(kind, error)))) from None
    kind.check(parameters, epsilon, domain, records_per_user)
    return parameters


def _faults(kind: Kind[Any], error: ValidationError) -> Iterator[str]:
    fields = kind.parameters.model_fields
    properties = _schema(kind)["properties"]
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        name = fault["loc"][0] if fault["loc"] else None
        if name not in fields:
            yield f"a parameter that {kind.name} does not have; it has: {', '.join(fields)}"
        elif fault["type"] == "missing":
            yield f"{name}: missing"
        else:
            yield f"{name}: give {_type(properties[name])}"


def describe(kind: Kind[Any]) -> list[dict[str, str]]:
    """One entry for each parameter: name, type, default, meaning."""
    schema = _schema(kind)
    needed = schema.get("required", ())
    return [
        {
            "name": name,
            "type": _type(setting),
            "default": "needed" if name in needed else _plain(setting.get("default")),
            "meaning": " ".join(setting.get("description", "").split()),
        }
        for name, setting in schema["properties"].items()
    ]


@cache
def _schema(kind: Kind[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = kind.parameters.model_json_schema()
    return schema


def _type(setting: Mapping[str, Any]) -> str:
    """In words, from its JSON Schema."""
    if "anyOf" in setting:
        return " or ".join(_type(option) for option in setting["anyOf"] if option != {"type": "null"})
    if "const" in setting:
        return f'"{setting["const"]}"'
    if "enum" in setting:
        return "one of " + ", ".join(f'"{value}"' for value in setting["enum"])
    if setting["type"] == "object":
        return "an object"
    if setting["type"] == "array":
        return f"a list of: {_type(setting['items'])}"
    kinds = {"string": "text", "integer": "an integer", "number": "a number", "boolean": "true or false"}
    limits = {"minimum": "from", "maximum": "to"}
    return " ".join(
        [kinds[setting["type"]], *(f"{word} {setting[key]}" for key, word in limits.items() if key in setting)]
    )


def _plain(value: Any) -> str:
    return "" if value is None else str(value)
