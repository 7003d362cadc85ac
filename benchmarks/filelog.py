"""The embedded log against a plain file with the same bytes, both in this run: `python benchmarks/filelog.py`.

Prints rates from medians, and the ratio of the plain file's time to the log's (1 is as fast as the plain file). The
plain file is written with one write and one fsync an append, and read in blocks as large as a poll.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from streamdp.transport.base import POLL_BYTES, Message, TopicPartition, TopicSpec
from streamdp.transport.filelog import FileLog

REPEATS = 5


def compare(ours: Callable[[], object], plain: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of both, taking turns, so that a busy disk disturbs both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for action, taken in zip((ours, plain), times, strict=True):
            begin = time.perf_counter()
            action()
            taken.append(time.perf_counter() - begin)
    return statistics.median(times[0]), statistics.median(times[1])


def plain_append(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)


def plain_read(paths: list[Path]) -> int:
    total = 0
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while block := file.read(POLL_BYTES):
                total += len(block)
    return total


def read_all(log: FileLog, topic: str) -> int:
    records = 0
    with closing(log.reader({TopicPartition(topic, 0): 0})) as reader:
        while batches := reader.poll():
            records += sum(len(batch) for batch in batches)
    return records


def line(what: str, records: int, size: int, ours: float, plain: float) -> None:
    print(
        f"{what:<32} {records / ours:12,.0f} records/s {size / ours / 1e6:8,.1f} MB/s"
        f"   plain file {size / plain / 1e6:8,.1f} MB/s   ratio {plain / ours:5.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="records of one large append")
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--small", type=int, default=300, help="appends of one record")
    arguments = parser.parse_args()
    value = b"v" * arguments.value_bytes
    messages = [Message("large", value, b"key%09d" % row, row) for row in range(arguments.records)]
    with tempfile.TemporaryDirectory() as directory, closing(FileLog(Path(directory) / "log")) as log:
        root = Path(directory)
        log.ensure_topics([TopicSpec(topic) for topic in ("large", "small", "tiny", "a", "b", "c")])
        with closing(log.writer("benchmark")) as writer:
            writer.append(messages)
            [segment] = (root / "log/large/0").glob("*.log")
            data = segment.read_bytes()
            times = compare(lambda: writer.append(messages), lambda: plain_append(root / "plain", data))
            line(f"append {arguments.records:,} records", arguments.records, len(data), *times)

            segments = sorted((root / "log/large/0").glob("*.log"))
            stored = sum(path.stat().st_size for path in segments)
            times = compare(lambda: read_all(log, "large"), lambda: plain_read(segments))
            line("read large frames", arguments.records * (REPEATS + 1), stored, *times)

            count, one = arguments.small, Message("small", value, b"key", 0)
            times = compare(
                lambda: [writer.append([one]) for _ in range(count)],
                lambda: [plain_append(root / "plain", value) for _ in range(count)],
            )
            line("append one record, synced", count, count * len(value), *times)

            point = [Message(topic, value, b"key", 0) for topic in "abc"]
            times = compare(
                lambda: [writer.append(point) for _ in range(count)],
                lambda: [plain_append(root / "plain", value) for _ in range(3 * count)],
            )
            line("append to three topics, synced", 3 * count, 3 * count * len(value), *times)

        with closing(FileLog(root / "log", durable=False)) as quick, closing(quick.writer("quick")) as writer:
            for _ in range(20_000):
                writer.append([Message("tiny", value, b"key", 0)])
        segments = sorted((root / "log/tiny/0").glob("*.log"))
        times = compare(lambda: read_all(log, "tiny"), lambda: plain_read(segments))
        line("read frames of one record", 20_000, sum(path.stat().st_size for path in segments), *times)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
