"""One partition on disk: segments, and the file `end` that says how far they are committed.

`end` holds the next offset and its place (segment, byte position), is overwritten in place after every append, and is
the partition's lock. Invariants:

- Every byte below `end` is committed and was on the disk before `end` said so. A bad frame there is damage: an error.
- Above `end` there is at most what one append was writing, in the segment `end` names (rolling to a new segment is
  recorded in `end` before anything goes there). A reader believes a frame there only if it belongs to a transaction
  whose mark says visible. Whoever takes the lock next settles it: keeps complete frames, cuts the rest.
- `end` itself is not synced at each append. After a power cut it may be old, never too new; settling walks forward
  from it over what was synced, across segments if need be.
"""

from __future__ import annotations

import contextlib
import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamdp.transport.base import TopicPartition, UnknownTopic
from streamdp.transport.files import create_file, lock, make_directory, sync_directory, unlock, write_all
from streamdp.transport.register import Register
from streamdp.transport.segment import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER,
    FrameHeader,
    check_segment_header,
    corrupted,
    parse_frame,
    parse_frame_header,
    segment_header,
    segment_name,
)
from streamdp.transport.transaction import Transactions

END = Register(b"SDPEND\x00\x01", 3)


class End(NamedTuple):
    next_offset: int
    segment: int
    position: int


def create_partition(directory: Path, durable: bool) -> None:
    make_directory(directory)
    os.close(create_file(directory / segment_name(0), segment_header(0), durable))
    os.close(create_file(directory / "end", END.initial(0, 0, SEGMENT_HEADER.size), durable))
    if durable:
        sync_directory(directory)


