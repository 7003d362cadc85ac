"""Records of a key can be taken out of the embedded log's files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from streamdp.transport.base import Message, TopicPartition, TopicSpec
from streamdp.transport.filelog import FileLog

ANNA, T = b"anna-1828", TopicPartition("t", 0)


def everything(log: FileLog) -> list[tuple[int, bytes | None]]:
    end = log.end_offsets(["t"])[T]
    found: list[tuple[int, bytes | None]] = []
    with closing(log.reader({T: 0})) as reader:
        for _ in range(100):
            for batch in reader.poll():
                found += zip(batch.offsets.tolist(), batch.keys, strict=True)
            if reader.positions()[T] == end:
                return found
    raise AssertionError("the reader does not come to the end")


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
@pytest.mark.parametrize("hers", [{0}, {3, 4, 7}, {9}, set(range(10))], ids=["first", "middle", "last", "all"])
def test_the_others_keep_their_offsets_and_readers_come_to_the_end(
    tmp_path: Path, segment_bytes: int, hers: set[int]
) -> None:
    with closing(FileLog(tmp_path / "log", segment_bytes=segment_bytes)) as log:
        log.ensure_topics([TopicSpec("t")])
        with closing(log.writer("w")) as writer, closing(log.reader({T: 0})) as reading:
            for number in range(10):
                writer.append([Message("t", b"value %d" % number, key=ANNA if number in hers else b"%d" % number)])
            reading.poll(max_bytes=1)
            assert log.erase("t", {ANNA, b"nobody"}) == len(hers)
            assert log.erase("t", {ANNA}) == 0
            reading.poll()  # one that was in the middle reads on
            left = [(number, b"%d" % number) for number in range(10) if number not in hers]
            assert everything(log) == left
            writer.append([Message("t", b"later", key=b"later")])
        assert everything(log) == [*left, (10, b"later")]
    with closing(FileLog(tmp_path / "log")) as again:
        assert everything(again) == [*left, (10, b"later")]
    assert not any(ANNA in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
