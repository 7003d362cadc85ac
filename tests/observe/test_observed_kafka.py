"""On Kafka: not ready while the broker does not answer, and an open transaction that the operator sees."""

from __future__ import annotations

import signal
import sys
import uuid
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka_broker.broker import Addresses, Broker
from observed import OBSERVE, Observed, get, samples
from waiting import PATIENCE, until

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from kafka_stream import KafkaStream

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SHORT = "socket.timeout.ms = 2000\nsocket.connection.setup.timeout.ms = 3000\n"


def test_ready_follows_the_broker(own_broker: Broker, tmp_path: Path) -> None:
    stream = KafkaStream(
        tmp_path,
        server=own_broker.addresses.plain,
        input_keys=SHORT,
        output_keys=SHORT + "message.timeout.ms = 3000\n",
        length="500ms",
    )
    stream.path.write_text(stream.path.read_text() + OBSERVE)
    stream.feed(100)
    stream.flush()
    process = stream.start()
    try:
        ports = Observed.ports(stream, process)
        port = ports["metrics"]
        until(lambda: get(port, "/ready")[0] == 200)
        stream.wait(lambda: samples(get(port, "/metrics")[1])["streamdp_time_point"] >= 2, process)
        own_broker.pause()
        until(lambda: get(port, "/ready") == (503, "input and output not connected\n"))
        assert get(port, "/live")[0] == 200
        assert samples(get(port, "/metrics")[1])["streamdp_ready"] == 0
        own_broker.resume()
        until(lambda: get(port, "/ready")[0] == 200)
        before = samples(get(port, "/metrics")[1])["streamdp_time_point"]
        until(lambda: samples(get(port, "/metrics")[1])["streamdp_time_point"] > before)
    finally:
        own_broker.resume()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, stream.log_text()
        stream.close()


def test_the_operator_sees_what_an_open_transaction_holds_back(broker: Addresses, tmp_path: Path) -> None:
    stream = KafkaStream(tmp_path, server=broker.plain, length="500ms", partitions=1)
    stream.path.write_text(stream.path.read_text() + OBSERVE)
    process = stream.start()
    producer = KafkaProducer(bootstrap_servers=broker.plain, transactional_id=uuid.uuid4().hex)
    try:
        ports = Observed.ports(stream, process)
        series = f'streamdp_input_uncommitted_records{{partition="0",topic="{stream.topic}"}}'

        def held_back() -> float | None:
            return samples(get(ports["operator_metrics"], "/metrics")[1]).get(series)

        until(lambda: held_back() == 0)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(stream.topic, b"{}", b"one").get(PATIENCE)
        stream.feed(100)
        stream.flush()
        until(lambda: held_back() == 101)
        assert "uncommitted" not in get(ports["metrics"], "/metrics")[1]
        producer.commit_transaction()
        until(lambda: held_back() == 0)
    finally:
        producer.close(5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, stream.log_text()
        stream.close()
