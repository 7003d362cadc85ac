"""The client keys of `[input.kafka]` and `[output.kafka]`: librdkafka's names, and what they become for kafka-python.

One table says all: which keys exist, for which of kafka-python's clients, and what their values may be. Keys that
correctness depends on are ours: giving one is refused with the reason. Secrets are never written in the configuration;
it names an environment variable or a file that holds them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from streamdp.errors import ConfigurationError

Section = Literal["input", "output"]
Role = Literal["admin", "consumer", "producer"]
EVERY: tuple[Role, ...] = ("admin", "consumer", "producer")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("takes text")
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("takes a whole number, 0 or more")
    return value


def _one_of(*choices: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        for choice in choices:
            if isinstance(value, str) and value.lower() == choice.lower():
                return choice
        raise ValueError(f"takes one of {', '.join(choices)}")

    return check


def _servers(value: object) -> list[str]:
    servers = [server.strip() for server in _text(value).split(",")]
    if not all(servers):
        raise ValueError('takes "host:port,host:port"')
    return servers


def _codec(value: object) -> str | None:
    codec = _one_of(*CODECS)(value)
    return None if codec == "none" else codec


def _hostname_checked(value: object) -> bool:
    return _one_of("https", "none")(value) == "https"


@dataclass(frozen=True)
class Key:
    """A client key: kafka-python's name, its clients that take it, and the reader of its value."""

    name: str
    roles: tuple[Role, ...] = EVERY
    read: Callable[[object], Any] = _number
    secret: bool = False


KEYS: dict[str, Key] = {
    "bootstrap.servers": Key("bootstrap_servers", read=_servers),
    "client.id": Key("client_id", read=_text),
    "client.rack": Key("client_rack", ("consumer",), _text),
    "security.protocol": Key("security_protocol", read=_one_of(*PROTOCOLS)),
    "sasl.mechanism": Key("sasl_mechanism", read=_one_of(*MECHANISMS)),
    "sasl.mechanisms": Key("sasl_mechanism", read=_one_of(*MECHANISMS)),
    "sasl.username": Key("sasl_plain_username", read=_text),
    "sasl.password": Key("sasl_plain_password", read=_text, secret=True),
    "sasl.kerberos.service.name": Key("sasl_kerberos_service_name", read=_text),
    "ssl.ca.location": Key("ssl_cafile", read=_text),
    "ssl.certificate.location": Key("ssl_certfile", read=_text),
    "ssl.key.location": Key("ssl_keyfile", read=_text),
    "ssl.key.password": Key("ssl_password", read=_text, secret=True),
    "ssl.crl.location": Key("ssl_crlfile", read=_text),
    "ssl.endpoint.identification.algorithm": Key("ssl_check_hostname", read=_hostname_checked),
    "socket.connection.setup.timeout.ms": Key("bootstrap_timeout_ms"),
    "socket.timeout.ms": Key("request_timeout_ms"),
    "socket.send.buffer.bytes": Key("send_buffer_bytes"),
    "socket.receive.buffer.bytes": Key("receive_buffer_bytes"),
    "connections.max.idle.ms": Key("connections_max_idle_ms"),
    "reconnect.backoff.ms": Key("reconnect_backoff_ms"),
    "reconnect.backoff.max.ms": Key("reconnect_backoff_max_ms"),
    "retry.backoff.ms": Key("retry_backoff_ms"),
    "metadata.max.age.ms": Key("metadata_max_age_ms"),
    "receive.message.max.bytes": Key("receive_message_max_bytes"),
    "fetch.min.bytes": Key("fetch_min_bytes", ("consumer",)),
    "fetch.wait.max.ms": Key("fetch_max_wait_ms", ("consumer",)),
    "fetch.max.bytes": Key("fetch_max_bytes", ("consumer",)),
    "max.partition.fetch.bytes": Key("max_partition_fetch_bytes", ("consumer",)),
    "fetch.message.max.bytes": Key("max_partition_fetch_bytes", ("consumer",)),
    "compression.type": Key("compression_type", ("producer",), _codec),
    "compression.codec": Key("compression_type", ("producer",), _codec),
    "linger.ms": Key("linger_ms", ("producer",)),
    "batch.size": Key("batch_size", ("producer",)),
    "message.max.bytes": Key("max_request_size", ("producer",)),
    "message.timeout.ms": Key("delivery_timeout_ms", ("producer",)),
    "delivery.timeout.ms": Key("delivery_timeout_ms", ("producer",)),
}

_POSITIONS = "streamdp keeps its positions in the journal, together with what they stand for"
_ONCE = "without it a release could be published twice or not at all"
OURS: dict[str, str] = {
    "group.id": f"there is no consumer group: {_POSITIONS}",
    "group.instance.id": f"there is no consumer group: {_POSITIONS}",
    "enable.auto.commit": _POSITIONS,
    "auto.commit.interval.ms": _POSITIONS,
    "enable.auto.offset.store": _POSITIONS,
    "auto.offset.reset": "[input] start says where a new stream begins, and a lost position must be noticed",
    "isolation.level": "only committed records may be counted",
    "check.crcs": "damaged records must be noticed",
    "allow.auto.create.topics": "a misspelt topic must not come into being",
    "transactional.id": "it is made of cluster and input, so that a second daemon on an input is fenced",
    "transaction.timeout.ms": "it is longer than the time streamdp gives a publication",
    "enable.idempotence": _ONCE,
    "acks": _ONCE,
    "request.required.acks": _ONCE,
    "retries": _ONCE,
    "message.send.max.retries": _ONCE,
    "max.in.flight": _ONCE,
    "max.in.flight.requests.per.connection": _ONCE,
    "partitioner": "a key must keep its partition",
}

