"""What happens to closed segments: retention by age for `delete` topics, compaction for `compact` topics.

Both run under the partition's lock when a segment is rolled, so a topic's size is bounded by its policy and by one
active segment. The active segment is never touched. Readers that have a replaced or deleted file open finish it
undisturbed. Records of given keys are erased when somebody asks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import numpy as np

from streamdp.transport.batch import RecordBatch
from streamdp.transport.files import create_file, sync_directory
from streamdp.transport.partition import End, Partition
from streamdp.transport.segment import (
    SEGMENT_HEADER,
    Columns,
    corrupted,
    decode_frames,
    encode_frame,
    parse_frame,
    segment_header,
    walk_headers,
)


def delete_before(partition: Partition, offset: int) -> None:
    """Delete the closed segments that lie wholly below the offset."""
    segments = partition.segments()
    for segment, following in itertools.pairwise(segments):
        if following <= offset:
            partition.path(segment).unlink()
    if partition.durable:
        sync_directory(partition.directory)


def delete_older_than(partition: Partition, retention_ms: int) -> None:
    """Delete the closed segments whose last append is longer ago than the retention."""
    oldest = time.time() - retention_ms / 1000
    segments = partition.segments()
    kept = [segment for segment in segments[:-1] if partition.path(segment).stat().st_mtime >= oldest]
    delete_before(partition, kept[0] if kept else segments[-1])


def compact(partition: Partition) -> None:
    """Rewrite the closed segments with only the newest record of every key; offsets stay as they were.

    Records without a key and null values are kept. A middle segment left empty is deleted; the first stays, so that the
    partition's first offset does not move.
    """
    segments = partition.segments()
    newest: dict[bytes, int] = {}
    for segment in segments:
        for batch in _batches(partition, segment):
            newest.update(
                (key, o) for key, o in zip(batch.keys, batch.offsets.tolist(), strict=True) if key is not None
            )

    def is_newest(batch: RecordBatch) -> Iterable[bool]:
        offsets = batch.offsets.tolist()
        return (key is None or newest[key] == offset for key, offset in zip(batch.keys, offsets, strict=True))

    _keep_only(partition, is_newest)


def erase(partition: Partition, end: End, keys: Collection[bytes]) -> int:
    """Rewrite every segment without the records of these keys; offsets stay as they were. Returns how many went."""
    if end.position > SEGMENT_HEADER.size:
        partition.roll(end)  # The active segment is never rewritten.
    return _keep_only(partition, lambda batch: (key not in keys for key in batch.keys))


def _keep_only(partition: Partition, kept: Callable[[RecordBatch], Iterable[bool]]) -> int:
    """Rewrite the closed segments that hold anything else. Returns how many records went."""
    segments, dropped = partition.segments(), 0
    for segment in segments[:-1]:
        frames, dropped_here = [], 0
        for batch in _batches(partition, segment):
            keep = np.fromiter(kept(batch), np.bool_, len(batch))
            dropped_here += len(batch) - int(keep.sum())
            if keep.any():
                frames.append(_encode(batch.take(keep)))
        if dropped_here:
            _replace(partition, segment, frames, removable=segment != segments[0])
        dropped += dropped_here
    if partition.durable:
        sync_directory(partition.directory)
    return dropped


def _batches(partition: Partition, segment: int) -> list[RecordBatch]:
    path = partition.path(segment)
    end = partition.recorded_end()
    content = memoryview(path.read_bytes())
    limit = end.position if segment == end.segment else len(content)
    descriptor = partition.open_segment(segment)
    try:
        batches = []
        for position, header in walk_headers(descriptor, SEGMENT_HEADER.size, limit, path):
            frame = parse_frame(content, position, header)
            if frame is None:
                raise corrupted(path, position, "the frame fails its checksum")
            batches.append(decode_frames([frame], *partition.name))
        return batches
    finally:
        os.close(descriptor)


def _encode(batch: RecordBatch) -> bytes:
    columns = Columns(batch.timestamps, list(batch.keys), list(batch.values), batch.headers)
    return b"".join(encode_frame(columns, int(batch.offsets[0]), offsets=batch.offsets))


def _replace(partition: Partition, segment: int, frames: list[bytes], removable: bool) -> None:
    path = partition.path(segment)
    if not frames and removable:
        path.unlink()
        return
    fresh = Path(f"{path}.new")
    try:
        os.close(create_file(fresh, b"".join([segment_header(segment), *frames]), partition.durable))
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
