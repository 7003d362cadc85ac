"""On Kafka: not ready while the broker does not answer, ready again after."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from kafka_broker.broker import Broker
from observed import OBSERVE, Observed, get, samples, until

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from kafka_stream import KafkaStream

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

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
        until(lambda: get(port, "/ready")[0] == 200, 40)
        stream.wait(lambda: samples(get(port, "/metrics")[1])["streamdp_time_point"] >= 2, 40, process)
        own_broker.pause()
        until(lambda: get(port, "/ready") == (503, "input and output not connected\n"), 40)
        assert get(port, "/live")[0] == 200
        assert samples(get(port, "/metrics")[1])["streamdp_ready"] == 0
        own_broker.resume()
        until(lambda: get(port, "/ready")[0] == 200, 40)
        before = samples(get(port, "/metrics")[1])["streamdp_time_point"]
        until(lambda: samples(get(port, "/metrics")[1])["streamdp_time_point"] > before, 40)
    finally:
        own_broker.resume()
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0, stream.log_text()
        stream.close()
