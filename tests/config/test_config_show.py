"""Writing a configuration out: complete, readable again, and without secrets."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from streamdp.config import load, parse
from streamdp.config.faults import faults_of
from streamdp.config.show import REDACTED, normalised, to_json, to_toml
from streamdp.fields import Settings

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "clinic.toml"


class Client(Settings):
    """A stand-in for a table that holds secrets."""

    user: str
    password: SecretStr | None = None
    passphrases: list[SecretStr] = []  # noqa: RUF012
    retries: int = 3
    token: int = 0


def test_the_normalised_form_is_the_same_configuration():
    config = load(EXAMPLE)
    again = parse(to_toml(normalised(config)))
    assert again.model_dump() == config.model_dump()
    assert normalised(again) == normalised(config)


def test_defaults_are_filled_in_and_spelled_one_way():
    settings = normalised(load(EXAMPLE))
    assert settings["time"]["skew"] == "5s"
    assert settings["privacy"]["epsilon"] == "1"
    assert settings["histogram"][0]["strategy"] == "auto"
    assert json.loads(to_json(settings))["time"]["origin"] == "1970-01-01T00:00:00Z"


def test_secrets_are_redacted_wherever_they_are():
    settings = normalised(Client(user="u", password=SecretStr("hunter2"), passphrases=[SecretStr("hunter3")]))
    assert settings == {"user": "u", "password": REDACTED, "passphrases": [REDACTED], "retries": 3, "token": 0}
    for text in (to_toml(settings), to_json(settings)):
        assert "hunter" not in text
        assert REDACTED in text


def test_a_secret_that_is_wrong_is_not_repeated_but_other_values_are():
    with pytest.raises(ValidationError) as raised:
        Client.model_validate({"user": "u", "token": "hunter2", "retries": "often"})
    found = [str(fault) for fault in faults_of(raised.value, Client)]
    assert found == [
        "retries: found 'often'; give a whole number",
        "token: found a value (not shown); give a whole number",
    ]


values = st.recursive(
    st.text() | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_toml_reads_back_as_it_was(settings):
    assert tomllib.loads(to_toml(settings)) == settings
