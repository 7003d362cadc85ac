"""When the points of a replay close: at the trace's marks, or as the records' own timestamps say.

With marks a replay does what the daemon did: the same records in the same points, under the same limit on timestamps
(none, when the trace's header does not say when the first point opened).
Without them a record whose timestamp lies beyond the open point closes it, and every point before its own, in order; a
record of an earlier point is late and counts in the open one. A record of a point far beyond the open one is a dead
letter, or one wild timestamp would end the replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdp.arrays import Integers
from streamdp.daemon.schedule import Schedule
from streamdp.engine import PointClosed
from streamdp.errors import StreamdpError
from streamdp.ingest import Decoded, Reason
from streamdp.pipeline import Pipeline
from streamdp.replay.reader import Messages, TraceReader
from streamdp.replay.trace import BrokenTrace, TraceMismatch
from streamdp.transport.batch import RecordBatch

MAX_POINTS_AHEAD = 10_000
"""Without marks, a record of a point further ahead than this is a dead letter; a mark of one is broken."""
MAX_POINTS = 1_000_000
"""A replay keeps figures of every point, a run of missed ones being one; a year of minutes has half as many."""
LAST_MISSED = 2_000_000_000
"""A run of missed points ends with this one at the latest: a population numbers points with 31 bits."""
_RECORDS_TO_JUDGE = 1_000
_DOES_NOT_FIT = frozenset(
    {
        Reason.UNKNOWN_FIELD,
        Reason.UNKNOWN_ATTRIBUTE,
        Reason.MISSING_FIELD,
        Reason.WRONG_TYPE,
        Reason.OUTSIDE_DOMAIN,
    }
)


class TraceTooLong(StreamdpError):
    """The trace has more time points than a replay can hold."""


class Timeline:
    """Feeds a pipeline from a trace and says which point is over."""

    def __init__(self, trace: TraceReader, pipeline: Pipeline) -> None:
        self._trace, self._pipeline = trace, pipeline
        self._time = pipeline.config.time
        self._open = pipeline.engine.last_point + 1
        self._events = 0
        self._schedule: Schedule | None = None
        self._first_misfit: int | None = None
        self._fits = False
        self._judged = 0
        header = trace.header
        if header.domain is not None and header.domain != pipeline.domain.fingerprint:
            raise TraceMismatch(
                trace.name, 1, "the trace was made for another domain than the configuration's [domain] describes"
            )
        if header.length is not None and header.length != self._time.length_ms:
            raise TraceMismatch(
                trace.name,
                1,
                f"the trace's time points are {header.length} ms long; the configuration's [time] length must be the"
                f" same: {header.length / 1000:g} seconds",
            )
        if header.first_open is not None:
            self._schedule = Schedule(self._time.length_ms, header.first_open)

    def points(self) -> Iterator[PointClosed]:
        """Every point, when it is over and all of it is fed. The caller closes it in the pipeline, then goes on."""
        yield from self._marked() if self._trace.has_marks() else self._by_event()
        self._judge(last=True)

    def _marked(self) -> Iterator[PointClosed]:
        header = self._trace.header
        waiting = header.backlog_latest_ts is not None
        for item in self._trace:
            if isinstance(item, Messages):
                schedule = self._schedule or self._starting(int(item.batches[0].timestamps[0]))
                latest = header.backlog_latest_ts
                if not waiting:
                    # Without the recorded clock nobody can say which timestamp was too far ahead of it.
                    known = header.first_open is not None
                    latest = schedule.closes(self._open) + self._time.skew_ms if known else None
                for batch, lines in zip(item.batches, item.lines, strict=True):
                    self._pipeline.apply(batch, self._decode(batch, lines, latest), self._open)
            elif item.opens:
                waiting = False
            else:
                waiting = False
                if item.time_point < self._open:
                    raise BrokenTrace(
                        self._trace.name, item.line, f"point {item.time_point} closes twice", "marks ascend"
                    )
                if item.time_point > (LAST_MISSED if item.missed else self._open + MAX_POINTS_AHEAD):
                    raise BrokenTrace(
                        self._trace.name,
                        item.line,
                        f"point {item.time_point} closes while point {self._open} is open",
                        f"a mark is at most {MAX_POINTS_AHEAD:,} points ahead, of missed points at {LAST_MISSED:,}",
                    )
                if item.missed:
                    last = min(item.time_point, self._pipeline.engine.horizon or item.time_point)
                    yield self._over(missed=last - self._open + 1)
                while self._open <= item.time_point and not item.missed:
                    yield self._over()

    def _by_event(self) -> Iterator[PointClosed]:
        began = False
        for item in self._trace:
            if not isinstance(item, Messages):
                continue
            decoded = [self._decode(batch, lines, None) for batch, lines in zip(item.batches, item.lines, strict=True)]
            if self._schedule is None:
                if not any(len(part) for part in decoded):
                    for batch, part in zip(item.batches, decoded, strict=True):
                        self._pipeline.apply(batch, part, self._open)
                    continue
                self._starting(_first_ts(item, decoded))
            began = True
            yield from self._split(item, decoded)
        if began:
            yield self._over()

    def _split(self, item: Messages, decoded: list[Decoded]) -> Iterator[PointClosed]:
        """Feeds the messages point by point."""
        assert self._schedule is not None  # set before the first message is fed
        lines = np.concatenate([lines[part.rows] for lines, part in zip(item.lines, decoded, strict=True)])
        ts = np.concatenate([part.ts for part in decoded])
        order = np.argsort(lines)
        points = 1 + (ts[order] - self._schedule.first_open) // self._schedule.length
        wild = _too_far(points, self._open)
        if wild.any():
            outlaws = lines[order][wild]
            decoded = [
                _reject(part, np.isin(numbers[part.rows], outlaws), Reason.TOO_FAR_AHEAD)
                for numbers, part in zip(item.lines, decoded, strict=True)
            ]
        reached = _reached(points, wild, self._open)
        turns = np.flatnonzero(np.diff(reached, prepend=self._open))
        first_lines = [*lines[order][turns].tolist(), np.iinfo(np.int64).max]
        begins = [0] * len(decoded)
        for turn, until in enumerate(first_lines):
            for place, (batch, numbers, part) in enumerate(zip(item.batches, item.lines, decoded, strict=True)):
                begin, end = begins[place], int(np.searchsorted(numbers, until))
                if end > begin:
                    self._pipeline.apply(batch.slice(begin, end), _part(part, begin, end), self._open)
                begins[place] = end
            while turn < len(turns) and self._open < reached[turns[turn]]:
                yield self._over()

    def _starting(self, ts: int) -> Schedule:
        self._schedule = Schedule.starting(ts, self._time.length_ms, self._time.origin_ms)
        return self._schedule

    def _over(self, missed: int = 0) -> PointClosed:
        self._events += 1
        if self._events > MAX_POINTS:
            raise TraceTooLong(f"{self._trace.name}: more than {MAX_POINTS:,} time points, the most a replay has")
        schedule = self._schedule or self._starting(self._time.origin_ms)
        first, self._open = self._open, self._open + max(missed, 1)
        return PointClosed(self._open - 1, schedule.opens(first), schedule.closes(self._open - 1), missed)

    def _decode(self, batch: RecordBatch, lines: Integers, latest_ts: int | None) -> Decoded:
        decoded = self._pipeline.decode(batch, latest_ts)
        if not self._fits:
            self._fits = bool(len(decoded)) or bool(len(decoded.dropped_rows))
            misfits = np.isin(decoded.rejected_reasons, list(_DOES_NOT_FIT))
            if misfits.any() and self._first_misfit is None:
                self._first_misfit = int(lines[decoded.rejected_rows[misfits][0]])
            self._judged += len(batch)
            self._judge()
        return decoded

    def _judge(self, *, last: bool = False) -> None:
        """Every record a dead letter means a wrong configuration, not bad luck."""
        if self._fits or self._first_misfit is None or (self._judged < _RECORDS_TO_JUDGE and not last):
            return
        raise TraceMismatch(
            self._trace.name,
            self._first_misfit,
            "no message so far fits the configuration's [domain]; the first other attributes or values are here",
        )


def _too_far(points: Integers, open_point: int) -> NDArray[np.bool_]:
    """Which records lie more than MAX_POINTS_AHEAD points beyond the point open at their turn."""
    wild = np.zeros(len(points), np.bool_)
    if points.max(initial=0) > open_point + MAX_POINTS_AHEAD:
        # What is open at a record's turn depends on which earlier ones are wild: one after the other.
        for row, point in enumerate(points.tolist()):
            if point > open_point + MAX_POINTS_AHEAD:
                wild[row] = True
            else:
                open_point = max(open_point, point)
    return wild


def _reached(points: Integers, wild: NDArray[np.bool_], open_point: int) -> Integers:
    """The point that is open after each record."""
    return np.maximum(np.maximum.accumulate(np.where(wild, 0, points)), open_point)


def _first_ts(item: Messages, decoded: list[Decoded]) -> int:
    firsts = [
        (int(lines[part.rows[0]]), int(part.ts[0]))
        for lines, part in zip(item.lines, decoded, strict=True)
        if len(part)
    ]
    return min(firsts)[1]


# Columns of `Decoded` with an entry for each good row, beside `rows` itself.
_COLUMNS = tuple(
    column.name
    for column in fields(Decoded)
    if column.name not in ("rows", "rejected_rows", "rejected_reasons", "dropped_rows")
)


def _columns(decoded: Decoded, chosen: slice | NDArray[np.bool_]) -> dict[str, Any]:
    def take(column: Any) -> Any:
        if isinstance(column, tuple):
            return tuple(map(take, column))
        return None if column is None else column[chosen]

    return {name: take(getattr(decoded, name)) for name in _COLUMNS}


def _part(decoded: Decoded, begin: int, end: int) -> Decoded:
    """What became of rows begin..end-1 of the batch, numbered from 0."""
    good, rejected, dropped = (
        slice(*np.searchsorted(rows, [begin, end]).tolist())
        for rows in (decoded.rows, decoded.rejected_rows, decoded.dropped_rows)
    )
    return Decoded(
        **_columns(decoded, good),
        rows=decoded.rows[good] - begin,
        rejected_rows=decoded.rejected_rows[rejected] - begin,
        rejected_reasons=decoded.rejected_reasons[rejected],
        dropped_rows=decoded.dropped_rows[dropped] - begin,
    )


def _reject(decoded: Decoded, outlaws: NDArray[np.bool_], reason: Reason) -> Decoded:
    """The same with some of the good rows turned away."""
    rejected = np.concatenate([decoded.rejected_rows, decoded.rows[outlaws]])
    reasons = np.concatenate([decoded.rejected_reasons, np.full(int(outlaws.sum()), reason, np.uint8)])
    order = np.argsort(rejected)
    return Decoded(
        **_columns(decoded, ~outlaws),
        rows=decoded.rows[~outlaws],
        rejected_rows=rejected[order],
        rejected_reasons=reasons[order],
        dropped_rows=decoded.dropped_rows,
    )
