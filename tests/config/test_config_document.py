"""The schema and the reference page: every setting is in them, and the page is not stale."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel

from streamdp.config.document import TABLES, page
from streamdp.config.schema import json_schema
from streamdp.config.stream import StreamConfig
from streamdp.strategies import STRATEGIES

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def models(annotation):
    """Every table type that can be met under `annotation`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models(field.annotation)
    elif get_origin(annotation) in (Annotated, Union, UnionType, list, dict):
        for argument in get_args(annotation):
            yield from models(argument)


def test_the_page_is_what_the_types_say():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m streamdp.config.document > docs/configuration.md"


def test_the_module_prints_the_page():
    printed = subprocess.run(
        [sys.executable, "-m", "streamdp.config.document"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == page()


def test_every_setting_of_every_table_is_documented():
    documented = {name for _, _, model in TABLES for name in model.model_fields}
    tabled = {model for _, _, model in TABLES}
    met = set(models(StreamConfig))
    assert len(met) > 15
    for model in met:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name} has no description"
            if model is not StreamConfig:
                assert name in documented, f"{model.__name__}.{name} is in no table of the page"
    # A table without settings, or a strategy's whose settings are those of every histogram, needs no place of its own.
    left_out = {model for model in met - tabled - {StreamConfig} if "strategy" not in model.model_fields}
    assert {model.__name__ for model in left_out} == {"NoParameters"}


def test_every_strategy_is_on_the_page_with_its_guarantee():
    rows = {row.split("`")[1]: row for row in page().splitlines() if row.startswith("| `") and row.count("|") == 5}
    for strategy in STRATEGIES:
        cell = rows[strategy].split("|")[3].strip()
        assert cell == (" or ".join(STRATEGIES[strategy].guarantees))


def test_the_schema_is_complete_and_its_references_resolve():
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"

    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                assert node["$ref"].removeprefix("#/$defs/") in schema["$defs"]
            if node.get("type") == "object" and "properties" in node:
                assert node["additionalProperties"] is False
                for name, setting in node["properties"].items():
                    # A table whose description is its type's says it there.
                    assert "description" in setting or "$ref" in setting, name
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(schema)
    assert set(schema["properties"]) == set(StreamConfig.model_fields)
    assert set(schema["properties"]["histogram"]["items"]["discriminator"]["mapping"]) == set(STRATEGIES)
    # A default must mean the same when a person writes it: 5 seconds, not 5000.
    assert schema["$defs"]["Time"]["properties"]["skew"]["default"] == "5s"
