"""Traces from strangers: a small file may decompress to anything. Memory stays bounded; an error says which bound."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib
from contextlib import closing

import numpy as np
import pytest
import zstandard
from replay_samples import close, config, line, write

from streamdp.replay import timeline
from streamdp.replay.play import open_trace, replay
from streamdp.replay.reader import Messages, TraceReader
from streamdp.replay.record import Recorder, record_topics
from streamdp.replay.timeline import TraceTooLong
from streamdp.replay.trace import LONGEST_MESSAGE, BrokenTrace, Header, longest_line
from streamdp.replay.writer import TraceWriter
from streamdp.transport.base import Message, TopicSpec
from streamdp.transport.filelog import FileLog

SHORT = b'{"key":"u1","ts":1767225600000,"op":"upsert","record":{"ward":"north"}}\n'
BOMB = 300 << 20
MEMORY = 120 << 20
PIECE = bytes(1 << 20).replace(b"\0", b" ")


def compressed(kind: str, before: bytes, after: bytes) -> bytes:
    """Lines before and after a line of `BOMB` spaces, without ever holding it."""
    if kind == "zstd":
        compressor = zstandard.ZstdCompressor(level=3).compressobj()
    else:
        compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    parts = [compressor.compress(before)]
    parts += [compressor.compress(PIECE) for _ in range(BOMB // len(PIECE))]
    return b"".join([*parts, compressor.compress(after), compressor.flush()])


def rows(trace: TraceReader) -> int:
    return sum(len(batch) for item in trace if isinstance(item, Messages) for batch in item.batches)


@pytest.mark.parametrize("kind", ["zstd", "gzip"])
@pytest.mark.parametrize("before", [b"", SHORT * 3], ids=["first line", "fourth line"])
def test_a_line_without_end_is_an_error_that_says_which_and_takes_no_memory(tmp_path, kind, before):
    path = tmp_path / "t"
    path.write_bytes(compressed(kind, before, b"\n" + SHORT * 2))
    assert path.stat().st_size < 500_000
    number = before.count(b"\n") + 1
    tracemalloc.start()
    try:
        says = rf"line {number}: the line is longer than 16,777,216 bytes"
        with TraceReader(path, "visits") as trace, pytest.raises(BrokenTrace, match=says):
            rows(trace)
        with TraceReader(path, "visits", skip_bad=True) as trace:
            assert not trace.has_marks()
            assert rows(trace) == number + 1
            assert trace.bad_lines == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("over", [0, 1])
def test_the_bound_of_a_line_is_exact(tmp_path, compress, over):
    text = SHORT[:-2] + b" " * (1_000 + over - len(SHORT) + 1) + b"}\n"
    path = tmp_path / "t"
    path.write_bytes(compress(SHORT * 2 + text + SHORT))
    with TraceReader(path, "visits", max_line_bytes=1_000) as trace:
        if over:
            with pytest.raises(BrokenTrace, match=r"line 3: .* 1,000 bytes"):
                rows(trace)
        else:
            assert rows(trace) == 4
    with TraceReader(path, "visits", max_line_bytes=1_000, skip_bad=True) as trace:
        assert rows(trace) == 4 - over and trace.bad_lines == over


def test_compressed_input_beyond_the_bounds_is_read_in_full_when_its_lines_are_fine(tmp_path):
    lines = SHORT * 400_000  # 28 MB in some kilobytes
    for number, compress in enumerate((gzip.compress, zstandard.compress)):
        path = tmp_path / str(number)
        path.write_bytes(compress(lines[: len(lines) // 2]) + compress(lines[len(lines) // 2 :]))
        with TraceReader(path, "visits") as trace:
            assert rows(trace) == 400_000


def test_deep_nesting_is_a_broken_line_and_not_a_crash(tmp_path):
    for text in (b"[" * 100_000, b'{"a":' * 100_000, b'{"topic":' + b"[" * 100_000):
        path = tmp_path / "t"
        path.write_bytes(SHORT + text + b"\n")
        with TraceReader(path, "visits") as trace, pytest.raises(BrokenTrace, match="line 2"):
            rows(trace)


def test_the_bound_follows_the_configuration(tmp_path):
    large = 5 << 20
    given = config()
    given = given.model_copy(update={"input": given.input.model_copy(update={"max_record_bytes": large})})
    assert longest_line(given.input.max_record_bytes) == 8 * large
    path = tmp_path / "t"
    path.write_bytes(line("a", 1_000, "north") + b" " * (20 << 20) + b"\n")
    with open_trace(path, given) as trace:
        assert rows(trace) == 1


def test_a_mark_far_ahead_is_broken(tmp_path):
    for mark in (close(10_003), close(10**15), close(10**15, missed=True), close(2_000_000_001, missed=True)):
        path = write(tmp_path / "t", [line("a", 1_000, "north"), close(1), mark])
        with (
            open_trace(path, config()) as trace,
            pytest.raises(BrokenTrace, match=r"line 3: .*at most 10,000 points ahead, of missed points at 2,000,000"),
        ):
            replay(config(), trace)


def test_a_replay_has_a_last_point(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "MAX_POINTS", 5)
    path = write(tmp_path / "t", [line("a", 1_000, "north"), close(9)])
    with open_trace(path, config()) as trace, pytest.raises(TraceTooLong, match="more than 5 time points"):
        replay(config(), trace)


def test_wild_timestamps_take_linear_time():
    """Each is found out only when the one before it is: a pass over all of them for each would take minutes."""
    count = 40_000
    points = np.arange(10**9, 10**9 - count, -1)
    begin = time.process_time()
    assert timeline._too_far(points, 1).all()
    assert time.process_time() - begin < 5
    mixed = np.array([5, 20_000, 10_005, 20_005, 20_006, 1, 40_000, 30_005])
    assert timeline._too_far(mixed, 1).tolist() == [False, True, False, False, False, False, True, False]


def test_what_is_recorded_can_be_read(tmp_path):
    """A message beyond the bound is recorded as an empty one, at its offset."""
    with closing(FileLog(tmp_path / "log", durable=False)) as log:
        log.ensure_topics([TopicSpec("visits")])
        values = [b"a", b"\1" * LONGEST_MESSAGE, b"\1" * (LONGEST_MESSAGE - 3), None]
        with closing(log.writer("w")) as writer:
            writer.append([Message("visits", value, key=b"key", timestamp=5) for value in values])
        with TraceWriter(tmp_path / "t.zst", Header(marks=False)) as out:
            record_topics(log, ["visits"], Recorder(out, None), from_beginning=True, follow=False)
    with TraceReader(tmp_path / "t.zst", "visits") as trace:
        found = [
            (offset, key, value)
            for item in trace
            if isinstance(item, Messages)
            for batch in item.batches
            for offset, key, value in zip(batch.offsets.tolist(), batch.keys, batch.values, strict=True)
        ]
    assert found == [(0, b"key", b"a"), (1, b"", b""), (2, b"key", values[2]), (3, b"key", None)]
