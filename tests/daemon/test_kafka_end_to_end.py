"""From producers to subscribers through a real broker, in processes of their own, some of which know no streamdp."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from harness import WARDS
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClientPartition
from kafka_stream import KafkaStream
from waiting import PATIENCE

from streamdp import messages
from streamdp.client import latest, subscribe
from streamdp.config.transports import open_output
from streamdp.journal import JournalReader

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PRODUCER = """
import json, sys, time
from kafka import KafkaProducer
server, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = KafkaProducer(bootstrap_servers=server)
for i in range(count):
    record = {"ward": ["north", "south", "east", "west"][i % 4], "age": i % 100}
    value = {"ts": int(time.time() * 1000), "op": "upsert", "record": record}
    producer.send(topic, json.dumps(value).encode(), b"user-%d" % i)
producer.flush()
producer.close()
"""


@pytest.fixture
def stream(broker, tmp_path) -> KafkaStream:
    stream = KafkaStream(tmp_path, server=broker.plain)
    return stream


def stop(stream: KafkaStream, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, stream.log_text()


def published(stream: KafkaStream, process: subprocess.Popen[bytes], points: int) -> None:
    goal = stream.last_published() + points
    stream.wait(lambda: stream.last_published() >= goal, process)


def test_producer_daemon_and_subscriber(stream, broker):
    daemon = stream.start()
    stream.wait(lambda: "running" in stream.log_text(), daemon)
    follow = [sys.executable, "-m", "streamdp", "subscribe", str(stream.path), "--follow", "--from-beginning", "--json"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as subscriber:
        subprocess.run([sys.executable, "-W", "ignore", "-c", PRODUCER, broker.plain, stream.topic, "400"], check=True)
        seen: list[dict] = []
        largest = 0.0
        while largest < 300:  # 400 users, and noise of a few dozen
            seen.append(json.loads(subscriber.stdout.readline()))
            if seen[-1]["kind"] == "release" and seen[-1]["histogram"] == "ages":
                largest = np.sum(seen[-1]["counts"])
        subscriber.send_signal(signal.SIGINT)
        subscriber.communicate(timeout=PATIENCE)
    stop(stream, daemon)
    told = [(each["time_point"], each["histogram"], each["kind"]) for each in seen]
    assert told == stream.summary(stream.outputs())[: len(told)]
    stream.check()


def kcat(server: str, *words: str, lines: str = "") -> str:
    if shutil.which("kcat") is None:
        pytest.skip("KAFKA TESTS SKIPPED: kcat is not installed (Debian: apt-get install kcat)")
    done = subprocess.run(["kcat", "-b", server, *words], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_that_know_nothing_of_streamdp(stream, broker):
    now = int(time.time() * 1000)
    lines = "".join(
        f'user-{i}|{{"ts": {now}, "op": "upsert", "record": {{"ward": "{WARDS[i % 4]}", "age": {i % 100}}}}}\n'
        for i in range(500)
    )
    kcat(broker.plain, "-P", "-t", stream.topic, "-K", "|", lines=lines)
    daemon = stream.start()
    published(stream, daemon, 4)
    stop(stream, daemon)
    printed = kcat(
        broker.plain, "-C", "-t", f"{stream.name}.releases", "-o", "beginning", "-e", "-q",
        "-X", "isolation.level=read_committed", "-f", "%k %s\\n",
    )  # fmt: skip
    found = [line.split(" ", 1) for line in printed.splitlines()]
    assert [value.encode() for _, value in found] == stream.outputs()
    assert ("wards", "release") in {(key, json.loads(value)["kind"]) for key, value in found}
    stream.check()


@pytest.mark.parametrize("library", ["kafka-python", "librdkafka"])
def test_compressed_input_in_every_codec(stream, broker, library):
    codecs = ("gzip", "snappy", "lz4", "zstd")
    now = int(time.time() * 1000)
    for codec in codecs:
        texts = [
            json.dumps({"ts": now, "op": "upsert", "record": {"ward": WARDS[i % 4], "age": i % 100}})
            for i in range(300)
        ]
        if library == "librdkafka":
            lines = "".join(f"{codec}-{i}|{text}\n" for i, text in enumerate(texts))
            kcat(broker.plain, "-P", "-t", stream.topic, "-K", "|", "-z", codec, lines=lines)
            continue
        producer = KafkaProducer(bootstrap_servers=broker.plain, compression_type=codec, linger_ms=20)
        for i, text in enumerate(texts):
            producer.send(stream.topic, text.encode(), f"{codec}-{i}".encode())
        producer.flush()
        producer.close()
    daemon = stream.start()
    published(stream, daemon, 2)
    stop(stream, daemon)
    with JournalReader.open(stream.config.journal_path) as journal:
        cut = dict(journal.cuts()[-1][1])
    assert sum(stream.count_below(cut).values()) == 4 * 300
    stream.check()


def malformed(randomness: random.Random, good: bytes) -> bytes:
    return randomness.choice(
        [
            b"{rubbish",
            b"",
            b"\xff\xfe",
            good[:-1],
            good.replace(b"ward", b"wart"),
            good.replace(b'"age": ', b'"age": 1e9'),
        ]
    )


@pytest.mark.parametrize("letters", ["topic", "file"])
def test_malformed_messages_in_bulk_change_nothing_but_the_dead_letters(broker, tmp_path, letters):
    dead = f'[dead_letters]\ntopic = "dead-{tmp_path.name}-{time.time_ns()}"\n' if letters == "topic" else ""
    stream = KafkaStream(tmp_path, server=broker.plain, more=dead)
    randomness = random.Random(3)
    now = int(time.time() * 1000)
    producer = KafkaProducer(bootstrap_servers=broker.plain, linger_ms=20)
    bad: list[bytes] = []
    for i in range(20_000):
        record = {"ward": WARDS[i % 4], "age": i % 100}
        good = json.dumps({"ts": now, "op": "upsert", "record": record}).encode()
        if i % 10 == 7:
            bad.append(malformed(randomness, good))
        producer.send(stream.topic, bad[-1] if i % 10 == 7 else good, b"user-%d" % (i % 5_000), partition=i % 2)
    producer.flush()
    producer.close()
    expected = {(i % 5_000): (WARDS[i % 4], i % 100) for i in range(20_000) if i % 10 != 7}
    daemon = stream.start()
    published(stream, daemon, 3)
    # Killed, so that the next one meets the same messages again: each is a dead letter once all the same.
    daemon.kill()
    daemon.wait()
    stream.run_until(points=2)
    config = stream.config
    if letters == "topic":
        partition = ClientPartition(config.dead_letters.topic, 0)
        consumer = KafkaConsumer(bootstrap_servers=broker.plain, isolation_level="read_committed")
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found = []
        while consumer.position(partition) < end:
            found += [record for records in consumer.poll(500).values() for record in records]
        consumer.close()
        assert sorted(record.value for record in found) == sorted(bad)
        assert all("__connect.errors.exception.message" in dict(record.headers) for record in found)
    else:
        assert len(config.dead_letters_path.read_bytes().splitlines()) == len(bad)
        assert config.dead_letters_path.stat().st_mode & 0o777 == 0o600
    counted = population(stream)
    for ward in range(4):
        for age in range(10):
            wanted = sum(1 for w, a in expected.values() if (w, a // 10) == (WARDS[ward], age))
            assert counted[ward, age] == wanted


def population(stream: KafkaStream) -> np.ndarray:
    """The counts that recovery comes to."""
    from streamdp.config.transports import open_input, open_output
    from streamdp.daemon.recovery import recover
    from streamdp.daemon.start import open_journal
    from streamdp.ingest.dead_letters import DeadLetterFile

    config = stream.config
    source, target = open_input(config), open_output(config)
    journal = open_journal(config, source, target)
    rejected = DeadLetterFile(stream.directory / "rejected.jsonl")
    try:
        pipeline, reader, _ = recover(config, journal, source, rejected, False, None)
        reader.close()
        return pipeline.population.counts("ages").reshape(4, 10)
    finally:
        rejected.close()
        journal.close()
        target.close()
        source.close()


WIDE = """
[stream]
name = "{name}"

