"""Sends made-up visits to a clinic's input for ever: `python produce.py CONFIG [RECORDS_A_SECOND]`.

Nobody's data. Every few minutes an outbreak fills one ward, so that there is something to see.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from streamdp.config import load
from streamdp.config.transports import open_input
from streamdp.transport.base import Message, TopicSpec, Transport, Unreachable

PATIENTS = 20_000
PERIOD, OUTBREAK = 300, 90
"""An outbreak begins every `PERIOD` seconds and lasts `OUTBREAK`."""
WARDS = {"surgery": (55, 6), "medicine": (70, 12), "maternity": (30, 3), "emergency": (40, 1)}
"""Usual age and stay in each."""


def visit(randomness: random.Random, now: float) -> Message:
    """One patient's newest record."""
    busy = now % PERIOD < OUTBREAK
    ward = "emergency" if busy and randomness.random() < 0.6 else randomness.choice(list(WARDS))
    age, stay = WARDS[ward]
    record = {
        "ward": ward,
        "age": min(99, max(0, round(randomness.gauss(age, 12)))),
        "stay": min(29, max(0, round(randomness.gauss(stay, 3)))),
    }
    value = {"ts": int(now * 1000), "op": "upsert", "record": record}
    return Message("visits", json.dumps(value).encode(), key=f"patient-{randomness.randrange(PATIENTS)}".encode())


def produce(source: Transport, rate: int) -> None:
    """Once a second, in one transaction."""
    source.ensure_topics([TopicSpec("visits")])
    randomness = random.Random()
    writer = source.writer("demo-producer")
    while True:
        now = time.time()
        writer.append([visit(randomness, now) for _ in range(rate)])
        time.sleep(max(0.0, now + 1 - time.time()))


def main() -> None:
    config = load(Path(sys.argv[1]))
    rate = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    while True:
        try:
            produce(open_input(config), rate)
        except Unreachable:
            time.sleep(2)


if __name__ == "__main__":
    main()