DEFAULTS: dict[str, object] = {
    "client.id": "streamdp",
    "socket.connection.setup.timeout.ms": 10_000,
    "socket.timeout.ms": 20_000,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "message.timeout.ms": 30_000,
}
"""Where ours differ from kafka-python's: a broker that is gone is told in seconds and found again in about one."""


@dataclass(frozen=True)
class KafkaSettings:
    """Settings for kafka-python's clients, secrets included; they do not show when this is printed."""

    servers: str
    _values: Mapping[Role, Mapping[str, Any]] = field(repr=False)

    def of(self, role: Role) -> dict[str, Any]:
        return dict(self._values[role])


def flatten(table: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys, from TOML's nested tables; `{env = "NAME"}` and `{file = "PATH"}` are values."""
    flat: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, Mapping) and not _is_reference(value):
            flat |= {f"{name}.{rest}": inner for rest, inner in flatten(value).items()}
        else:
            flat[name] = value
    return flat


def faults(table: Mapping[str, object], section: Section) -> list[str]:
    """Everything wrong with a table of client keys, one line each; no value is repeated."""
    keys = flatten(table)
    found = []
    for name, value in keys.items():
        fault = _fault(name, value, section)
        if fault is not None:
            found.append(fault)
    return found or _disagreements(keys)


def _fault(name: str, value: object, section: Section) -> str | None:
    if name in OURS:
        return f"{name} is set by streamdp: {OURS[name]}"
    key = KEYS.get(name)
    if key is None:
        near = get_close_matches(name, [*KEYS, *OURS], 1)
        return f"{name} is not a client key" + (f"; did you mean {near[0]}?" if near else "")
    if section == "input" and key.roles == ("producer",):
        return f"{name} is for writing: it belongs in [output.kafka]"
    if isinstance(value, Mapping):
        return None if key.read is _text else f"{name} is not read from the environment or a file"
    if key.secret:
        return f'{name} is a secret: give {{env = "NAME"}} or {{file = "PATH"}}'
    try:
        key.read(value)
    except ValueError as error:
        return f"{name} {error}"
    return None


def _disagreements(keys: Mapping[str, object]) -> list[str]:
    found = []
    if "bootstrap.servers" not in keys:
        found.append('bootstrap.servers is missing: give "host:port" of one broker or more')
    for name in keys:
        others = [other for other in keys if other > name and KEYS[other].name == KEYS[name].name]
        found += [f"{name} and {other} mean the same: give one" for other in others]
    protocol = str(keys.get("security.protocol", "PLAINTEXT")).upper()
    mechanism = str(keys.get("sasl.mechanism", keys.get("sasl.mechanisms", ""))).upper()
    for prefix, wanted in (("sasl.", "SASL"), ("ssl.", "SSL")):
        given = [name for name in keys if name.startswith(prefix)]
        if given and wanted not in protocol:
            found.append(f"{given[0]} has no effect with security.protocol {protocol}: choose one with {wanted}")
    if protocol.startswith("SASL"):
        needed = ["sasl.mechanism"] if not mechanism else []
        needed += [name for name in ("sasl.username", "sasl.password") if mechanism != "GSSAPI" and name not in keys]
        found += [f"{name} is missing, and security.protocol {protocol} needs it" for name in needed]
    return found


def client_settings(table: Mapping[str, object], section: Section, directory: Path | None = None) -> KafkaSettings:
    """What kafka-python's clients take; reads the secrets. Paths are relative to `directory`, when given."""
    wrong = faults(table, section)
    if wrong:
        raise ConfigurationError("\n".join(f"[{section}.kafka] {fault}" for fault in wrong))
    keys = flatten(table)
    given = {KEYS[name].name for name in keys}
    keys |= {name: value for name, value in DEFAULTS.items() if KEYS[name].name not in given}
    values: dict[Role, dict[str, Any]] = {role: {} for role in EVERY}
    for name, given_value in keys.items():
        key, value = KEYS[name], given_value
        if isinstance(value, Mapping):
            value = _look_up(f"[{section}.kafka] {name}", value, directory)
        if name.endswith(".location"):
            value = str((directory or Path()) / str(value))
        for role in key.roles:
            values[role][key.name] = key.read(value)
    return KafkaSettings(",".join(values["admin"]["bootstrap_servers"]), values)


def _is_reference(value: Mapping[str, object]) -> bool:
    return len(value) == 1 and all(name in ("env", "file") and isinstance(to, str) for name, to in value.items())


def _look_up(what: str, reference: Mapping[str, object], directory: Path | None) -> str:
    [(kind, place)] = reference.items()
    if kind == "env":
        found = os.environ.get(str(place), "")
        if not found:
            raise ConfigurationError(f"{what}: the environment variable {place} is not set")
        return found
    path = (directory or Path()) / str(place)
    try:
        found = path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{what}: the file {path} cannot be read") from error
    if not found:
        raise ConfigurationError(f"{what}: the file {path} is empty")
    return found
