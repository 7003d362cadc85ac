"""Writing a trace: messages in full, in columns, and marks."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamdp.errors import StreamdpError
from streamdp.replay.files import create
from streamdp.replay.trace import Header, Mark
from streamdp.transport.batch import RecordBatch


class TraceWriter:
    """A new trace, which only its owner may read. Compressed when its name ends in .gz or .zst."""

    def __init__(self, path: str | Path, header: Header) -> None:
        self._path = Path(path)
        self._sink = create(self._path)
        try:
            self.lines(header.to_json() + b"\n")
        except StreamdpError:
            self._sink.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._clear_errors():
            self._sink.close()

    def mark(self, mark: Mark) -> None:
        self.lines(mark.to_json() + b"\n")

    def flush(self) -> None:
        """Lets readers of the file see what was written."""
        with self._clear_errors():
            self._sink.flush()

    def lines(self, lines: bytes) -> None:
        """Whole lines, as they are."""
        with self._clear_errors():
            self._sink.write(lines)

    def batch(self, batch: RecordBatch) -> None:
        if len(batch):
            self.lines(_text_lines(batch) or _any_lines(batch))

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StreamdpError(f"cannot write {self._path}: {error.strerror}; what is there ends early") from error


def _text_lines(batch: RecordBatch) -> bytes | None:
    """The lines when every key and value is text; else None."""
    import polars
    import pyarrow

    try:
        keys = batch.keys.to_arrow().cast(pyarrow.large_string())
        values = batch.values.to_arrow().cast(pyarrow.large_string())
    except pyarrow.ArrowInvalid:
        return None
    columns = {
        "topic": polars.repeat(batch.topic, len(batch), eager=True),
        "partition": polars.repeat(batch.partition, len(batch), eager=True),
        "offset": batch.offsets,
        "timestamp": batch.timestamps,
        "key": polars.from_arrow(keys),
        "value": polars.from_arrow(values),
    }
    return polars.DataFrame(columns).write_ndjson().encode()


def _any_lines(batch: RecordBatch) -> bytes:
    columns = zip(batch.offsets.tolist(), batch.timestamps.tolist(), batch.keys, batch.values, strict=True)
    lines = []
    for offset, timestamp, key, value in columns:
        line = {"topic": batch.topic, "partition": batch.partition, "offset": offset, "timestamp": timestamp}
        line |= {**_field("key", key), **_field("value", value)}
        lines.append(json.dumps(line, separators=(",", ":"), ensure_ascii=False))
    return "\n".join([*lines, ""]).encode()


def _field(name: str, content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