[domain.x]
type = "integer"
low = 0
high = 1023

[domain.y]
type = "integer"
low = 0
high = 1023

[time]
length = "2s"

[privacy]
epsilon = "1"
window = 1000

[[histogram]]
name = "grid"
attributes = ["x", "y"]
strategy = "fixed"
[histogram.parameters]
interval = 100

[output]
format = "{format}"

[input]
topics = ["{topic}"]
[input.kafka]
bootstrap.servers = "{server}"

[journal]
path = "state/journal.db"
"""


@pytest.mark.parametrize("encoding", ["json", "arrow"])
def test_a_release_of_a_million_cells_passes_a_broker_with_default_limits(stream, broker, encoding):
    stream.path.write_text(WIDE.format(name=stream.name, topic=stream.topic, server=broker.plain, format=encoding))
    producer = KafkaProducer(bootstrap_servers=broker.plain)
    for i in range(2_000):
        value = {"ts": int(time.time() * 1000), "op": "upsert", "record": {"x": i % 1024, "y": i * 7 % 1024}}
        producer.send(stream.topic, json.dumps(value).encode(), b"user-%d" % i)
    producer.flush()
    producer.close()
    daemon = stream.start()
    stream.wait(lambda: stream.outputs("latest"), daemon)
    stop(stream, daemon)
    with JournalReader.open(stream.config.journal_path) as journal:
        stored = journal.last_release("grid")
    transport = open_output(stream.config)
    try:
        release = latest(transport, stream.name)["grid"]
        followed = list(subscribe(transport, stream.name, from_beginning=True, follow=False))
    finally:
        transport.close()
    assert release.counts.size == 1024 * 1024
    assert np.array_equal(release.counts, stored.counts)
    [fresh] = [update for update in followed if update.is_new]
    assert np.array_equal(fresh.release.counts, stored.counts)
    assert len(stream.outputs("latest")) > 1, "it needs several messages"
    assert all(len(value) <= 900_000 for value in stream.outputs())
    assert messages.decode(stream.outputs("latest")[0]).header["release_id"] == stored.release_id


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamdp", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )


def test_a_topic_becomes_a_trace_and_a_trace_a_topic(stream, broker, tmp_path):
    stream.feed(300)
    stream.flush()
    trace = tmp_path / "visits.jsonl.zst"
    assert "300 messages recorded" in command("record", stream.path, trace, "--from-beginning").stdout
    (tmp_path / "second").mkdir()
    second = KafkaStream(tmp_path / "second", server=broker.plain)
    assert "300 messages" in command("replay", trace, "--to", second.path).stdout
    third = f"{second.topic}-third"
    assert "300 messages" in command("replay", trace, "--to", f"kafka://{broker.plain}", "--topic", third).stdout
    totals = []
    for topic in (stream.topic, second.topic, third):
        consumer = KafkaConsumer(bootstrap_servers=broker.plain, isolation_level="read_committed")
        partitions = [ClientPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends, found = consumer.end_offsets(partitions), []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += [(r.key, r.value, r.timestamp) for each in consumer.poll(500).values() for r in each]
        consumer.close()
        totals.append(sorted(found))
    assert len(totals[0]) == 300
    assert totals[0] == totals[1] == totals[2]


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
