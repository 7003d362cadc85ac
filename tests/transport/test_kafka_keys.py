"""The client keys: every fault is named with what to do, and no secret shows."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from streamdp.errors import ConfigurationError
from streamdp.transport.kafka_keys import DEFAULTS, EVERY, KEYS, OURS, client_settings, faults, flatten

SERVERS = {"bootstrap.servers": "one:9092, two:9092"}
LOGIN = SERVERS | {"security.protocol": "sasl_ssl", "sasl.mechanism": "scram-sha-256", "sasl.username": "alice"}
CLIENTS = {"admin": KafkaAdminClient, "consumer": KafkaConsumer, "producer": KafkaProducer}


def test_every_key_is_one_that_the_client_knows() -> None:
    for name, key in KEYS.items():
        for role in key.roles:
            assert key.name in CLIENTS[role].DEFAULT_CONFIG, f"{name} for {role}"
    assert set(DEFAULTS) <= set(KEYS) and not set(KEYS) & set(OURS)


def test_keys_become_the_client_s_settings() -> None:
    keys = SERVERS | {"client.id": "me", "fetch.wait.max.ms": 7, "compression.type": "zstd", "linger.ms": 3}
    settings = client_settings(keys, "output")
    assert settings.servers == "one:9092,two:9092"
    for role in EVERY:
        assert settings.of(role)["bootstrap_servers"] == ["one:9092", "two:9092"]
        assert settings.of(role)["client_id"] == "me"
    assert settings.of("consumer")["fetch_max_wait_ms"] == 7 and "linger_ms" not in settings.of("consumer")
    assert settings.of("producer")["compression_type"] == "zstd" and settings.of("producer")["linger_ms"] == 3
    assert client_settings(SERVERS | {"compression.type": "none"}, "output").of("producer")["compression_type"] is None


def test_given_keys_outrank_ours_under_either_name() -> None:
    consumer = client_settings(SERVERS | {"fetch.message.max.bytes": 99}, "input").of("consumer")
    assert consumer["max_partition_fetch_bytes"] == 99
    producer = client_settings(SERVERS | {"delivery.timeout.ms": 99}, "output").of("producer")
    assert producer["delivery_timeout_ms"] == 99


def test_dotted_keys_of_toml_are_the_same_as_quoted_ones() -> None:
    text = """
    bootstrap.servers = "one:9092"
    security.protocol = "SASL_SSL"
    sasl.mechanism = "PLAIN"
    sasl.username = "alice"
    sasl.password = {env = "SECRET"}
    "ssl.ca.location" = "ca.pem"
    ssl.key.location = "key.pem"
    ssl.key.password.file = "secret"
    """
    table = tomllib.loads(text)
    assert flatten(table) == {
        "bootstrap.servers": "one:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": {"env": "SECRET"},
        "ssl.ca.location": "ca.pem",
        "ssl.key.location": "key.pem",
        "ssl.key.password": {"file": "secret"},
    }
    assert faults(table, "input") == []


@pytest.mark.parametrize("name", sorted(OURS))
def test_keys_that_correctness_depends_on_are_refused_with_the_reason(name: str) -> None:
    assert faults(SERVERS | {name: "x"}, "output") == [f"{name} is set by streamdp: {OURS[name]}"]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"bootstrap.server": "a:1"}, "bootstrap.server is not a client key; did you mean bootstrap.servers?"),
        ({"zzz": 1}, "zzz is not a client key"),
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "a:1,,b:2"}, 'bootstrap.servers takes "host:port,host:port"'),
        ({"bootstrap.servers": 9092}, "bootstrap.servers takes text"),
        (SERVERS | {"socket.timeout.ms": "soon"}, "socket.timeout.ms takes a whole number"),
        (SERVERS | {"socket.timeout.ms": True}, "socket.timeout.ms takes a whole number"),
        (SERVERS | {"socket.timeout.ms": {"env": "X"}}, "socket.timeout.ms is not read from the environment"),
        (SERVERS | {"security.protocol": "TLS"}, "security.protocol takes one of PLAINTEXT, SSL"),
        (SERVERS | {"linger.ms": 5}, "linger.ms is for writing: it belongs in [output.kafka]"),
        (SERVERS | {"sasl.password": "hunter2"}, "sasl.password is a secret: give {env"),
        (SERVERS | {"ssl.ca.location": "ca.pem"}, "ssl.ca.location has no effect with security.protocol PLAINTEXT"),
        (SERVERS | {"sasl.username": "a"}, "sasl.username has no effect with security.protocol PLAINTEXT"),
        (LOGIN, "sasl.password is missing, and security.protocol SASL_SSL needs it"),
        (SERVERS | {"security.protocol": "SASL_SSL", "sasl.username": "a"}, "sasl.mechanism is missing"),
        (LOGIN | {"sasl.password": {"env": "X"}, "sasl.mechanisms": "PLAIN"}, "mean the same: give one"),
    ],
)
def test_a_fault_is_named(keys: dict[str, object], fault: str) -> None:
    found = faults(keys, "input")
    assert any(fault in line for line in found), found
    assert "hunter2" not in "".join(found)
    with pytest.raises(ConfigurationError, match=r"\[input\.kafka\]"):
        client_settings(keys, "input")


def test_secrets_come_from_the_environment_or_a_file_and_do_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = LOGIN | {"sasl.password": {"env": "SECRET"}}
    with pytest.raises(ConfigurationError, match="SECRET is not set"):
        client_settings(keys, "input")
    monkeypatch.setenv("SECRET", "hunter2")
    settings = client_settings(keys, "input")
    assert settings.of("consumer")["sasl_plain_password"] == "hunter2"
    assert "hunter2" not in repr(settings) + str(settings)
    keys["sasl.password"] = {"file": "password"}
    with pytest.raises(ConfigurationError, match="cannot be read"):
        client_settings(keys, "input", tmp_path)
    (tmp_path / "password").write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        client_settings(keys, "input", tmp_path)
    (tmp_path / "password").write_text("hunter3\n")
    assert client_settings(keys, "input", tmp_path).of("admin")["sasl_plain_password"] == "hunter3"


def test_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    keys = SERVERS | {"security.protocol": "SSL", "ssl.ca.location": "ca.pem", "ssl.key.location": "/etc/key.pem"}
    found = client_settings(keys, "input", tmp_path).of("admin")
    assert found["ssl_cafile"] == str(tmp_path / "ca.pem") and found["ssl_keyfile"] == "/etc/key.pem"


def test_the_name_of_the_host_is_checked_unless_told_otherwise() -> None:
    keys = SERVERS | {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}
    assert client_settings(keys, "input").of("admin")["ssl_check_hostname"] is False
    assert KafkaConsumer.DEFAULT_CONFIG["ssl_check_hostname"] is True
