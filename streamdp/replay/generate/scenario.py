"""What the generators share: a scenario is a configuration and the lines of a trace that goes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamdp.arrays import Integers
from streamdp.config import StreamConfig
from streamdp.config.load import parse
from streamdp.errors import ConfigurationError
from streamdp.replay.draws import Draws
from streamdp.replay.trace import Header, Mark
from streamdp.replay.writer import TraceWriter

FIRST_OPEN = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
DELETE = b',"op":"delete"}\n'
_LINES_AT_ONCE = 200_000

Piece = bytes | Mark
"""Whole lines, or a mark."""


@dataclass(frozen=True)
class Scenario:
    """A kind of made-up data. `lines(draws, users, points, length)` yields it; `length` is a point's, in ms."""

    name: str
    about: str
    users: int
    """How many users when nobody says."""
    points: int
    configuration: Callable[[int, int], str]
    """The TOML that goes with so many users and points."""
    lines: Callable[[Draws, int, int, int], Iterator[Piece]]

    def config(self, users: int, points: int) -> StreamConfig:
        return parse(self.configuration(users, points), f"the configuration of {self.name}")

    def write(
        self,
        path: Path,
        users: int,
        points: int,
        seed: int,
        on_point: Callable[[int], None] | None = None,
    ) -> None:
        """The trace, with marks. The same arguments give the same bytes."""
        if users < 10 or points < 1:
            raise ConfigurationError("give at least 10 users and one time point")
        config = self.config(users, points)
        length = config.time.length_ms
        header = Header(
            stream=config.name,
            domain=config.build_domain().fingerprint,
            first_open=FIRST_OPEN,
            length=length,
            marks=True,
        )
        with TraceWriter(path, header) as writer:
            for piece in self.lines(Draws(seed), users, points, length):
                if isinstance(piece, Mark):
                    writer.mark(piece)
                    if on_point is not None:
                        on_point(piece.time_point)
                else:
                    writer.lines(piece)


def upsert(record: str) -> bytes:
    """The end of a line: the operation and the record, as JSON."""
    return f',"op":"upsert","record":{record}}}\n'.encode()


def write_lines(users: Integers, ts: Integers, endings: pa.Array, chosen: Integers) -> Iterator[bytes]:
    """Lines of the short form: user u at ts with the chosen ending. No Python object per line."""
    for begin in range(0, len(users), _LINES_AT_ONCE):
        here = slice(begin, begin + _LINES_AT_ONCE)
        lines = pc.binary_join_element_wise(
            '{"key":"u',
            pc.cast(pa.array(users[here]), pa.string()),
            '","ts":',
            pc.cast(pa.array(ts[here]), pa.string()),
            endings.take(pa.array(chosen[here])),
            "",
        )
        _, starts, content = lines.buffers()
        end = int(np.frombuffer(starts, np.int32)[len(lines)])
        yield content.to_pybytes()[:end]


def table(endings: Sequence[bytes]) -> pa.Array:
    """The endings of lines, to choose from by number."""
    return pa.array([ending.decode() for ending in endings], pa.string())


def times(draws: Draws, count: int, time_point: int, length: int) -> Integers:
    """Ascending timestamps inside a point."""
    return np.sort(draws.integers(length, count)) + FIRST_OPEN + (time_point - 1) * length


def closed(time_point: int) -> Mark:
    return Mark(0, time_point)
