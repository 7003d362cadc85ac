"""The strategies a comparison runs, with parameters for those that the configuration says nothing about.

Every default is computed from public quantities: the configuration, never the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt
from typing import Any

from pydantic import TypeAdapter, ValidationError

from streamdp.config import StreamConfig
from streamdp.config.histograms import HORIZON_ONLY, WINDOW_ONLY, HistogramSection, parameters_given
from streamdp.domain import View
from streamdp.errors import ConfigurationError
from streamdp.privacy import NoiseSource
from streamdp.strategies import STRATEGIES, StreamStrategy, make_strategy

RELEASES = 10
DECISION_RATIO = Fraction(1, 10)
GROUPS = 16
DISTANCE = frozenset({"dsft", "dsat", "dsat_w"})
ADAPTIVE = frozenset({"dsat", "dsat_w"})
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
        return parameters_given(self.section)

    def make(self, source: NoiseSource | None) -> StreamStrategy:
        return make_strategy(**self.config.strategy_arguments(self.section, self.view), source=source)


def fitting(config: StreamConfig) -> list[str]:
    """The strategies that go with the configuration's guarantee."""
    excluded = WINDOW_ONLY if config.window is None else HORIZON_ONLY
    return [kind for kind in STRATEGIES if kind not in excluded]


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
    fields = {
        "name": histogram.name,
        "attributes": [attribute.model_dump(exclude_none=True) for attribute in histogram.attributes],
        # `auto` needs to know the noise of what it combines.
        "method": "laplace" if kind == "auto" else histogram.method,
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
    """What the configuration says of this kind; else its releases, and a threshold from the noise.

    `releases` is the configured one, or ten, but at most one in two points. `fixed` gets the interval that makes as
    many. The threshold is twice what the noise of a release alone would make the distance, over at most 16 groups of
    cells; an adaptive one stays above that floor.
    """
    if kind == histogram.strategy:
        return parameters_given(histogram)
    given = parameters_given(histogram)
    span = config.horizon or config.window or 1
    releases = int(given.get("releases", 0)) or (
        ceil(span / int(given["interval"])) if "interval" in given else max(1, min(RELEASES, span // 2))
    )
    if kind == "fixed":
        return {"interval": ceil(span / releases)}
    if kind not in DISTANCE:
        return {}
    shared = {name: given[name] for name in _SHARED if name in given}
    if histogram.strategy in DISTANCE:
        return {"releases": releases, **shared}
    groups = min(GROUPS, view.cells)
    epsilon = config.epsilon * config.share(histogram) / (1 + DECISION_RATIO)
    floor = noise_floor(epsilon, releases, config.records_per_user, view.cells, groups=groups)
    parameters: dict[str, Any] = {"releases": releases, "groups": groups, "threshold": ceil(2 * floor)}
    return parameters | ({"threshold_low": float(ceil(floor))} if kind in ADAPTIVE else {})


def noise_floor(epsilon: Fraction, releases: int, sensitivity: int, cells: int, *, groups: int) -> float:
    """About what the noise of a release makes of the distance over groups, when releases share `epsilon`."""
    return 1.13 * releases * sensitivity / float(epsilon) * sqrt(cells * groups)


_SHARED = ("threshold", "threshold_fraction", "expected_users", "decision_ratio", "groups")


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