class Partition:
    """Open files of one partition. Reading needs no lock; `locked()` guards everything that writes."""

    def __init__(self, directory: Path, name: TopicPartition, transactions: Transactions, durable: bool) -> None:
        self.directory = directory
        self.name = name
        self.transactions = transactions
        self.durable = durable
        self.end_path = directory / "end"
        self._segment: tuple[int, int] | None = None
        self._threads = threading.Lock()
        self._end_descriptor = self._open_end()

    def close(self) -> None:
        self._drop_segment()
        os.close(self._end_descriptor)

    def _open_end(self) -> int:
        try:
            return os.open(self.end_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise UnknownTopic(f"partition {self.name.partition} of topic {self.name.topic} does not exist") from None

    def path(self, segment: int) -> Path:
        return self.directory / segment_name(segment)

    def open_segment(self, segment: int) -> int:
        descriptor = os.open(self.path(segment), os.O_RDWR | os.O_CLOEXEC)
        try:
            check_segment_header(descriptor, segment, self.path(segment))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _active(self, segment: int) -> int:
        """The cached descriptor of the segment that `end` names."""
        if self._segment is None or self._segment[0] != segment:
            self._drop_segment()
            self._segment = (segment, self.open_segment(segment))
        return self._segment[1]

    def _drop_segment(self) -> None:
        if self._segment is not None:
            os.close(self._segment[1])
            self._segment = None

    # Reading

    def segments(self) -> list[int]:
        """Base offsets of the segments, ascending, up to the one that `end` names."""
        last = self.recorded_end().segment
        found = sorted(int(path.stem) for path in self.directory.glob("[0-9]*.log"))
        return found[: bisect_right(found, last)]

    def recorded_end(self) -> End:
        return End(*END.read(self._end_descriptor, 0, self.end_path))

    def visible_end(self) -> End:
        """Up to where a reader may read: what `end` says, and a shown transaction that it does not yet count."""
        end = self.recorded_end()
        header = self._header_beyond(end)
        if header is None or not header.sequence or not self.transactions.is_visible(header.writer, header.sequence):
            return end
        return End(header.next_offset, end.segment, end.position + header.size)

    def _header_beyond(self, end: End) -> FrameHeader | None:
        descriptor = self._active(end.segment)
        if os.fstat(descriptor).st_size < end.position + FRAME_HEADER_BYTES:
            return None
        header = parse_frame_header(os.pread(descriptor, FRAME_HEADER_BYTES, end.position))
        return header if header is not None and header.base_offset == end.next_offset else None

    # Writing, all of it under the lock

    @contextlib.contextmanager
    def locked(self) -> Iterator[End]:
        """Hold the partition alone, with nothing left over above its end."""
        with self._threads:
            self._lock_the_file_that_is_there()
            try:
                yield self._settle()
            finally:
                unlock(self._end_descriptor)

    def _lock_the_file_that_is_there(self) -> None:
        """A topic deleted and created again is another file: a lock on the old one would guard nothing."""
        while True:
            lock(self._end_descriptor, self.end_path)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self.end_path.stat(), os.fstat(self._end_descriptor)):
                    return
            fresh = self._open_end()
            os.close(self._end_descriptor)
            self._end_descriptor = fresh
            self._drop_segment()

    def _settle(self) -> End:
        recorded = end = self.recorded_end()
        while True:
            descriptor = self._active(end.segment)
            size = os.fstat(descriptor).st_size
            header = self._complete_frame_beyond(end, size)
            if header is not None:
                end = End(header.next_offset, end.segment, end.position + header.size)
            elif size == end.position and end.next_offset > end.segment and self._started(end.next_offset):
                end = End(end.next_offset, end.next_offset, SEGMENT_HEADER.size)
            else:
                break
        if size < end.position:
            raise corrupted(self.path(end.segment), size, "committed records are missing after this")
        if size > end.position:
            self._refuse_to_cut_a_middle(end)
            self.cut(end)
        if end != recorded:
            if self.durable:
                os.fsync(descriptor)
            self.record(end)
        return end

    def _complete_frame_beyond(self, end: End, size: int) -> FrameHeader | None:
        """The frame above `end` if it is whole and, when part of a transaction, committed (then it is shown, too)."""
        header = self._header_beyond(end) if size > end.position else None
        if header is None:
            return None
        stored = os.pread(self._active(end.segment), header.size, end.position)
        if parse_frame(memoryview(stored), 0, header) is None:
            return None
        if header.sequence:
            if not self.transactions.is_committed(header.writer, header.sequence):
                return None
            self.transactions.show(header.writer, header.sequence)
        return header

    def _refuse_to_cut_a_middle(self, end: End) -> None:
        """After a power cut `end` may be a segment behind; what lies before a later segment is no torn tail."""
        if any(int(path.stem) > end.segment for path in self.directory.glob("[0-9]*.log")):
            raise corrupted(self.path(end.segment), end.position, "no complete frame, although a later segment exists")

    def _started(self, segment: int) -> bool:
        path = self.path(segment)
        return path.exists() and path.stat().st_size >= SEGMENT_HEADER.size

    def write(self, frame: tuple[bytes, bytes], records: int, end: End) -> End:
        """Write a frame at the end; nobody sees it before `record` (or its transaction's mark) says so."""
        header, body = frame
        descriptor = self._active(end.segment)
        write_all(descriptor, header, end.position)
        write_all(descriptor, body, end.position + len(header))
        return End(end.next_offset + records, end.segment, end.position + len(header) + len(body))

    def sync(self, end: End) -> None:
        if self.durable:
            os.fdatasync(self._active(end.segment))

    def cut(self, end: End) -> None:
        descriptor = self._active(end.segment)
        os.ftruncate(descriptor, end.position)
        if self.durable:
            os.fsync(descriptor)

    def record(self, end: End) -> None:
        END.write(self._end_descriptor, 0, end)

    def roll(self, end: End) -> End:
        """Start a new segment at the end."""
        rolled = End(end.next_offset, end.next_offset, SEGMENT_HEADER.size)
        os.close(create_file(self.path(rolled.segment), segment_header(rolled.segment), self.durable))
        if self.durable:
            sync_directory(self.directory)
        self.record(rolled)
        if self.durable:
            os.fsync(self._end_descriptor)
        return rolled
