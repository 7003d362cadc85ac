"""Ingest end to end against the parsers alone and against Bytewax, as ratios within one run.

    make bench            (or: python benchmarks/ingest.py [--peer .bench-venv/bin/python] [--users N ...])

streamdp decodes, checks, digests, applies to the population and moves two histograms (27,648 cells; 100 x 100). For
every group of batches each parser and streamdp take their turn, and each counts with its best group, so that what else
the machine does matters little. Limits: at least half the rows per second of the fastest parser, at every number of
users; at least ten times Bytewax. Exits 1 under a limit. streamdp and pyarrow use every core, msgspec and Bytewax one:
on cores that others keep busy the ratios are lower than on free ones.

Bytewax starts from nothing and has 100,000 users, also when streamdp has 10 million: its state is Python objects.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from decoders import PARSERS
from ingest_data import DOMAIN, VIEWS, batches, joined, user_keys

from streamdp.ingest import Decoder, Digester
from streamdp.population import Population
from streamdp.transport.batch import RecordBatch

LEAST_OF_PARSING = 0.5
LEAST_OF_BYTEWAX = 10.0

DIGEST_KEY = bytes(range(16))
BATCH_ROWS = 65_000  # about one poll of 8 MiB
GROUP = 5
PEER_USERS, PEER_ROWS, PEER_ROUNDS = 100_000, 260_000, 3


def filled(users: int) -> Population:
    """A population in which every user holds a record."""
    population, digest = Population(DOMAIN, VIEWS), Digester(DIGEST_KEY)
    rng = np.random.default_rng(7)
    step = 500_000
    for first in range(0, users, step):
        count = min(step, users - first)
        codes = [rng.integers(0, a.size, count).astype(a.dtype) for a in DOMAIN.attributes]
        population.apply(
            digest(user_keys(first, count)),
            None,
            np.zeros(count, np.int64),
            np.zeros(count, np.bool_),
            codes,
            partition=1,
            offsets=np.arange(first, first + count),
            time_point=0,
        )
    return population


def ingest(decoder: Decoder, population: Population, made: Sequence[RecordBatch]) -> None:
    for batch, decoded in decoder.decode_ahead(made, None):
        population.apply(
            decoded.user,
            decoded.record,
            decoded.ts,
            decoded.delete,
            decoded.codes,
            partition=0,
            offsets=batch.offsets[decoded.rows],
            time_point=0,
        )


def parse_all(parse: Callable[[bytes], object], texts: Sequence[bytes]) -> None:
    for text in texts:
        parse(text)


def measure(users: int, rounds: int) -> dict[str, float]:
    """Rows per second of every parser, and of streamdp, over `rounds` groups of batches."""
    population, decoder = filled(users), Decoder(DOMAIN, digest_key=DIGEST_KEY)
    best = dict.fromkeys([*PARSERS, "streamdp"], float("inf"))
    stream = batches(users, rounds * GROUP * BATCH_ROWS, BATCH_ROWS, seed=users)
    while made := list(islice(stream, GROUP)):
        texts = [joined(batch.values) for batch in made]
        runs: dict[str, Callable[[], object]] = {n: partial(parse_all, parse, texts) for n, parse in PARSERS.items()}
        runs["streamdp"] = partial(ingest, decoder, population, made)
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begin)
    return {name: GROUP * BATCH_ROWS / seconds for name, seconds in best.items()}


def measure_bytewax(peer: Path) -> tuple[float, float]:
    """Rows per second of streamdp and of Bytewax on the same messages, both from nothing; the counts must agree."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        made = list(batches(PEER_USERS, PEER_ROWS, BATCH_ROWS, seed=3))
        with (directory / "keys").open("wb") as keys, (directory / "values").open("wb") as values:
            for batch in made:
                keys.write(joined(batch.keys))
                values.write(joined(batch.values))
        script = Path(__file__).parent / "peers" / "bytewax_ingest.py"
        ours = theirs = float("inf")
        for _ in range(PEER_ROUNDS):
            seconds, population = _from_nothing(made)
            run = subprocess.run([peer, script, directory], check=True, capture_output=True, text=True)
            ours, theirs = min(ours, seconds), min(theirs, json.loads(run.stdout.splitlines()[-1])["seconds"])
        for view in VIEWS:
            if not (np.load(directory / f"{view.name}.npy") == population.counts(view.name)).all():
                raise SystemExit(f"the counts of {view.name} differ between streamdp and Bytewax")
    return PEER_ROWS / ours, PEER_ROWS / theirs


def _from_nothing(made: list[RecordBatch]) -> tuple[float, Population]:
    population, decoder = Population(DOMAIN, VIEWS), Decoder(DOMAIN, digest_key=DIGEST_KEY)
    begin = time.perf_counter()
    ingest(decoder, population, made)
    return time.perf_counter() - begin, population


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--users", type=int, nargs="*", default=[100_000, 10_000_000])
    arguments.add_argument("--rounds", type=int, default=4)
    arguments.add_argument("--peer", type=Path, help="the Python that has Bytewax; left out without")
    chosen = arguments.parse_args()
    good = True
    for users in chosen.users:
        rates = measure(users, chosen.rounds)
        fastest = max(PARSERS, key=lambda name: rates[name])
        ratio = rates["streamdp"] / rates[fastest]
        good &= ratio >= LEAST_OF_PARSING
        print(f"{users:,} users, batches of {BATCH_ROWS:,} messages")
        for name, rate in rates.items():
            print(f"  {name:10} {rate / 1e6:6.2f} M rows/s")
        print(f"  streamdp / {fastest}: {ratio:.2f} (at least {LEAST_OF_PARSING})")
    if chosen.peer is not None:
        ours, theirs = measure_bytewax(chosen.peer)
        ratio = ours / theirs
        good &= ratio >= LEAST_OF_BYTEWAX
        print(f"{PEER_USERS:,} users, {PEER_ROWS:,} messages, from nothing")
        print(f"  streamdp   {ours / 1e6:6.2f} M rows/s")
        print(f"  bytewax    {theirs / 1e6:6.2f} M rows/s")
        print(f"  streamdp / bytewax: {ratio:.1f} (at least {LEAST_OF_BYTEWAX})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
