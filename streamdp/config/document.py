"""The reference page of the configuration, from the descriptions in its own types.

python -m streamdp.config.document > docs/configuration.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from streamdp.config.attributes import Categorical, HistogramAttribute, Integer, Real
from streamdp.config.histograms import AdaptiveParameters, Baseline, DistanceParameters, FixedParameters
from streamdp.config.observe import Observe
from streamdp.config.preferences import Preferences
from streamdp.config.sections import (
    DeadLetters,
    Input,
    Jobs,
    Journal,
    LogDirectory,
    Output,
    Privacy,
    Stream,
    Time,
)
from streamdp.config.show import toml_value
from streamdp.config.stream import StreamConfig

INTRODUCTION = """\
# Configuration

One TOML file describes one stream. `streamdp check FILE` checks it and says in plain words what it promises;
`streamdp show-config FILE` prints it with every default filled in; `streamdp config-schema` prints the JSON Schema for
an editor. `deploy/examples/clinic.toml` is a complete example. Relative paths are taken from the file's directory.

This page is generated from the types in `streamdp/config/`, by
`python -m streamdp.config.document > docs/configuration.md`.
"""

STRATEGIES = """\
### Which strategy

| strategy | releases | guarantee | parameters |
|---|---|---|---|
| `auto` (the default) | when a fresh release is worth more than waiting | horizon or window | none |
| `baseline` | at every point | horizon or window | none |
| `fixed` | every `interval` points | horizon or window | `[histogram.parameters]` for `fixed` |
| `dsft` | when the counts have moved past a fixed threshold | horizon | for `dsft` |
| `dsat` | the same, with a threshold that adapts so that the releases last | horizon | for `dsat` and `dsat_w` |
| `dsat_w` | the same, for ever | window | for `dsat` and `dsat_w` |
| `bd` | when they changed; each gets half of what the window has left | window | none |
| `ba` | when they changed; each absorbs what earlier points left unused | window | none |
"""

# Every table, in the order of the page: its heading in the file, and what it is typed by.
TABLES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("[stream]", Stream),
    ("[domain.NAME] of type categorical", Categorical),
    ("[domain.NAME] of type integer", Integer),
    ("[domain.NAME] of type real", Real),
    ("[time]", Time),
    ("[privacy]", Privacy),
    ("[privacy.preferences]", Preferences),
    ("[[histogram]]", Baseline),
    ("[[histogram]], an entry of attributes", HistogramAttribute),
    ("[histogram.parameters] for fixed", FixedParameters),
    ("[histogram.parameters] for dsft", DistanceParameters),
    ("[histogram.parameters] for dsat and dsat_w", AdaptiveParameters),
    ("[input]", Input),
    ("[input.log] and [output.log]", LogDirectory),
    ("[output]", Output),
    ("[dead_letters]", DeadLetters),
    ("[journal]", Journal),
    ("[jobs]", Jobs),
    ("[observe]", Observe),
)


def page() -> str:
    """The whole page."""
    tables = (line for heading, model in TABLES for line in _table(heading, model))
    return "\n".join([INTRODUCTION, *_overview(), *tables])


def _overview() -> Iterator[str]:
    yield "## Tables"
    yield ""
    for name, field in StreamConfig.model_fields.items():
        yield f"- `{name}` ({'needed' if field.is_required() else 'optional'}): {field.description}"
    yield ""


def _table(heading: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"## `{heading}`"
    yield ""
    if model is Baseline:
        yield STRATEGIES
    else:
        yield " ".join((model.__doc__ or "").split())
        yield ""
    yield "| setting | value | default | meaning |"
    yield "|---|---|---|---|"
    schema = model.model_json_schema()
    for name, setting in schema["properties"].items():
        if model is Baseline and name == "strategy":
            yield '| `strategy` | one of the above | `"auto"` | Who decides when to release. |'
        elif model is Baseline and name == "parameters":
            yield "| `parameters` | table | | The parameters of the strategy, see below. |"
        else:
            needed = name in schema.get("required", ())
            default = "needed" if needed else _default(setting.get("default"))
            meaning = " ".join(setting["description"].split())
            yield f"| `{name}` | {_kind(setting)} | {default} | {meaning} |"
    yield ""


def _default(value: Any) -> str:
    if value is None:
        return ""
    return "that table's" if isinstance(value, Mapping) else f"`{toml_value(value)}`"


def _kind(setting: Mapping[str, Any]) -> str:
    """In words, from its JSON Schema."""
    if "anyOf" in setting:
        return " or ".join(_kind(option) for option in setting["anyOf"] if option != {"type": "null"})
    if "const" in setting:
        return f'`"{setting["const"]}"`'
    if "enum" in setting:
        return ", ".join(f'`"{value}"`' for value in setting["enum"])
    if "$ref" in setting:
        return "table"
    kind = setting["type"]
    if kind == "array":
        return f"list of: {_kind(setting['items'])}"
    if setting.get("format") == "date-time":
        return "date and time"
    words = {"string": "text", "integer": "integer", "number": "number", "object": "table"}[kind]
    limits = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
    return ", ".join([words, *(f"{word} {setting[key]}" for key, word in limits.items() if key in setting)])


if __name__ == "__main__":
    sys.stdout.write(page())
