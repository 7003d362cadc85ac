"""Kafka's tables in a configuration: checked with the rest, written out without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamdp.config import StreamConfig, parse
from streamdp.config.show import normalised, to_json, to_toml
from streamdp.errors import ConfigurationError

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "clinic.toml"
LOGIN = """
[input.kafka]
bootstrap.servers = "broker:9092"
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-256"
sasl.username = "alice"
sasl.password = {env = "STREAMDP_TEST_SECRET"}
ssl.ca.location = "ca.pem"
"""


def with_kafka(tables: str) -> StreamConfig:
    return parse(EXAMPLE.read_text() + tables)


def test_without_kafka_there_is_none() -> None:
    config = parse(EXAMPLE.read_text())
    assert config.input_kafka is None and config.output_kafka is None


def test_the_output_goes_where_the_input_is_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMDP_TEST_SECRET", "hunter2")
    config = with_kafka(LOGIN).placed_in(tmp_path)
    assert config.input_kafka is not None and config.output_kafka is not None
    assert config.input_kafka.servers == config.output_kafka.servers == "broker:9092"
    assert config.input_kafka.of("admin")["sasl_plain_password"] == "hunter2"
    assert config.input_kafka.of("admin")["ssl_cafile"] == str(tmp_path / "ca.pem")
    elsewhere = with_kafka(LOGIN + '[output.kafka]\nbootstrap.servers = "other:9092"\nlinger.ms = 5\n')
    assert elsewhere.output_kafka is not None and elsewhere.output_kafka.servers == "other:9092"
    assert with_kafka(LOGIN + '[output.log]\npath = "log"\n').output_kafka is None


def test_a_configuration_is_read_and_shown_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDP_TEST_SECRET", "hunter2")
    config = with_kafka(LOGIN)
    settings = normalised(config)
    assert settings["input"]["kafka"]["sasl.password"] == {"env": "STREAMDP_TEST_SECRET"}
    assert "hunter2" not in to_toml(settings) + to_json(settings) + repr(config)
    assert parse(to_toml(settings)) == config
    monkeypatch.delenv("STREAMDP_TEST_SECRET")
    with pytest.raises(ConfigurationError, match="STREAMDP_TEST_SECRET is not set"):
        _ = with_kafka(LOGIN).input_kafka


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        (LOGIN + 'group.id = "mine"\n', "input.kafka: group.id is set by streamdp: there is no consumer group"),
        ('[input.kafka]\nbootstrap.serverz = "a:1"\n', "did you mean bootstrap.servers"),
        ("[input.kafka]\n", "bootstrap.servers is missing"),
        ('[input.kafka]\nbootstrap.servers = "a:1"\nacks = 1\nlinger.ms = 2\n', "linger.ms is for writing"),
        ('[output.log]\npath = "a"\n[output.kafka]\nbootstrap.servers = "a:1"\n', "give log or kafka, not both"),
        (LOGIN.replace('{env = "STREAMDP_TEST_SECRET"}', '"hunter2"'), "sasl.password is a secret"),
    ],
)
def test_faults_are_named_with_the_table(tables: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        with_kafka(tables)
    assert fault in str(caught.value) and "hunter2" not in str(caught.value)
