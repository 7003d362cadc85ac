"""Reading a trace: a stream of messages, as columns, and marks, in the order of the lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamdp.arrays import Integers
from streamdp.replay.files import DamagedFile, TraceFile
from streamdp.replay.lines import (
    FULL_BEGINS,
    SHORT_BEGINS,
    Bytes,
    Columns,
    begins_with,
    broken,
    cut_short,
    padded,
    read_full,
)
from streamdp.replay.trace import (
    BrokenLine,
    BrokenTrace,
    Header,
    Mark,
    Row,
    TraceMismatch,
    longest_line,
    read_header,
    read_line,
)
from streamdp.transport.batch import RecordBatch

# Large enough that the cost per block disappears, small enough to stay near the processor.
_BLOCK_BYTES = 4 << 20
_LONGEST_HEADER = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class Messages:
    """Consecutive messages: one batch for each partition (more where offsets do not ascend), and their lines."""

    batches: tuple[RecordBatch, ...]
    lines: tuple[Integers, ...]

    @property
    def first_line(self) -> int:
        return min(int(lines[0]) for lines in self.lines)


@dataclass(frozen=True, eq=False, repr=False)
class _Block:
    """Whole lines, and the number of the first."""

    content: bytes
    first: int


class TraceReader:
    """One trace. `default_topic` is the topic of the short form; `topics` are those it may hold (None: any).

    `bad_lines` counts what `skip_bad` passed over. A line longer than `max_line_bytes` is broken. Traces come from
    strangers: memory depends on that bound, never on what the file decompresses to.
    """

    def __init__(
        self,
        path: str | Path,
        default_topic: str,
        topics: frozenset[str] | None = None,
        *,
        skip_bad: bool = False,
        max_line_bytes: int | None = None,
    ) -> None:
        self.file = TraceFile(Path(path))
        self.name = str(path)
        self.bad_lines = 0
        self._default_topic, self._topics = default_topic, topics
        self._skip_bad = skip_bad
        self._max_line_bytes = longest_line() if max_line_bytes is None else max_line_bytes
        self._has_marks: bool | None = None
        try:
            self.header = self._read_header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()

    def __iter__(self) -> Iterator[Messages | Mark]:
        """From the first line on. Raises `BrokenTrace` at the first broken line, unless they are skipped."""
        self.bad_lines = 0
        for block in self._blocks():
            yield from self._items(block)

    def has_marks(self) -> bool:
        """Whether the clock of this trace is in it; reads the whole file when the header does not say."""
        if self._has_marks is None:
            self._has_marks = self._find_a_mark() if self.header.marks is None else self.header.marks
        return self._has_marks

    def _find_a_mark(self) -> bool:
        for block in self._blocks(quiet=True):
            # A mark may be written with spaces; a message that only looks like one is told apart by reading it.
            if b'"close"' in block.content and any(isinstance(item, Mark) for item in self._items(block, quiet=True)):
                return True
        return False

    def _read_header(self) -> Header:
        begin = b""
        try:
            for chunk in self.file.chunks():
                begin += chunk
                if b"\n" in begin or len(begin) > _LONGEST_HEADER:
                    break
            return read_header(begin.partition(b"\n")[0]) or Header()
        except DamagedFile as damage:
            if not self._skip_bad:
                raise BrokenTrace(self.name, 1, str(damage)) from None
        except BrokenLine as fault:
            raise TraceMismatch(self.name, 1, str(fault)) from None
        return Header()

    def _blocks(self, quiet: bool = False) -> Iterator[_Block]:
        rest = bytearray()
        # The first line of `rest`; where its last whole line ends; whether we are inside a line that is passed over.
        number, whole, inside = 1, 0, False
        try:
            for chunk in self.file.chunks():
                begin = 0
                if inside:
                    begin = chunk.find(b"\n") + 1
                    if not begin:
                        continue
                    number, inside = number + 1, False
                if end := chunk.rfind(b"\n", begin) + 1:
                    whole = len(rest) + end - begin
                rest += chunk[begin:]
                if whole and (len(rest) >= _BLOCK_BYTES or len(rest) - whole > self._max_line_bytes):
                    block = _Block(bytes(rest[:whole]), number)
                    number += block.content.count(b"\n")
                    del rest[:whole]
                    whole = 0
                    yield block
                if not whole and len(rest) > self._max_line_bytes:
                    rest.clear()
                    inside = True
                    if not quiet:
                        self._bad(number, self._too_long)
        except DamagedFile as damage:
            if rest:
                block = _Block(bytes(rest[:whole]), number)
                yield block
                number += block.content.count(b"\n")
            if not quiet:
                self._bad(number, str(damage))
            return
        if rest:
            yield _Block(bytes(rest), number)

    @property
    def _too_long(self) -> str:
        return f"the line is longer than {self._max_line_bytes:,} bytes, the most a line of this trace may have"

    def _bad(self, line: int, what: str) -> None:
        if not self._skip_bad:
            raise BrokenTrace(self.name, line, what)
        self.bad_lines += 1

    def _items(self, block: _Block, quiet: bool = False) -> Iterator[Messages | Mark]:
        content = padded(block.content)
        ends = np.flatnonzero(content == ord("\n")).astype(np.int64)
        if not block.content.endswith(b"\n"):
            ends = np.append(ends, len(block.content))
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        numbers = block.first + np.arange(len(ends), dtype=np.int64)
        kept: NDArray[np.bool_] = ends - starts <= self._max_line_bytes
        for row in np.flatnonzero(~kept).tolist():
            if not quiet:
                self._bad(int(numbers[row]), self._too_long)
        if block.first == 1 and len(ends) and read_header(block.content[: ends[0]]) is not None:
            kept[0] = False
        short = begins_with(content, starts, SHORT_BEGINS)
        odd = kept & ~short & ~begins_with(content, starts, FULL_BEGINS)
        marks: dict[int, Mark] = {}
        blank = 0
        for row in np.flatnonzero(odd).tolist():
            line = block.content[starts[row] : ends[row]]
            if not line.strip():
                kept[row] = False
                blank += 1
            elif b'"close"' in line or b'"open"' in line:
                try:
                    found = read_line(line, int(numbers[row]))
                except BrokenLine:
                    continue
                if isinstance(found, Mark):
                    marks[row] = found
                    kept[row] = False
        if broken(block.content, len(ends) - blank):
            self._drop_broken(block, starts, ends, numbers, kept, quiet)
        before = 0
        for row in [*sorted(marks), len(ends)]:
            rows = before + np.flatnonzero(kept[before:row])
            if len(rows):
                columns = self._columns(block, content, starts[rows], ends[rows], numbers[rows], short[rows], quiet)
                if columns is not None:
                    yield self._messages(columns)
            if row in marks:
                yield marks[row]
            before = row + 1

    def _drop_broken(
        self,
        block: _Block,
        starts: Integers,
        ends: Integers,
        numbers: Integers,
        kept: NDArray[np.bool_],
        quiet: bool,
    ) -> None:
        for row in np.flatnonzero(kept).tolist():
            if broken(block.content[starts[row] : ends[row]], 1):
                kept[row] = False
                if not quiet:
                    self._bad(int(numbers[row]), "not JSON")

    def _columns(
        self,
        block: _Block,
        content: Bytes,
        starts: Integers,
        ends: Integers,
        numbers: Integers,
        short: NDArray[np.bool_],
        quiet: bool,
    ) -> Columns | None:
        parts: list[Columns] = []
        left = np.ones(len(numbers), np.bool_)
        if short.any():
            rows = np.flatnonzero(short)
            columns, cut = cut_short(content, starts[rows], ends[rows], numbers[rows])
            if columns is not None:
                parts.append(columns)
                left[rows[cut]] = False
        if left.any():
            rows = np.flatnonzero(left)
            bounds = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
            lines = [block.content[start:end] for start, end in bounds]
            columns = read_full(lines, numbers[rows]) or self._one_by_one(lines, numbers[rows], quiet)
            if columns is not None:
                parts.append(columns)
        return Columns.merge(parts) if parts else None

    def _one_by_one(self, lines: list[bytes], numbers: Integers, quiet: bool) -> Columns | None:
        kept: list[int] = []
        rows: list[Row] = []
        for line, number in zip(lines, numbers.tolist(), strict=True):
            try:
                row = read_line(line, number)
            except BrokenLine as fault:
                if not quiet:
                    self._bad(number, str(fault))
                continue
            if isinstance(row, Row):
                kept.append(number)
                rows.append(row)
        return Columns.of_rows(kept, rows) if rows else None

    def _messages(self, columns: Columns) -> Messages:
        batches: list[RecordBatch] = []
        lines: list[Integers] = []
        for place, (named, partition) in enumerate(columns.partitions):
            here = None if len(columns.partitions) == 1 else np.flatnonzero(columns.places == place)
            numbers = columns.lines if here is None else columns.lines[here]
            topic = self._default_topic if named is None else named
            if self._topics is not None and topic not in self._topics:
                raise TraceMismatch(
                    self.name,
                    int(numbers[0]),
                    f"the topic {topic!r} is not among the configuration's [input] topics; add it there",
                )
            batch = RecordBatch(
                topic,
                partition,
                columns.offsets if here is None else columns.offsets[here],
                columns.timestamps if here is None else columns.timestamps[here],
                columns.keys if here is None else columns.keys.take(here),
                columns.values if here is None else columns.values.take(here),
            )
            # A transport's offsets ascend. Where a trace's do not (two recordings, a message twice), a batch ends.
            turns = np.flatnonzero(np.diff(batch.offsets) <= 0) + 1
            bounds = [0, *turns.tolist(), len(batch)]
            for begin, end in pairwise(bounds):
                batches.append(batch.slice(begin, end))
                lines.append(numbers[begin:end])
        return Messages(tuple(batches), tuple(lines))
