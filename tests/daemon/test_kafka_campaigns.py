"""Minutes on a real broker: the broker killed again and again, full speed, and an output that does not keep up."""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
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

from streamdp.journal import JournalReader

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOAK_SECONDS = float(os.environ.get("STREAMDP_SOAK_SECONDS", "600"))


def memory_mb(process: subprocess.Popen[bytes]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def descriptors(process: subprocess.Popen[bytes]) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


@pytest.mark.timeout(300)
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
    stream.wait(lambda: stream.last_published() >= 2, 120, daemon)
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
    found, deadline = 0, time.monotonic() + 120
    while found < sent:
        assert time.monotonic() < deadline, f"{found} dead letters\n{stream.log_text()}"
        found += sum(1 for records in consumer.poll(1_000).values() for r in records if len(r.value) > 500)
    consumer.close()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(90) == 0, stream.log_text()
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
        deadline = time.monotonic() + 120
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
    daemon.wait(60)
    stream.flush()
    stream.run_until(points=3)
    assert_prefix(before, stream.outputs())
    stream.check()


CHUNK = 200_000


def chunk_file(path: Path) -> Path:
    """Updates of 20,000 users, as `kcat` takes them: the key, a bar, the value."""
    now = int(time.time() * 1000)
    with path.open("w") as file:
        for i in range(CHUNK):
            record = f'{{"ward": "north", "age": {i % 100}}}'
            file.write(f'user-{i * 7919 % 20_000}|{{"ts": {now + i // 100}, "op": "upsert", "record": {record}}}\n')
    return path


def records_read(stream: KafkaStream) -> int:
    with JournalReader.open(stream.config.journal_path) as journal:
        return sum(journal.cuts(since=journal.last_time_point - 5)[-1][1].values())


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.skipif(shutil.which("kcat") is None, reason="KAFKA TESTS SKIPPED: no kcat to produce fast enough")
def test_full_speed_for_ten_minutes(own_broker: Broker, tmp_path) -> None:
    """The producer is kept two chunks ahead of what the daemon has committed, so that the daemon never rests."""
    server = own_broker.addresses.plain
    short = {"retention.bytes": "200000000", "segment.bytes": "50000000"}
    stream = KafkaStream(tmp_path, server=server, length="500ms", partitions=4, topic_configs=short)
    stream.feed(200)
    stream.flush()
    daemon = stream.start()
    stream.wait(lambda: stream.last_published() >= 3, 120, daemon)
    chunk = chunk_file(tmp_path / "chunk.txt")
    command = ["kcat", "-P", "-b", server, "-t", stream.topic, "-K", "|", "-z", "lz4", "-l", str(chunk)]
    sent, samples = 0, list[tuple[float, int]]()
    begin = time.monotonic()
    while time.monotonic() < begin + SOAK_SECONDS:
        subprocess.run(command, check=True, capture_output=True)
        sent += CHUNK
        stream.wait(lambda: records_read(stream) > sent - 2 * CHUNK, 120, daemon)  # noqa: B023
        samples.append((memory_mb(daemon), descriptors(daemon)))
    third = len(samples) // 3
    # What is in flight when a sample is taken differs from one to the next; what grows, grows between the thirds.
    early = statistics.median(memory for memory, _ in samples[third : 2 * third])
    late = statistics.median(memory for memory, _ in samples[-third:])
    rate = records_read(stream) / (time.monotonic() - begin)
    print(f"{rate:,.0f} records/s; {early:.0f} MB, then {late:.0f} MB; ", end="")  # noqa: T201
    print(f"descriptors {samples[third][1]}, then {samples[-1][1]}")  # noqa: T201
    assert late < 1.1 * early + 10
    assert samples[-1][1] <= samples[third][1] + 5
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(60) == 0, stream.log_text()
    stream.run_until(points=1)
    stream.check_outputs()
    stream.check_ledger()
