"""The keyed aggregation of benchmarks/ingest.py as a Bytewax dataflow, from memory, in Bytewax's own environment.

    .bench-venv/bin/python benchmarks/peers/bytewax_ingest.py DIRECTORY

Reads `keys` and `values` (one a line) from the directory, then times: parse the JSON (with msgspec, the fastest for
Python), key by user, keep the newest record per user in a stateful step, move two histograms. Writes the counts to
`people.npy` and `places.npy` and prints the seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import bytewax.operators as op
import msgspec
import numpy as np
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

REGIONS = {"north": 0, "east": 1, "south": 2, "west": 3}
SEXES = {"f": 0, "m": 1}


class Record(msgspec.Struct, gc=False):
    age: int
    sex: str
    region: str
    income: int
    x: float
    y: float


class Message(msgspec.Struct, gc=False):
    ts: int
    op: str
    record: Record


def cells(record: Record) -> tuple[int, int]:
    people = ((record.age * 2 + SEXES[record.sex]) * 4 + REGIONS[record.region]) * 36 + record.income // 2000
    return people, min(int(record.x * 100), 99) * 100 + min(int(record.y * 100), 99)


def newest(state, message):
    """The state is (ts, cells) of the newest message; emits what leaves and what comes."""
    if state is not None and message.ts < state[0]:
        return state, None
    now = (message.ts, cells(message.record))
    return now, (None if state is None else state[1], now[1])


class Histograms(StatelessSinkPartition):
    def __init__(self, people, places):
        self._people, self._places = people, places

    def write_batch(self, items):
        people, places = self._people, self._places
        for _, moved in items:
            if moved is None:
                continue
            left, came = moved
            if left is not None:
                people[left[0]] -= 1
                places[left[1]] -= 1
            people[came[0]] += 1
            places[came[1]] += 1


class Sink(DynamicSink):
    def __init__(self, people, places):
        self._partition = Histograms(people, places)

    def build(self, step_id, worker_index, worker_count):
        return self._partition


def main() -> None:
    directory = Path(sys.argv[1])
    keys = (directory / "keys").read_text().splitlines()
    values = (directory / "values").read_bytes().splitlines()
    people, places = [0] * 27_648, [0] * 10_000
    decode = msgspec.json.Decoder(Message).decode
    flow = Dataflow("ingest")
    stream = op.input("messages", flow, TestingSource(list(zip(keys, values, strict=True)), batch_size=1000))
    stream = op.map("parse", stream, lambda item: (item[0], decode(item[1])))
    stream = op.stateful_map("newest", stream, newest)
    op.output("histograms", stream, Sink(people, places))
    begin = time.perf_counter()
    run_main(flow)
    seconds = time.perf_counter() - begin
    np.save(directory / "people.npy", np.array(people))
    np.save(directory / "places.npy", np.array(places))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
