"""All attributes of a stream, in order, at their finest public resolution."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streamdp.domain.attribute import Attribute

FORMAT = 1


@dataclass(frozen=True, init=False)
class Domain:
    """An ordered set of attributes; a record's codes are columns in this order."""

    attributes: tuple[Attribute, ...]

    def __init__(self, attributes: Iterable[Attribute]) -> None:
        object.__setattr__(self, "attributes", tuple(attributes))
        if not self.attributes:
            raise ValueError("a domain needs at least one attribute")
        if len(self._index) != len(self.attributes):
            raise ValueError("attribute names must differ")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """The smallest unsigned type per attribute."""
        return tuple(attribute.dtype for attribute in self.attributes)

    def index(self, name: str) -> int:
        """The position of the attribute called `name`."""
        try:
            return self._index[name]
        except KeyError:
            raise ValueError(f"no attribute {name!r} in the domain; there are {', '.join(self.names)}") from None

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.index(name)]

    def __len__(self) -> int:
        return len(self.attributes)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {attribute.name: position for position, attribute in enumerate(self.attributes)}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical JSON description: equal exactly when records get equal codes."""
        canonical = json.dumps(self.describe(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()

    def describe(self) -> dict[str, Any]:
        """JSON-able; `from_description` reads it back."""
        return {"format": FORMAT, "attributes": [attribute.describe() for attribute in self.attributes]}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Domain:
        if description.get("format") != FORMAT:
            raise ValueError(f"domain description of format {description.get('format')!r}; this version reads {FORMAT}")
        return cls(Attribute.from_description(attribute) for attribute in description["attributes"])
