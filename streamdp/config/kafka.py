"""`[input.kafka]` and `[output.kafka]`: client keys, checked when the file is read; secrets are looked up later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator

from streamdp.transport.kafka_keys import Section, faults, flatten


def _checked(section: Section) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def check(table: dict[str, Any]) -> dict[str, Any]:
        wrong = faults(table, section)
        if wrong:
            raise ValueError("; ".join(wrong))
        return flatten(table)

    return check


InputKafka = Annotated[dict[str, Any], AfterValidator(_checked("input"))]
OutputKafka = Annotated[dict[str, Any], AfterValidator(_checked("output"))]
