"""Which transports a configuration names."""

from __future__ import annotations

from streamdp.config import StreamConfig
from streamdp.transport.base import TopicSpec, Transport
from streamdp.transport.filelog import FileLog


def open_input(config: StreamConfig, *, create: bool = True) -> Transport:
    """The input's Kafka or log; in a log topics that nobody has written to yet are made: a feeder can come second.

    Without `create` nothing is made, and a log that does not exist is refused.
    """
    settings = config.input_kafka
    if settings is not None:
        from streamdp.transport.kafka import KafkaTransport

        return KafkaTransport(settings)
    transport = FileLog(config.input_log_path, create=create)
    if create:
        missing = set(config.input.topics) - set(transport.topics())
        transport.ensure_topics([TopicSpec(topic) for topic in sorted(missing)])
    return transport


def open_output(config: StreamConfig, *, create: bool = True) -> Transport:
    settings = config.output_kafka
    if settings is not None:
        from streamdp.transport.kafka import KafkaTransport

        return KafkaTransport(settings)
    return FileLog(config.output_log_path, create=create)
