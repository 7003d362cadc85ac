"""What every table of the configuration has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table: unknown keys are refused, values are taken as written, and nothing changes after loading."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )
