"""`[domain.NAME]`: the public attributes, and how a histogram names and coarsens them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from streamdp.domain import Attribute, Axis
from streamdp.fields import Settings


class Categorical(Settings):
    """Text out of a fixed list."""

    type: Literal["categorical"]
    """What kind of attribute this is."""
    values: list[str]
    """Every value there is; their order is the order of the cells."""
    outside: Literal["reject", "drop"] = "reject"
    """A record with another value goes to the dead letters (`reject`) or is silently dropped (`drop`)."""

    def build(self, name: str) -> Attribute:
        return Attribute.categorical(name, self.values, self.outside)

    @model_validator(mode="after")
    def _makes_sense(self) -> Categorical:
        self.build("values")
        return self


class Integer(Settings):
    """Whole numbers from `low` to `high`, or between `edges`."""

    type: Literal["integer"]
    """What kind of attribute this is."""
    low: int | None = None
    """The lowest value."""
    high: int | None = None
    """The highest value, inclusive."""
    bins: int | None = Field(default=None, ge=1)
    """How many bins, as even as possible; one per integer when left out."""
    edges: list[int] | None = None
    """Instead of low, high and bins: the first integer of every bin, then the highest integer, inclusive.
    `[0, 18, 65, 99]` makes 0-17, 18-64 and 65-99."""
    outside: Literal["reject", "clamp", "drop"] = "reject"
    """A record with a value outside goes to the dead letters (`reject`), is silently dropped (`drop`), or counts in the
    nearest bin (`clamp`)."""

    def build(self, name: str) -> Attribute:
        return Attribute.integer(name, self.low, self.high, bins=self.bins, edges=self.edges, outside=self.outside)

    @model_validator(mode="after")
    def _makes_sense(self) -> Integer:
        self.build("bins")
        return self


class Real(Settings):
    """Numbers from `low` to `high`, both inclusive, or between `edges`."""

    type: Literal["real"]
    """What kind of attribute this is."""
    low: float | None = None
    """The lowest value."""
    high: float | None = None
    """The highest value, inclusive."""
    bins: int | None = Field(default=None, ge=1)
    """How many bins of equal width. A bin holds its lower edge; the last one both."""
    edges: list[float] | None = None
    """Instead of low, high and bins: increasing bin edges, the lowest and the highest value included."""
    outside: Literal["reject", "clamp", "drop"] = "reject"
    """A record with a value outside goes to the dead letters (`reject`), is silently dropped (`drop`), or counts in the
    nearest bin (`clamp`)."""

    def build(self, name: str) -> Attribute:
        return Attribute.real(name, self.low, self.high, bins=self.bins, edges=self.edges, outside=self.outside)

    @model_validator(mode="after")
    def _makes_sense(self) -> Real:
        self.build("bins")
        return self


AttributeSection = Annotated[Categorical | Integer | Real, Field(discriminator="type")]


class HistogramAttribute(Settings):
    """One attribute of a histogram, perhaps coarser than in the domain; the name alone takes it as it is."""

    name: str
    """An attribute of the domain."""
    bins: int | None = Field(default=None, ge=1)
    """Merge neighbouring bins, as evenly as possible, into this many."""
    edges: list[float] | None = None
    """Merge neighbouring bins, keeping these edges of the domain's; the first and last are the domain's ends."""
    groups: dict[str, list[str]] | None = None
    """Merge categories: a label for each group, and the values in it. Every value is in one group."""

    def build(self) -> Axis:
        if sum(option is not None for option in (self.bins, self.edges, self.groups)) > 1:
            raise ValueError("give one of bins, edges and groups")
        if self.groups is not None:
            return Axis.grouped(self.name, self.groups)
        edges = None if self.edges is None else tuple(int(edge) if edge.is_integer() else edge for edge in self.edges)
        return Axis(self.name, bins=self.bins, edges=edges)

    @model_validator(mode="after")
    def _makes_sense(self) -> HistogramAttribute:
        self.build()
        return self


def _by_name(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


NamedAttribute = Annotated[
    HistogramAttribute, BeforeValidator(_by_name, json_schema_input_type=str | HistogramAttribute)
]
