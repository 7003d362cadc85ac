"""Jobs over a real broker: requests, results and rows are topics there."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pyarrow.parquet
import pytest
from job_harness import JobStream
from kafka_stream import KafkaStream
from waiting import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@dataclass
class KafkaJobStream(JobStream, KafkaStream):
    pass


def test_jobs_over_kafka_survive_kills_of_the_daemon(broker, tmp_path):
    stream = KafkaJobStream(tmp_path, server=broker.plain)
    stream.feed(200)
    stream.run_until(points=1)
    for number, step in enumerate(["admit.after", "result.stored", "publish.after:5"]):
        stream.ask(f"job-{number}", what="rows", runs=str(tmp_path / f"job-{number}"))
        stream.flush()
        process = stream.start(kill_at=step)
        assert process.wait(PATIENCE) == -signal.SIGKILL, stream.log_text()
    process = stream.start()
    try:
        stream.wait_for("job-0", "job-1", "job-2", process=process)
        target = tmp_path / "rows.parquet"
        done = stream.command("submit", "test", "--epsilon", "0.1", "--set", "what=rows", "--output", str(target))
        assert done.returncode == 0, done.stderr
        assert pyarrow.parquet.read_table(target)["age"].to_pylist() == list(range(100_000))
        assert stream.json("show", "job-0")["result"] == {"made": 100_000}
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, stream.log_text()
    for number in range(3):
        parts = stream.outputs(f"rows.job-{number}")
        assert len(parts) == stream.result(f"job-{number}")["rows"]["parts"]
    stream.check()
