"""How fast a trace replays, against the engine's ingest alone, as ratios within one run.

    python benchmarks/replay.py [--users 500000] [--points 500]

Makes a census trace, then times, on the same messages: decompressing it; reading it to batches; the pipeline fed with
those batches from memory, points closed and strategies stepped (the engine's own speed); and the whole replay with its
measuring. The limit: a whole replay takes at most twice as long as the engine alone.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from streamdp.config import StreamConfig
from streamdp.engine import PointClosed
from streamdp.replay.generate import SCENARIOS
from streamdp.replay.play import Player, open_trace, replay
from streamdp.replay.reader import Messages
from streamdp.replay.trace import Mark
from streamdp.transport.batch import RecordBatch

MOST = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=500_000)
    parser.add_argument("--points", type=int, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "census.jsonl.zst"
        scenario = SCENARIOS["census"]
        config = scenario.config(arguments.users, arguments.points)
        made = timed(lambda: scenario.write(path, arguments.users, arguments.points, 1))
        print(f"generate    {made:8.2f} s   {path.stat().st_size / 1e6:.0f} MB")
        with open_trace(path, config) as trace:
            print(f"decompress  {timed(lambda: sum(map(len, trace.file.chunks()))):8.2f} s")
        with open_trace(path, config) as trace:
            whole = timed(lambda: replay(config, trace, seed=1))
        # Before anything holds the trace in memory, which a replay does not.
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        items: list[list[RecordBatch] | Mark] = []
        reading = timed(lambda: items.extend(read(path, config)))
        messages = sum(len(batch) for item in items if not isinstance(item, Mark) for batch in item)
        engine = timed(lambda: engine_alone(path, config, items))
    print(f"read        {reading:8.2f} s   {messages / reading / 1e6:.2f} M messages/s")
    print(f"engine      {engine:8.2f} s   {messages / engine / 1e6:.2f} M messages/s")
    print(f"replay      {whole:8.2f} s   {messages / whole / 1e6:.2f} M messages/s, {whole / engine:.2f} x engine")
    print(f"memory      {memory / 1024:8.0f} MB at most, generating and replaying")
    return 0 if whole <= MOST * engine else 1


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def read(path: Path, config: StreamConfig) -> list[list[RecordBatch] | Mark]:
    with open_trace(path, config) as trace:
        return [list(item.batches) if isinstance(item, Messages) else item for item in trace]


def engine_alone(path: Path, config: StreamConfig, items: list[list[RecordBatch] | Mark]) -> None:
    with open_trace(path, config) as trace:
        pipeline = Player(config, trace).pipeline
    for item in items:
        if isinstance(item, Mark):
            pipeline.close(PointClosed(item.time_point, 0, 0))
            continue
        for batch in item:
            pipeline.feed(batch, pipeline.engine.last_point + 1, None)


if __name__ == "__main__":
    sys.exit(main())
