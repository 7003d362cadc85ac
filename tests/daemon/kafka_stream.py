"""The crash harness on Kafka: the same stream and the same checks, fed and read with the client's plain classes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness import Stream
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClientPartition

from streamdp.transport import kafka as _kafka  # noqa: F401 - it mends a leak of the client's
from streamdp.transport.base import Message, TopicPartition


@dataclass
class KafkaStream(Stream):
    """Topics of its own on a broker that others use too. `output` is another broker for what comes out."""

    server: str = ""
    output: str | None = None
    length: str = "200ms"
    input_keys: str = ""
    output_keys: str = ""
    more: str = ""
    topic_configs: dict[str, str] = field(default_factory=dict)
    replicas: tuple[int, ...] = ()
    """The brokers that hold the input; the first leads."""
    _seen: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = f"clinic-{uuid.uuid4().hex[:10]}"
        self.topic = f"visits-{self.name}"
        self._producer: KafkaProducer | None = None
        self._consumers: dict[str, KafkaConsumer] = {}
        super().__post_init__()

    def transport_text(self) -> str:
        text = (
            f'[input]\ntopics = ["{self.topic}"]\n[input.kafka]\nbootstrap.servers = "{self.server}"\n{self.input_keys}'
        )
        if self.output is not None or self.output_keys:
            text += f'\n[output.kafka]\nbootstrap.servers = "{self.output or self.server}"\n{self.output_keys}'
        return f"{text}\n{self.more}"

    def make_input(self) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.server)
        wanted: dict[str, object] = {"configs": self.topic_configs}
        if self.replicas:
            wanted["assignments"] = {part: list(self.replicas) for part in range(self.partitions)}
        else:
            wanted["num_partitions"] = self.partitions
        admin.create_topics({self.topic: wanted}, wait_for_metadata=True)
        admin.close()

    def delete_input(self) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.server)
        admin.delete_topics([self.topic])
        admin.close()

    def append(self, batch: list[Message]) -> None:
        if self._producer is None:
            self._producer = KafkaProducer(bootstrap_servers=self.server, acks="all", linger_ms=5)
        for message in batch:
            self._producer.send(
                message.topic, message.value, message.key, list(message.headers), message.partition, message.timestamp
            )

    def flush(self) -> None:
        """Waits until everything fed is in the topic."""
        if self._producer is not None:
            self._producer.flush(60)

    def close(self) -> None:
        super().close()
        self.close_clients()

    def close_clients(self) -> None:
        if self._producer is not None:
            self._producer.close(5)
        for consumer in self._consumers.values():
            consumer.close()
        self._producer, self._consumers, self._seen = None, {}, {}

    def outputs(self, topic: str = "releases") -> list[bytes]:
        """What a plain consumer that reads committed has seen so far."""
        name = f"{self.name}.{topic}"
        return self._read(name) if name in self._consumers or self._exists(name) else []

    def _exists(self, name: str) -> bool:
        admin = KafkaAdminClient(bootstrap_servers=self.output or self.server)
        try:
            return name in admin.list_topics()
        finally:
            admin.close()

    def _read(self, name: str) -> list[bytes]:
        partition = ClientPartition(name, 0)
        if name not in self._consumers:
            consumer = self._consumers[name] = self._consumer(self.output or self.server)
            consumer.assign([partition])
            consumer.seek_to_beginning()
        consumer, seen = self._consumers[name], self._seen.setdefault(name, [])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for records in consumer.poll(200).values():
                seen += [record.value for record in records]
        return list(seen)

    def ends(self) -> dict[TopicPartition, int]:
        """The end of every partition of the input."""
        consumer = self._consumer(self.server)
        try:
            found = consumer.end_offsets([ClientPartition(self.topic, part) for part in range(self.partitions)])
            return {TopicPartition(*name): end for name, end in found.items()}
        finally:
            consumer.close()

    def records_below(self, cut: dict[TopicPartition, int]) -> Iterator[tuple[int, bytes, bytes]]:
        limits = {ClientPartition(*name): offset for name, offset in cut.items()}
        consumer = self._consumer(self.server)
        try:
            consumer.assign(list(limits))
            consumer.seek_to_beginning()
            while any(consumer.position(partition) < offset for partition, offset in limits.items()):
                for partition, records in consumer.poll(500).items():
                    below = [record for record in records if record.offset < limits[partition]]
                    yield from ((record.offset, record.key, record.value) for record in below)
        finally:
            consumer.close()

    @staticmethod
    def _consumer(server: str) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=server,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
