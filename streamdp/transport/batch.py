"""What a transport hands to ingest: records as columns, with no Python object per record.

`Blobs` is a column of byte strings in Arrow's large-binary layout: one buffer, n + 1 starts, and a validity mask when
some rows are null. Null and empty are different values (a null message value is a delete, an empty one is bad JSON).
Neither class prints its content: keys, values and even their number are private.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Blobs:
    """A column of byte strings: row i is `data[starts[i]:starts[i + 1]]`, or null when `valid[i]` is false.

    A null row spans no bytes. `starts` need not begin at 0 (a slice shares the buffer of its origin), and `valid` is
    None when every row is valid.
    """

    data: bytes | memoryview
    starts: NDArray[np.int64]
    valid: NDArray[np.bool_] | None = None

    @classmethod
    def from_list(cls, rows: Sequence[bytes | None]) -> Blobs:
        present = [b"" if row is None else row for row in rows]
        starts = np.fromiter(accumulate(map(len, present), initial=0), np.int64, len(present) + 1)
        valid = np.fromiter((row is not None for row in rows), np.bool_, len(rows)) if None in rows else None
        return cls(b"".join(present), starts, valid)

    @classmethod
    def from_arrow(cls, column: pyarrow.LargeBinaryArray) -> Blobs:
        """Share the buffers of an Arrow column (only the validity bitmap is unpacked)."""
        _, starts, data = column.buffers()
        if len(column) == 0 or starts is None:
            return cls(b"", np.zeros(len(column) + 1, np.int64))
        window = np.frombuffer(starts, np.int64)[column.offset : column.offset + len(column) + 1]
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        return cls(b"" if data is None else memoryview(data), window, valid)

    @classmethod
    def concatenate(cls, parts: Sequence[Blobs]) -> Blobs:
        if len(parts) == 1:
            return parts[0]
        lengths = [np.zeros(1, np.int64), *(np.diff(part.starts) for part in parts)]
        valid = None
        if any(part.valid is not None for part in parts):
            valid = np.concatenate([np.ones(len(p), np.bool_) if p.valid is None else p.valid for p in parts])
        return cls(b"".join(part.content() for part in parts), np.cumsum(np.concatenate(lengths)), valid)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> bytes | None:
        if not -len(self) <= row < len(self):
            raise IndexError("row outside the column")
        row %= len(self)
        if self.valid is not None and not self.valid[row]:
            return None
        return bytes(self.data[self.starts[row] : self.starts[row + 1]])

    def __iter__(self) -> Iterator[bytes | None]:
        bounds = self.starts.tolist()
        valid = [True] * len(self) if self.valid is None else self.valid.tolist()
        for row, here in enumerate(valid):
            yield bytes(self.data[bounds[row] : bounds[row + 1]]) if here else None

    @property
    def nbytes(self) -> int:
        """Bytes of content, without the starts and the mask."""
        return int(self.starts[-1] - self.starts[0])

    def content(self) -> memoryview:
        """The bytes of all rows, one after the other, without copying."""
        return memoryview(self.data)[int(self.starts[0]) : int(self.starts[-1])]

    def lengths(self) -> NDArray[np.int64]:
        """Bytes per row; null rows have length 0."""
        return np.diff(self.starts)

    def slice(self, begin: int, end: int) -> Blobs:
        """Rows begin..end-1, sharing the buffer."""
        begin, end, _ = slice(begin, end).indices(len(self))
        end = max(begin, end)
        return Blobs(self.data, self.starts[begin : end + 1], None if self.valid is None else self.valid[begin:end])

    def emptied(self, rows: NDArray[np.bool_]) -> Blobs:
        """The column with the rows of the mask empty; the others are copied."""
        starts = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.where(rows, 0, self.lengths()), out=starts[1:])
        valid = None if self.valid is None else self.valid | rows
        return Blobs(self.take(~rows).content(), starts, valid)

    def take(self, selection: NDArray[np.bool_] | NDArray[np.integer]) -> Blobs:
        """The rows of a boolean mask, or of row indices, copied together without a loop in Python."""
        import pyarrow

        column = self.to_arrow()
        if selection.dtype == np.bool_:
            return Blobs.from_arrow(column.filter(pyarrow.array(selection)))
        return Blobs.from_arrow(column.take(pyarrow.array(selection, pyarrow.int64())))

    def to_arrow(self) -> pyarrow.LargeBinaryArray:
        """The same bytes as an Arrow column; the content is not copied."""
        import pyarrow

        bitmap = None
        if self.valid is not None:
            bitmap = pyarrow.py_buffer(np.packbits(self.valid, bitorder="little"))
        starts = pyarrow.py_buffer(np.ascontiguousarray(self.starts))
        return pyarrow.LargeBinaryArray.from_buffers(
            pyarrow.large_binary(), len(self), [bitmap, starts, pyarrow.py_buffer(self.data)]
        )


@dataclass(frozen=True, eq=False, repr=False)
class RecordBatch:
    """Consecutive records of one partition, oldest first.

    `offsets` ascend strictly but may have gaps (compaction, and on Kafka control records). `timestamps` are
    milliseconds since 1970. `headers` is one tuple of (name, value) pairs per row, or None when no row has any.
    `oversize` marks the records beyond the reader's bound, of which key, value and headers were left behind: they are
    empty here. None when there is none.
    """

    topic: str
    partition: int
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: Blobs
    values: Blobs
    headers: tuple[Headers, ...] | None = None
    oversize: NDArray[np.bool_] | None = None

    @classmethod
    def concatenate(cls, parts: Sequence[RecordBatch]) -> RecordBatch:
        """One batch from consecutive batches of the same partition."""
        if len(parts) == 1:
            return parts[0]
        headers: list[Headers] | None = None
        if any(part.headers is not None for part in parts):
            headers = []
            for part in parts:
                headers.extend(((),) * len(part) if part.headers is None else part.headers)
        return cls(
            parts[0].topic,
            parts[0].partition,
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.timestamps for part in parts]),
            Blobs.concatenate([part.keys for part in parts]),
            Blobs.concatenate([part.values for part in parts]),
            None if headers is None else tuple(headers),
            _joined_masks([part.oversize for part in parts], [len(part) for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def slice(self, begin: int, end: int) -> RecordBatch:
        """Rows begin..end-1, sharing every buffer."""
        headers = None if self.headers is None else self.headers[begin:end]
        return RecordBatch(
            self.topic,
            self.partition,
            self.offsets[begin:end],
            self.timestamps[begin:end],
            self.keys.slice(begin, end),
            self.values.slice(begin, end),
            headers if headers is not None and any(headers) else None,
            None if self.oversize is None else self.oversize[begin:end],
        )

    def take(self, mask: NDArray[np.bool_]) -> RecordBatch:
        """The rows where the mask is true."""
        headers = None
        if self.headers is not None:
            headers = tuple(
                row for row, kept in zip(self.headers, cast("list[bool]", mask.tolist()), strict=True) if kept
            )
        return RecordBatch(
            self.topic,
            self.partition,
            self.offsets[mask],
            self.timestamps[mask],
            self.keys.take(mask),
            self.values.take(mask),
            headers if headers is not None and any(headers) else None,
            None if self.oversize is None else self.oversize[mask],
        )

    def split_at(self, offset: int) -> tuple[RecordBatch, RecordBatch]:
        """The records below the offset, and those from it on: how a reader stops exactly at a cut."""
        row = int(np.searchsorted(self.offsets, offset))
        return self.slice(0, row), self.slice(row, len(self))

    def before(self, offset: int) -> RecordBatch:
        """The records below the offset."""
        return self.split_at(offset)[0]


def _joined_masks(masks: Sequence[NDArray[np.bool_] | None], lengths: Sequence[int]) -> NDArray[np.bool_] | None:
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [np.zeros(rows, np.bool_) if mask is None else mask for mask, rows in zip(masks, lengths, strict=True)]
    )
