"""Reading the embedded log: a cursor per partition, no locks, nothing written."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping

from streamdp.transport.base import POLL_BYTES, OffsetGone, TopicPartition
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard, unread
from streamdp.transport.partition import End, Partition
from streamdp.transport.segment import (
    EXPLICIT_OFFSETS,
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER,
    Frame,
    FrameHeader,
    corrupted,
    decode_frames,
    parse_frame,
    parse_frame_header,
    walk_headers,
)

POLL_PAUSE_SECONDS = 0.02
"""Between two looks at the end of the partitions while waiting: 40 system calls a second and partition."""


class Cursor:
    """A place in one partition: the next offset, and once known its segment file and byte position."""

    def __init__(self, partition: Partition, offset: int, guard: Guard) -> None:
        self.partition = partition
        self._guard = guard
        self.offset = offset
        self._segment: int | None = None
        self._descriptor = -1
        self._byte = 0

    def close(self) -> None:
        self._leave()
        self.partition.close()

    def seek(self, offset: int) -> None:
        self._leave()
        self.offset = offset

    def _leave(self) -> None:
        if self._segment is not None:
            os.close(self._descriptor)
            self._segment = None

    def read_until(self, max_bytes: int, until: int | None) -> RecordBatch | None:
        """The next records below `until`; None when there are none."""
        if until is None or self.offset < until:
            batch = self.read(max_bytes)
            if batch is None or until is None or self.offset <= until:
                return batch
            self.seek(until)
            below = batch.before(until)
            return below if len(below) else None
        return None

    def read(self, max_bytes: int) -> RecordBatch | None:
        """The next records: as many whole frames as fit, at least one; None at the end."""
        end = self.partition.visible_end()
        if self.offset > end.next_offset:
            raise self._gone("is beyond its end: was the log cut back, or the topic created again?")
        while self.offset < end.next_offset:
            if self._segment is None:
                self._locate()
            limit = self._limit(end)
            if self._byte < limit:
                return self._records(max_bytes, limit)
            self._next_segment()
        return None

    def _limit(self, end: End) -> int:
        return end.position if self._segment == end.segment else os.fstat(self._descriptor).st_size

    def _enter(self, segment: int) -> bool:
        self._leave()
        try:
            self._descriptor = self.partition.open_segment(segment)
        except FileNotFoundError:
            return False  # Retention or compaction took it since it was listed.
        self._segment, self._byte = segment, SEGMENT_HEADER.size
        return True

    def _locate(self) -> None:
        """Find the frame that holds the offset, or the first one after it."""
        while True:
            segments = self.partition.segments()
            self._refuse_a_gap(segments)
            segment = segments[bisect_right(segments, self.offset) - 1]
            if self._enter(segment):
                break
        limit = self._limit(self.partition.visible_end())
        for position, header in walk_headers(
            self._descriptor, SEGMENT_HEADER.size, limit, self.partition.path(segment)
        ):
            self._byte = position
            if header.next_offset > self.offset:
                return
            self._byte = position + header.size

    def _refuse_a_gap(self, segments: list[int]) -> None:
        """Compaction leaves the first segment in place, so what lies before it was deleted, read or not."""
        if not segments or self.offset < segments[0]:
            raise self._gone("is no longer there: retention has deleted it")

    def _next_segment(self) -> None:
        segments = self.partition.segments()
        self._refuse_a_gap(segments)
        following = segments[bisect_right(segments, self._segment if self._segment is not None else -1) :]
        if not following:
            raise corrupted(self.partition.end_path, 0, "it promises records that no segment holds")
        if self._enter(following[0]):
            self.offset = max(self.offset, following[0])

    def _records(self, max_bytes: int, limit: int) -> RecordBatch:
        path = self.partition.path(self._segment or 0)
        first = self._header(os.pread(self._descriptor, FRAME_HEADER_BYTES, self._byte), 0, self._byte)
        if self._is_skipped(first):
            skipped = unread(self.partition.name, max(first.base_offset, self.offset), 0)
            self._byte += first.size
            self.offset = first.next_offset
            return skipped
        self._guard.reading(self.partition.name, first.base_offset, first.next_offset - 1)
        length = min(max(first.size, max_bytes), limit - self._byte)
        buffer = memoryview(os.pread(self._descriptor, length, self._byte))
        frames: list[Frame] = []
        position = 0
        while position + FRAME_HEADER_BYTES <= len(buffer):
            header = self._header(buffer, position, self._byte + position)
            size = header.size
            if frames and (position + size > len(buffer) or self._is_skipped(header)):
                break
            expected = frames[-1].header.next_offset if frames else self.offset
            if header.base_offset > expected and not header.flags & EXPLICIT_OFFSETS:
                raise corrupted(path, self._byte + position, "records are missing before this frame")
            frame = parse_frame(buffer, position, header)
            if frame is None:
                raise corrupted(path, self._byte + position, "the frame fails its checksum")
            frames.append(frame)
            position += size
        self._guard.reading(self.partition.name, first.base_offset, frames[-1].header.next_offset - 1)
        batch = decode_frames(frames, *self.partition.name)
        self._guard.read()
        if frames[0].header.base_offset < self.offset:
            batch = batch.split_at(self.offset)[1]
        self._byte += position
        self.offset = frames[-1].header.next_offset
        return batch

    def _is_skipped(self, header: FrameHeader) -> bool:
        first = max(header.base_offset, self.offset)
        return self._guard.skips.cover(self.partition.name, first, header.next_offset - 1)

    def _header(self, buffer: bytes | memoryview, position: int, place: int) -> FrameHeader:
        header = parse_frame_header(buffer, position)
        if header is None:
            raise corrupted(self.partition.path(self._segment or 0), place, "no frame starts here")
        return header

    def _gone(self, fault: str) -> OffsetGone:
        topic, partition = self.partition.name
        return OffsetGone(f"the position asked for in partition {partition} of topic {topic} {fault}")


class FileReader:
    """Implements `Reader`."""

    def __init__(self, open_partition: Callable[[TopicPartition], Partition], guard: Guard) -> None:
        self._open_partition = open_partition
        self._guard = guard
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._turn = 0

    def poll(
        self,
        max_bytes: int = POLL_BYTES,
        timeout: float = 0.0,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> list[RecordBatch]:
        deadline = time.monotonic() + timeout
        while True:
            batches = self._collect(max_bytes, until or {})
            left = deadline - time.monotonic()
            if batches or left <= 0:
                return batches
            time.sleep(min(POLL_PAUSE_SECONDS, left))

    def _collect(self, max_bytes: int, until: Mapping[TopicPartition, int]) -> list[RecordBatch]:
        """Partitions take turns at being first, so that one busy partition cannot keep the others waiting."""
        cursors = list(self._cursors.values())
        self._turn = (self._turn + 1) % max(1, len(cursors))
        batches = []
        for cursor in cursors[self._turn :] + cursors[: self._turn]:
            if max_bytes <= 0:
                break
            batch = cursor.read_until(max_bytes, until.get(cursor.partition.name))
            if batch is not None:
                batches.append(batch)
                max_bytes -= batch.nbytes
        return batches

    def positions(self) -> dict[TopicPartition, int]:
        return {name: cursor.offset for name, cursor in self._cursors.items()}

    def epochs(self) -> dict[TopicPartition, int]:
        return {}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._cursors[partition].seek(offset)

    def assign_more(self, positions: Mapping[TopicPartition, int]) -> None:
        for name, offset in positions.items():
            if name not in self._cursors:
                self._cursors[name] = Cursor(self._open_partition(name), offset, self._guard)

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors = {}
