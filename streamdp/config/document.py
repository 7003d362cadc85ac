"""The reference page of the configuration, from the descriptions in its own types.

python -m streamdp.config.document > docs/configuration.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from streamdp.config.attributes import Categorical, HistogramAttribute, Integer, Real
from streamdp.config.histograms import DEFAULT, Histogram
from streamdp.config.may_change import MAY_CHANGE, WORDS
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
from streamdp.strategies import STRATEGIES

INTRODUCTION = """\
# Configuration

One TOML file describes one stream. `streamdp check FILE` checks it and says in plain words what it promises;
`streamdp show-config FILE` prints it with every default filled in; `streamdp config-schema` prints the JSON Schema for
an editor. `deploy/examples/clinic.toml` is a complete example. Relative paths are taken from the file's directory.

**May change** says what a restart may find changed once a journal exists. `no`: a start refuses it and names the old
value, because the budget that was spent belongs to the data as it was counted then. `only shorter`: smaller, from the
next time point on. `yes`: at any start. A `[[histogram]]` may be added where the budget has room, and left out; under
its name it stays what it was. The input and output logs or clusters may move, but not be replaced by others.

This page is generated from the types in `streamdp/config/`, by
`python -m streamdp.config.document > docs/configuration.md`.
"""

_PARAMETERS = [
    (model, [kind for kind, strategy in STRATEGIES.items() if strategy.parameters_type is model])
    for model in dict.fromkeys(strategy.parameters_type for strategy in STRATEGIES.values())
    if model.model_fields
]
"""The models of parameters, and whose they are."""

# Every table, in the order of the page: its heading, its name in `MAY_CHANGE`, and what it is typed by.
TABLES: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("[stream]", "stream", Stream),
    ("[domain.NAME] of type categorical", "domain", Categorical),
    ("[domain.NAME] of type integer", "domain", Integer),
    ("[domain.NAME] of type real", "domain", Real),
    ("[time]", "time", Time),
    ("[privacy]", "privacy", Privacy),
    ("[privacy.preferences]", "privacy.preferences", Preferences),
    ("[[histogram]]", "histogram", Histogram),
    ("[[histogram]], an entry of attributes", "histogram.attributes", HistogramAttribute),
    *((f"[histogram.parameters] for {' and '.join(kinds)}", "histogram.parameters", m) for m, kinds in _PARAMETERS),
    ("[input]", "input", Input),
    ("[input.log] and [output.log]", "input.log", LogDirectory),
    ("[output]", "output", Output),
    ("[dead_letters]", "dead_letters", DeadLetters),
    ("[journal]", "journal", Journal),
    ("[jobs]", "jobs", Jobs),
    ("[observe]", "observe", Observe),
)


def page() -> str:
    """The whole page."""
    tables = (line for table in TABLES for line in _table(*table))
    return "\n".join([INTRODUCTION, *_overview(), *tables])


def _overview() -> Iterator[str]:
    yield "## Tables"
    yield ""
    for name, field in StreamConfig.model_fields.items():
        yield f"- `{name}` ({'needed' if field.is_required() else 'optional'}): {field.description}"
    yield ""


def _table(heading: str, prefix: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"## `{heading}`"
    yield ""
    if model is Histogram:
        yield from _strategies()
    else:
        yield " ".join((model.__doc__ or "").split())
        yield ""
    yield "| setting | value | default | may change | meaning |"
    yield "|---|---|---|---|---|"
    schema = model.model_json_schema()
    for name, setting in schema["properties"].items():
        if model is Histogram and name == "strategy":
            yield '| `strategy` | one of the above | `"auto"` | no | Who decides when to release. |'
        elif model is Histogram and name == "parameters":
            yield "| `parameters` | table | | no | The parameters of the strategy, see below. |"
        else:
            needed = name in schema.get("required", ())
            default = "needed" if needed else _default(setting.get("default"))
            meaning = " ".join(setting["description"].split())
            yield f"| `{name}` | {_kind(setting)} | {default} | {_may_change(f'{prefix}.{name}')} | {meaning} |"
    yield ""


def _strategies() -> Iterator[str]:
    yield "### Which strategy"
    yield ""
    yield "| strategy | releases | guarantee | parameters |"
    yield "|---|---|---|---|"
    for kind, strategy in STRATEGIES.items():
        name = f"`{kind}` (the default)" if kind == DEFAULT else f"`{kind}`"
        alike = [kinds for model, kinds in _PARAMETERS if model is strategy.parameters_type]
        parameters = f"`[histogram.parameters]` for {' and '.join(alike[0])}" if alike else "none"
        yield f"| {name} | {strategy.summary} | {' or '.join(strategy.guarantees)} | {parameters} |"
    yield ""


def _may_change(name: str) -> str:
    """In words; of a table, what all its settings are, or nothing when that table says it itself."""
    inside = {kind for known, kind in MAY_CHANGE.items() if known == name or known.startswith(f"{name}.")}
    return WORDS[inside.pop()] if len(inside) == 1 else ""


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
