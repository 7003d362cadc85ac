"""The JSON Schema of a configuration."""

from __future__ import annotations

from typing import Any

from streamdp.config.stream import StreamConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    return {"$schema": DIALECT, **StreamConfig.model_json_schema()}
