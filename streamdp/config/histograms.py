"""`[[histogram]]`: what is counted, who decides when to release it, and the parameters of that strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from streamdp.config.attributes import NamedAttribute
from streamdp.fields import Name, Settings, Share
from streamdp.histograms import method_names
from streamdp.strategies import STRATEGIES, StreamStrategy

DEFAULT = "auto"


class Histogram(Settings):
    """One histogram; its strategy says which parameters there are."""

    name: Name
    """The histogram's name: lower-case letters, digits, dot, dash and underscore."""
    attributes: Annotated[list[NamedAttribute], Field(min_length=1)]
    """The attributes counted together: `"sex"`, or coarser than the domain, `{ name = "age", bins = 10 }`."""
    share: Share | None = None
    """This histogram's share of epsilon; those that say nothing share equally what the others leave."""
    method: str = "laplace"
    """How a release is made private: the name of a histogram method."""
    post: list[Literal["nonnegative", "integer", "consistent_total"]] = Field(default=[])
    """What is done to noisy counts before they leave, which costs nothing. `nonnegative`: no count below zero.
    `integer`: whole numbers (they always are). `consistent_total`: non-negative, and the sum stays the noisy total."""

    strategy: str
    """Who decides when to release."""
    parameters: Settings
    """The strategy's parameters."""

    @field_validator("method")
    @classmethod
    def _registered(cls, method: str) -> str:
        if method not in method_names():
            raise ValueError(f"give one of {', '.join(method_names())}")
        return method

    @model_validator(mode="after")
    def _method_goes_with_the_strategy(self) -> Histogram:
        methods = STRATEGIES[self.strategy].methods
        if methods is not None and self.method not in methods:
            raise ValueError(
                f"strategy {self.strategy} goes with method {' or '.join(methods)}; for {self.method} choose another"
                " strategy"
            )
        return self

    def parameters_given(self) -> dict[str, Any]:
        """The strategy's parameters by name, without those it is to choose itself."""
        values = {name: getattr(self.parameters, name) for name in type(self.parameters).model_fields}
        return {name: value for name, value in values.items() if value is not None}


def _section(strategy: type[StreamStrategy]) -> type[Histogram]:
    """The table of a histogram with this strategy."""
    kind: Any = Literal[strategy.kind]
    parameters = strategy.parameters_type
    needed = any(field.is_required() for field in parameters.model_fields.values())
    meaning = f"`{strategy.kind}`: release {strategy.summary}. For a {' or a '.join(strategy.guarantees)}."
    about = "The strategy's parameters." if parameters.model_fields else "There are none."
    return create_model(
        strategy.__name__,
        __base__=Histogram,
        __doc__=f"Release {strategy.summary}.",
        strategy=(
            kind,
            Field(description=meaning) if strategy.kind != DEFAULT else Field(DEFAULT, description=meaning),
        ),
        parameters=(parameters, Field(description=about) if needed else Field(parameters(), description=about)),
    )


def _with_strategy(section: Any) -> Any:
    """A histogram that does not say who decides gets the default."""
    if isinstance(section, dict) and "strategy" not in section:
        return {**section, "strategy": DEFAULT}
    return section


if TYPE_CHECKING:
    HistogramSection = Histogram
else:
    HistogramSection = Annotated[
        Union[tuple(_section(strategy) for strategy in STRATEGIES.values())],  # noqa: UP007 - made from the registry
        Field(discriminator="strategy"),
        BeforeValidator(_with_strategy),
    ]
