"""Minutes on a real broker: the broker paused and killed again and again, and an output that does not keep up."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClientPartition
from kafka_broker.broker import Broker
from kafka_stream import KafkaStream
from test_crashes import assert_prefix
from test_kafka_outages import SHORT, SHORT_OUTPUT
from waiting import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def memory_mb(process: subprocess.Popen[bytes]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def test_dead_letters_for_an_output_that_is_paused_do_not_fill_the_memory(broker, own_broker: Broker, tmp_path) -> None:
    dead = f'[dead_letters]\ntopic = "dead-{time.time_ns()}"\n'
    stream = KafkaStream(
        tmp_path,
        server=broker.plain,
        output=own_broker.addresses.plain,
        input_keys=SHORT,
        output_keys=SHORT_OUTPUT,
        more=dead,
    )
    stream.feed(200)
    daemon = stream.start()
    stream.wait(lambda: stream.last_published() >= 2, daemon)
    before = memory_mb(daemon)
    own_broker.pause()
    try:
        sent = 200_000
        producer = KafkaProducer(bootstrap_servers=broker.plain, linger_ms=50, batch_size=1 << 18)
        for i in range(sent):
            producer.send(stream.topic, b"{rubbish" + b"x" * 500, b"user-%d" % i, partition=i % 2)
        producer.flush()
        producer.close()
        most = 0.0
        for _ in range(10):
            time.sleep(0.5)
            most = max(most, memory_mb(daemon))
    finally:
        own_broker.resume()
    # They would take more than 300 MB as messages that wait.
    assert most - before < 150, f"{before:.0f} MB before, {most:.0f} MB while the output was paused"
    topic = ClientPartition(stream.config.dead_letters.topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=own_broker.addresses.plain, isolation_level="read_committed")
    consumer.assign([topic])
    consumer.seek_to_beginning()
    found, deadline = 0, time.monotonic() + PATIENCE
    while found < sent:
        assert time.monotonic() < deadline, f"{found} dead letters\n{stream.log_text()}"
        found += sum(1 for records in consumer.poll(1_000).values() for r in records if len(r.value) > 500)
    consumer.close()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0, stream.log_text()
    stream.run_until(points=2)
    stream.check_outputs()
    stream.check_ledger()


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_broker_and_daemon_killed_again_and_again(own_broker: Broker, tmp_path) -> None:
    """Twenty kills of the broker, most of them under a running daemon, half of them followed by one of the daemon."""
    randomness = random.Random(5)
    stream = KafkaStream(
        tmp_path, server=own_broker.addresses.plain, input_keys=SHORT, output_keys=SHORT_OUTPUT, guarantee="window = 60"
    )
    stream.feed(200)
    stream.flush()
    before: list[bytes] = []
    daemon = stream.start()
    for number in range(20):
        goal = stream.last_published() + 2
        deadline = time.monotonic() + PATIENCE
        while stream.last_published() < goal:
            assert time.monotonic() < deadline, stream.log_text()
            if daemon.poll() is not None:
                daemon = stream.start()  # It found no broker when it started.
            stream.feed(20)
            time.sleep(0.1)
        time.sleep(randomness.uniform(0, 1))
        own_broker.kill()
        if number % 2:
            time.sleep(randomness.uniform(0, 1))
            daemon.kill()
            daemon.wait()
            daemon = stream.start()
        time.sleep(randomness.uniform(0, 4))
        own_broker.start()
        after = stream.outputs()
        assert_prefix(before, after)
        before = after
    daemon.send_signal(signal.SIGTERM)
    daemon.wait(PATIENCE)
    stream.flush()
    stream.run_until(points=3)
    assert_prefix(before, stream.outputs())
    stream.check()
