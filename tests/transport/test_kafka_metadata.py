"""What a client believes of a cluster is older than the cluster: topics it has not heard of, brokers it has dropped."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing

import kafka
import pytest
from kafka.cluster import ClusterMetadata
from kafka_broker.broker import Addresses

from streamdp.transport.base import TopicPartition, TopicSpec
from streamdp.transport.kafka import KafkaTransport
from streamdp.transport.kafka_keys import client_settings

pytestmark = pytest.mark.kafka


@pytest.fixture
def transport(broker: Addresses) -> Iterator[KafkaTransport]:
    settings = client_settings({"bootstrap.servers": broker.plain, "socket.timeout.ms": 3_000}, "output")
    with closing(KafkaTransport(settings)) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex}"


def test_a_new_topic_is_asked_for_again_where_a_broker_does_not_know_it_yet(
    transport: KafkaTransport, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers learn of it one after the other. A daemon that made it must not end because it asked the last one."""
    transport.ensure_topics([TopicSpec(topic)])
    describe = kafka.KafkaAdminClient.describe_topics
    unknown = [{"name": topic, "error_code": 3, "partitions": []}]
    behind = [unknown, unknown]
    asked = lambda admin, names: behind.pop() if behind else describe(admin, names)  # noqa: E731
    monkeypatch.setattr(kafka.KafkaAdminClient, "describe_topics", asked)
    assert transport.partitions(topic) == [0]
    assert not behind


def test_a_broker_that_left_the_client_s_list_is_looked_for_at_once(
    broker: Addresses, transport: KafkaTransport, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of three does that pauses: the client renews its list every five minutes only."""
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.plain)) as admin:
        admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
    known, renew, renewed = ClusterMetadata.broker_metadata, ClusterMetadata.request_update, threading.Event()

    def request_update(cluster: ClusterMetadata) -> object:
        renewed.set()
        return renew(cluster)

    monkeypatch.setattr(ClusterMetadata, "request_update", request_update)
    monkeypatch.setattr(
        ClusterMetadata, "broker_metadata", lambda each, node: known(each, node) if renewed.is_set() else None
    )
    assert transport.end_offsets([topic]) == {TopicPartition(topic, 0): 0}
    assert renewed.is_set()
