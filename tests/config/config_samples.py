"""The smallest configuration, changes to it, and the faults they make."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from streamdp.config import parse
from streamdp.config.show import to_toml
from streamdp.errors import ConfigurationError

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "clinic.toml"

MINIMAL = """
[stream]
name = "s"
[domain.age]
type = "integer"
low = 0
high = 99
[domain.sex]
type = "categorical"
values = ["f", "m"]
[time]
length = "1m"
[privacy]
epsilon = "1.0"
window = 10
[[histogram]]
name = "h"
attributes = ["sex"]
strategy = "baseline"
[input]
topics = ["in"]
"""


def changed(**changes):
    """MINIMAL with keys by dotted path (`__` for the dot) set, or removed when None."""
    data = tomllib.loads(MINIMAL)
    for path, value in changes.items():
        *parents, last = path.split("__")
        here = data
        for parent in parents:
            here = here[int(parent)] if isinstance(here, list) else here.setdefault(parent, {})
        if value is None:
            del here[last]
        else:
            here[last] = value
    return to_toml(data)


def faults(text):
    with pytest.raises(ConfigurationError) as raised:
        parse(text)
    assert raised.value.exit_code == 2
    message = str(raised.value)
    assert "pydantic" not in message
    assert "Input should" not in message
    return [line.strip() for line in message.splitlines()[1:]]


def only_fault(**changes):
    found = faults(changed(**changes))
    assert len(found) == 1, found
    return found[0]
