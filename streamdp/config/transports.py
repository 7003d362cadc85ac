"""Which transports a configuration names, and where its dead letters go."""

from __future__ import annotations

from streamdp.config import StreamConfig
from streamdp.ingest.dead_letters import DeadLetterFile, DeadLetters, DeadLetterTopic, last_offsets
from streamdp.transport.base import TopicSpec, Transport, Writer
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


def open_dead_letters(config: StreamConfig, target: Transport, writer: Writer) -> DeadLetters:
    if config.dead_letters.topic is not None:
        target.ensure_topics([TopicSpec(config.dead_letters.topic)])
        known = last_offsets(target, config.dead_letters.topic)
        return DeadLetterTopic(writer, config.dead_letters.topic, known)
    path = config.dead_letters_path
    assert path is not None  # the configuration has a topic or a path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return DeadLetterFile(path, config.dead_letters.max_file_bytes, config.dead_letters.keep_files)
