"""Getting to a broker, or being told clearly why not: TLS, logins, wrong addresses."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing

import pytest
from contract import drain, values
from kafka_broker.broker import PASSWORD, USER, Addresses

from streamdp.transport.base import Message, TopicPartition, TopicSpec, TransportError
from streamdp.transport.kafka import KafkaTransport
from streamdp.transport.kafka_keys import client_settings

pytestmark = pytest.mark.kafka


def connect(address: str | None, **keys: object) -> KafkaTransport:
    table = {name.replace("_", "."): value for name, value in keys.items()}
    return KafkaTransport(client_settings({"bootstrap.servers": address, **table}, "output"))


def login(address: str | None, mechanism: str, variable: str, user: str = USER) -> KafkaTransport:
    keys = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": {"env": variable}}
    return connect(address, security_protocol="SASL_PLAINTEXT", **keys)


def check_it_works(transport: KafkaTransport, topic: str) -> None:
    """Every kind of client inside must have got the keys, not only the first."""
    with closing(transport):
        transport.ensure_topics([TopicSpec(topic)])
        with closing(transport.writer(topic)) as writer:
            writer.append([Message(topic, b"v")])
        assert b"v" in values(drain(transport, [topic])[TopicPartition(topic, 0)])


def test_tls(secured_broker: Addresses) -> None:
    check_it_works(
        connect(secured_broker.tls, security_protocol="SSL", ssl_ca_location=secured_broker.certificate), "over-tls"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_login(secured_broker: Addresses, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", PASSWORD)
    check_it_works(login(secured_broker.sasl, mechanism, "SECRET"), f"with-{mechanism}")


@pytest.mark.parametrize(("mechanism", "user"), [("PLAIN", USER), ("SCRAM-SHA-256", USER), ("SCRAM-SHA-256", "bob")])
def test_a_wrong_login_is_told_quickly(
    secured_broker: Addresses,
    mechanism: str,
    user: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SECRET", "wrong-password")
    begin, threads = time.monotonic(), threading.active_count()
    with pytest.raises(TransportError, match=r"sasl\.username, sasl\.password") as caught:
        login(secured_broker.sasl, mechanism, "SECRET", user)
    assert time.monotonic() - begin < 25
    assert threading.active_count() == threads, "no client keeps trying in the background"
    assert "wrong-password" not in str(caught.value) + caplog.text


def test_a_certificate_that_is_not_trusted_is_told(secured_broker: Addresses) -> None:
    with pytest.raises(TransportError, match=r"TLS .* check ssl\.ca\.location"):
        connect(secured_broker.tls, security_protocol="SSL")


def test_a_plain_client_at_a_tls_listener_is_told(secured_broker: Addresses) -> None:
    with pytest.raises(TransportError, match=r"security\.protocol"):
        connect(secured_broker.tls, socket_connection_setup_timeout_ms=4_000)


def test_no_broker_is_told_in_bounded_time() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(TransportError, match=f"no broker answers at {address}: check bootstrap.servers"):
            connect(address, socket_connection_setup_timeout_ms=2_000)
        assert time.monotonic() - begin < 25


def test_something_that_listens_and_says_nothing_is_told_in_bounded_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begin = time.monotonic()
        with pytest.raises(TransportError, match=r"check bootstrap\.servers"):
            connect(f"127.0.0.1:{silent.getsockname()[1]}", socket_connection_setup_timeout_ms=2_000)
        assert time.monotonic() - begin < 25
