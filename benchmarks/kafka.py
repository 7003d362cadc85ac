"""How fast records come out of Kafka, with Java and Maven:

    python benchmarks/kafka.py [--peer .bench-venv/bin/python] [--records N]

On one broker of its own and one topic it measures, in one run, a bare kafka-python consumer that polls and throws the
records away, streamdp's reader, the whole daemon, and, in the peer's environment, a bare confluent-kafka consumer. Each
takes its turn several times; medians are printed. Readers are timed from making the client to the last record, the
daemon from the start of its process until every record is decoded, in the population and counted in two histograms.
The daemon must reach 0.7 of bare kafka-python.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This file has the name of the package it measures, so its folder must not be searched for modules.
sys.path[:] = [str(HERE.parent / "tests"), *(place for place in sys.path if Path(place or ".").resolve() != HERE)]

import kafka  # noqa: E402
from kafka_broker.broker import Broker  # noqa: E402

from streamdp.transport.base import TopicSpec  # noqa: E402
from streamdp.transport.kafka import KafkaTransport  # noqa: E402
from streamdp.transport.kafka_keys import client_settings  # noqa: E402

PARTITIONS = 4
TOPIC = "updates"
SECONDS_WITHOUT_DATA = 30


def fill(address: str, records: int, compression: str | None) -> None:
    """JSON updates, as a busy producer would send them."""
    transport = KafkaTransport(client_settings({"bootstrap.servers": address}, "output"))
    transport.ensure_topics([TopicSpec(TOPIC, PARTITIONS)])
    transport.close()
    producer = kafka.KafkaProducer(
        bootstrap_servers=address, compression_type=compression, linger_ms=50, batch_size=1 << 18
    )
    for i in range(records):
        value = b'{"ts":%d,"op":"upsert","record":{"age":%d,"region":"r%02d","income":%d}}'
        producer.send(
            TOPIC, value % (1_700_000_000_000 + i, i % 100, i * 7 % 50, i * 31 % 90_000), b"user-%d" % (i % 500_000)
        )
    producer.flush()
    producer.close()


def bare_kafka_python(address: str, records: int) -> float:
    begin = time.perf_counter()
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, isolation_level="read_committed")
    with closing(consumer):
        consumer.assign([kafka.TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        consumer.seek_to_beginning()
        count_to(records, lambda: sum(map(len, consumer.poll(1000, max_records=50_000).values())))
        return time.perf_counter() - begin


def streamdp_reader(address: str, records: int) -> float:
    begin = time.perf_counter()
    transport = KafkaTransport(client_settings({"bootstrap.servers": address}, "input"))
    with closing(transport), closing(transport.reader(transport.begin_offsets([TOPIC]))) as reader:
        count_to(records, lambda: sum(map(len, reader.poll(timeout=1.0))))
        return time.perf_counter() - begin


CONFIG = """
[stream]
name = "bench-{number}"
[domain.age]
type = "integer"
low = 0
high = 99
[domain.region]
type = "categorical"
values = [{regions}]
[domain.income]
type = "integer"
low = 0
high = 89999
bins = 9
[time]
length = "1s"
skew = "24h"
[privacy]
epsilon = "1"
window = 100
[[histogram]]
name = "ages"
attributes = ["age", "region"]
share = "0.5"
strategy = "fixed"
[histogram.parameters]
interval = 10
[[histogram]]
name = "incomes"
attributes = ["income"]
share = "0.5"
strategy = "fixed"
[histogram.parameters]
interval = 10
[input]
topics = ["{topic}"]
[input.kafka]
bootstrap.servers = "{server}"
[output.log]
path = "log"
"""
RUNNING = b'"message": "running"'


def whole_daemon(address: str, records: int) -> float:
    """A first start: everything in the topic belongs to the first point, which opens when all of it is in."""
    with tempfile.TemporaryDirectory() as home:
        regions = ", ".join(f'"r{number:02}"' for number in range(50))
        path = Path(home) / "bench.toml"
        path.write_text(CONFIG.format(number=time.time_ns(), regions=regions, topic=TOPIC, server=address))
        begin = time.perf_counter()
        command = [sys.executable, "-W", "ignore", "-m", "streamdp", "run", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=home) as daemon:
            assert daemon.stderr is not None
            said = next((line for line in daemon.stderr if RUNNING in line), None)
            seconds = time.perf_counter() - begin
            daemon.terminate()
            daemon.stderr.read()
        if said is None:
            raise SystemExit("the daemon did not get to run")
    return seconds


def bare_confluent(peer: Path, address: str, records: int) -> float:
    command = [peer, HERE / "peers" / "confluent_consumer.py", address, TOPIC, str(PARTITIONS), str(records)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout)["seconds"])


def count_to(records: int, poll: Callable[[], int]) -> None:
    seen, deadline = 0, time.monotonic() + SECONDS_WITHOUT_DATA
    while seen < records:
        found = poll()
        seen += found
        if found:
            deadline = time.monotonic() + SECONDS_WITHOUT_DATA
        elif time.monotonic() > deadline:
            raise SystemExit("the records do not arrive")


@contextmanager
def a_broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as home:
        broker = Broker(Path(home))
        broker.start()
        try:
            yield broker.addresses.plain
        finally:
            broker.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compression", choices=["gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--peer", type=Path, help="a Python with confluent-kafka; left out without it")
    asked = parser.parse_args()
    readers: dict[str, Callable[[str, int], float]] = {
        "bare kafka-python": bare_kafka_python,
        "streamdp's reader": streamdp_reader,
        "streamdp's daemon": whole_daemon,
    }
    if asked.peer is not None:
        readers["bare confluent-kafka"] = partial(bare_confluent, asked.peer)
    with a_broker() as address:
        fill(address, asked.records, asked.compression)
        taken: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(asked.repeats):
            for name, read in readers.items():
                taken[name].append(read(address, asked.records))
    base = statistics.median(taken["bare kafka-python"])
    print(f"{asked.records} records in {PARTITIONS} partitions, compression {asked.compression or 'none'}")
    for name, times in taken.items():
        seconds = statistics.median(times)
        print(f"{name:22} {asked.records / seconds:12,.0f} records/s   {base / seconds:5.2f} of bare kafka-python")


if __name__ == "__main__":
    main()
