"""A bare confluent-kafka consumer for benchmarks/kafka.py, in an environment that has it.

    .bench-venv/bin/python benchmarks/peers/confluent_consumer.py ADDRESS TOPIC PARTITIONS RECORDS

Polls the topic from its beginning, throws the records away, and prints the seconds from making the consumer to the last
record as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import confluent_kafka


def main(address: str, topic: str, partitions: int, records: int) -> None:
    begin, seen = time.perf_counter(), 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "benchmark", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    while seen < records:
        # A call waits for as many records as it asks for: a short wait, so that the last call costs nothing.
        seen += len(consumer.consume(1_000, 0.05))
    print(json.dumps({"seconds": time.perf_counter() - begin, "library": confluent_kafka.libversion()[0]}))
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
