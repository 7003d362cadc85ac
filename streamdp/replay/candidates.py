"""The strategies a comparison runs, with parameters for those that the configuration says nothing about.

Every default is computed from public quantities: the configuration, never the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from streamdp.config import StreamConfig
from streamdp.config.histograms import HistogramSection
from streamdp.domain import View
from streamdp.errors import ConfigurationError
from streamdp.privacy import NoiseSource
from streamdp.strategies import STRATEGIES, StreamStrategy, make_strategy, strategies_for

RELEASES = 10
_SECTION: TypeAdapter[HistogramSection] = TypeAdapter(HistogramSection)

Settings = Mapping[str, Mapping[str, str]]
"""By strategy: parameters by name, as text."""


@dataclass(frozen=True)
class Candidate:
    """A strategy for one histogram, ready to be made as often as there are runs."""

    kind: str
    config: StreamConfig
    section: HistogramSection
    view: View

    @property
    def parameters(self) -> dict[str, Any]:
        return self.section.parameters_given()

    def make(self, source: NoiseSource | None) -> StreamStrategy:
        return make_strategy(**self.config.strategy_arguments(self.section, self.view), source=source)


def fitting(config: StreamConfig) -> list[str]:
    """The strategies that go with the configuration's guarantee."""
    return strategies_for("horizon" if config.window is None else "window")


def candidates(
    config: StreamConfig, histogram: HistogramSection, view: View, kinds: Sequence[str], settings: Settings
) -> list[Candidate]:
    """One for each kind. Raises ConfigurationError for a kind that does not fit, or a parameter it does not have."""
    able = fitting(config)
    for kind in [*kinds, *settings]:
        if kind not in able:
            guarantee = "a horizon" if config.window is None else "a window"
            raise ConfigurationError(
                f"strategy {kind!r} does not go with this configuration, which has {guarantee}; {', '.join(able)} do"
            )
    return [_candidate(config, histogram, view, kind, settings.get(kind, {})) for kind in kinds]


def _candidate(
    config: StreamConfig, histogram: HistogramSection, view: View, kind: str, settings: Mapping[str, str]
) -> Candidate:
    parameters = _defaults(config, histogram, view, kind)
    if settings.keys() & {"threshold", "threshold_fraction"}:
        parameters = {name: value for name, value in parameters.items() if not name.startswith("threshold")}
    parameters |= {name: _value(text) for name, text in settings.items()}
    methods = STRATEGIES[kind].methods
    fields = {
        "name": histogram.name,
        "attributes": [attribute.model_dump(exclude_none=True) for attribute in histogram.attributes],
        "method": histogram.method if methods is None or histogram.method in methods else methods[0],
        "post": list(histogram.post),
        "strategy": kind,
        "parameters": parameters,
    }
    try:
        section = _SECTION.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][-1:])
        raise ConfigurationError(f"strategy {kind!r}: {place}: {first['msg']}") from None
    return Candidate(kind, config, section, view)


def _defaults(config: StreamConfig, histogram: HistogramSection, view: View, kind: str) -> dict[str, Any]:
    """What the configuration says of this kind, or of those of its parameters that another strategy has too; else what
    the strategy suggests for as many releases, or ten, but at most one in two points."""
    given = histogram.parameters_given()
    known = STRATEGIES[kind].parameters_type.model_fields
    if shared := {name: value for name, value in given.items() if name in known}:
        return shared
    conditions = config.conditions(histogram, view)
    outline = STRATEGIES[histogram.strategy].outline(histogram.parameters, conditions)
    releases = outline.releases if given else max(1, min(RELEASES, conditions.span // 2))
    return STRATEGIES[kind].suggested(conditions, releases)


def _value(text: str) -> Any:
    """A parameter as TOML would give it: an integer, or text, which stands for an exact number where one is meant."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_settings(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """From `dsat_w.releases=10`."""
    settings: dict[str, dict[str, str]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        kind, dot, name = place.partition(".")
        if not equals or not dot or not kind or not name or not value:
            raise ConfigurationError("--set is STRATEGY.PARAMETER=VALUE, as in --set dsat_w.releases=10")
        settings.setdefault(kind, {})[name] = value
    return settings
