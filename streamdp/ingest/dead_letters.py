"""Where messages go that could not be decoded: a file beside the journal, or a topic.

Dead letters hold personal data, whole messages of it. The file is 0600; a topic is used only when configured. Nothing
of them is logged, and their counts are exact and therefore for the operator alone.

Input is read again after a crash, so both remember, per input partition, the last offset they hold, and write what lies
beyond it: each dead letter once, however often its message is decoded.

Anybody who may write to the input can fill them, so both are bounded. A message that is `TOO_LARGE` or `SKIPPED` leaves
its place in the input and no more; a full file is moved aside, and the oldest such file goes.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from streamdp.errors import StreamdpError
from streamdp.ingest.decoded import Decoded, Reason
from streamdp.transport.base import Message, TopicPartition, Transport, Writer
from streamdp.transport.batch import Headers, RecordBatch
from streamdp.transport.files import sync_directory

FORMAT = 2
MAX_FILE_BYTES = 64 << 20
KEEP_FILES = 3
MAX_WAITING = 1_000
"""Letters to a topic that are held back for a common append, about: a flood of them must not fill the memory."""
LARGEST_LETTER = 1_000_000
"""Bytes of key, value and headers. Kafka refuses a message beyond 1 MiB unless told otherwise, and a letter that the
output refuses would stop the stream: no user's message may do that."""

# The names Kafka Connect gives them (KIP-298), so that its users' tools find what they expect.
HEADER = "__connect.errors."
TOPIC, PARTITION, OFFSET = HEADER + "topic", HEADER + "partition", HEADER + "offset"
STAGE, CLASS, MESSAGE = HEADER + "stage", HEADER + "exception.class.name", HEADER + "exception.message"
OMITTED = "streamdp.omitted"
_TOO_LONG = "key, value and headers: too long"
_PLACE_ONLY = {Reason.TOO_LARGE: _TOO_LONG, Reason.SKIPPED: "key, value and headers: skipped"}
"""What stands for the message where nothing of it is kept."""
# What the length of a header's name and value may take.
_HEADER_LENGTHS = 10


class DeadLetters(Protocol):
    counts: Counter[Reason]
    """Dead letters written since the start, by reason. Private."""

    def write(self, batch: RecordBatch, decoded: Decoded) -> None:
        """Take the rejected rows of a batch. They are safe after the next `flush`."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _Once:
    """Which rejected rows of a batch are new, by offset."""

    def __init__(self, last: Mapping[TopicPartition, int] | None = None) -> None:
        self._last = dict(last or {})

    def new_rows(self, batch: RecordBatch, decoded: Decoded) -> list[tuple[int, Reason]]:
        source = TopicPartition(batch.topic, batch.partition)
        offsets = batch.offsets[decoded.rejected_rows]
        new = offsets > self._last.get(source, -1)
        rows, reasons = decoded.rejected_rows[new], decoded.rejected_reasons[new]
        return [(row, Reason(reason)) for row, reason in zip(rows.tolist(), reasons.tolist(), strict=True)]

    def last(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of the last letter of every input partition."""
        return [(*source, offset) for source, offset in sorted(self._last.items())]

    def written(self, batch: RecordBatch, row: int) -> None:
        self._last[TopicPartition(batch.topic, batch.partition)] = int(batch.offsets[row])


class DeadLetterFile:
    """JSON lines in a 0600 file. A torn last line is cut on opening; any other damage is an error.

    Before it would grow beyond `max_bytes` the file is renamed to `<path>.1`, that one to `<path>.2` and so on, up to
    `keep`; the oldest is deleted. The first line of the new file says how far the letters before it go.
    """

    def __init__(self, path: Path | str, max_bytes: int = MAX_FILE_BYTES, keep: int = KEEP_FILES) -> None:
        self.counts: Counter[Reason] = Counter()
        self._path, self._max_bytes, self._keep = Path(path), max_bytes, keep
        try:
            self._descriptor = _open(self._path)
        except OSError as error:
            raise StreamdpError(f"cannot open the dead letter file {self._path}: {error.strerror}") from error
        try:
            os.fchmod(self._descriptor, 0o600)
            self._length, last = self._recover()
        except BaseException:
            os.close(self._descriptor)
            raise
        self._once = _Once(last)

    def _recover(self) -> tuple[int, dict[TopicPartition, int]]:
        """Cut a torn last line; return the length, and the last offset of every input partition."""
        last: dict[TopicPartition, int] = {}
        length = 0
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    letter = json.loads(line)
                    if "last" in letter:
                        last = {TopicPartition(topic, partition): offset for topic, partition, offset in letter["last"]}
                    else:
                        last[TopicPartition(letter["topic"], letter["partition"])] = letter["offset"]
                except (ValueError, KeyError, TypeError):
                    raise StreamdpError(
                        f"line {number} of the dead letter file {self._path} is damaged; move the file away and restart"
                    ) from None
                length += len(line)
        os.ftruncate(self._descriptor, length)
        return length, last

    def write(self, batch: RecordBatch, decoded: Decoded) -> None:
        waiting: list[tuple[int, Reason, bytes]] = []
        room = self._max_bytes - self._length
        for row, reason in self._once.new_rows(batch, decoded):
            line = _line(batch, row, reason)
            if len(line) > self._max_bytes // 2:
                line = _line(batch, row, reason, whole=False)
            if len(line) > room:
                self._append(batch, waiting)
                self._rotate()
                waiting, room = [], self._max_bytes - self._length
            waiting.append((row, reason, line))
            room -= len(line)
        self._append(batch, waiting)

    def _append(self, batch: RecordBatch, letters: list[tuple[int, Reason, bytes]]) -> None:
        if not letters:
            return
        with self._clear_errors():
            lines = b"".join(line for _, _, line in letters)
            try:
                _write_at(self._descriptor, lines, self._length)
            except OSError:
                os.ftruncate(self._descriptor, self._length)
                raise
        self._length += len(lines)
        self._once.written(batch, letters[-1][0])
        self.counts.update(reason for _, reason, _ in letters)

    def _rotate(self) -> None:
        """A crash at any moment leaves a file at the path that knows how far the letters go."""
        # Not logged: whether it is full depends on what users sent.
        begin = json.dumps({"format": FORMAT, "last": self._once.last()}, separators=(",", ":")).encode() + b"\n"
        with self._clear_errors():
            self.flush()
            following = self._path.with_name(f"{self._path.name}.new")
            following.unlink(missing_ok=True)
            descriptor = _open(following)
            try:
                _write_at(descriptor, begin, 0)
                os.fsync(descriptor)
                self._move_aside()
                following.replace(self._path)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(self._descriptor)
            self._descriptor, self._length = descriptor, len(begin)
            sync_directory(self._path.parent)

    def _move_aside(self) -> None:
        """The path keeps its file until the next one takes its place: it is linked to the new name, not renamed."""
        old = [self._path.with_name(f"{self._path.name}.{number}") for number in range(1, self._keep + 1)]
        if not old or (old[0].exists() and old[0].samefile(self._path)):  # a crash came before its place was taken
            return
        for newer, older in reversed(list(pairwise(old))):
            if newer.exists():
                newer.replace(older)
        old[0].unlink(missing_ok=True)
        os.link(self._path, old[0])

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StreamdpError(f"cannot write dead letters to {self._path}: {error.strerror}") from error

    def flush(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class DeadLetterTopic:
    """The message as it came, with the error context in headers. Messages of a flush are appended all or none.

    Of one that is too large, or longer than `LARGEST_LETTER`, only its place in the input. A timestamp in the future
    becomes now, because brokers refuse those too.

    `last` is what `last_offsets` found in the topic. The writer stays the caller's to close.
    """

    def __init__(self, writer: Writer, topic: str, last: Mapping[TopicPartition, int] | None = None) -> None:
        self.counts: Counter[Reason] = Counter()
        self._writer = writer
        self._topic = topic
        self._once = _Once(last)
        self._waiting: list[Message] = []

    def write(self, batch: RecordBatch, decoded: Decoded) -> None:
        for row, reason in self._once.new_rows(batch, decoded):
            headers = () if batch.headers is None else batch.headers[row]
            key, value = batch.keys[row], batch.values[row]
            if reason in _PLACE_ONLY or _length(key, value, headers) > LARGEST_LETTER:
                key, value, headers = None, None, ((OMITTED, _PLACE_ONLY.get(reason, _TOO_LONG).encode()),)
            now = time.time_ns() // 1_000_000
            self._waiting.append(
                Message(
                    self._topic,
                    # Kafka's client sends nothing that has neither.
                    b"" if key is None and value is None else value,
                    key=key,
                    timestamp=min(max(0, int(batch.timestamps[row])), now),
                    headers=headers + _context(batch, row, reason),
                    partition=0,
                )
            )
            self._once.written(batch, row)
            self.counts[reason] += 1
        if len(self._waiting) >= MAX_WAITING:
            self.flush()

    def use(self, writer: Writer) -> None:
        """Goes on with another writer."""
        self._writer = writer

    def flush(self) -> None:
        if self._waiting:
            self._writer.append(self._waiting)
            self._waiting = []

    def close(self) -> None:
        """What waits is not lost: it is read again, and written, after the next start."""


def last_offsets(transport: Transport, topic: str) -> dict[TopicPartition, int]:
    """Read a dead letter topic through, for the last offset of every input partition it holds."""
    begins, ends = transport.begin_offsets([topic]), transport.end_offsets([topic])
    reader = transport.reader(begins)
    last: dict[TopicPartition, int] = {}
    try:
        while any(reader.positions()[partition] < end for partition, end in ends.items()):
            for batch in reader.poll(timeout=1.0):
                for headers in batch.headers or ():
                    context = dict(headers)
                    if OFFSET in context:
                        source = TopicPartition(context[TOPIC].decode(), int(context[PARTITION]))
                        last[source] = max(last.get(source, -1), int(context[OFFSET]))
    finally:
        reader.close()
    return last


def absent_letters(transport: Transport, letters: list[Message]) -> list[Message]:
    """Of letters to one topic, in their order, those that it does not hold."""
    last = last_offsets(transport, letters[0].topic)
    contexts = [dict(letter.headers) for letter in letters]
    sources = [TopicPartition(context[TOPIC].decode(), int(context[PARTITION])) for context in contexts]
    return [
        letter
        for letter, source, context in zip(letters, sources, contexts, strict=True)
        if int(context[OFFSET]) > last.get(source, -1)
    ]


def _length(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    named = sum(len(name.encode()) + len(held) + _HEADER_LENGTHS for name, held in headers)
    return len(key or b"") + len(value or b"") + named


def _context(batch: RecordBatch, row: int, reason: Reason) -> Headers:
    return (
        (TOPIC, batch.topic.encode()),
        (PARTITION, b"%d" % batch.partition),
        (OFFSET, b"%d" % batch.offsets[row]),
        (STAGE, b"VALUE_CONVERTER"),
        (CLASS, b"streamdp.ingest.Reason"),
        (MESSAGE, reason.name.encode()),
    )


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _write_at(descriptor: int, content: bytes, position: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def _line(batch: RecordBatch, row: int, reason: Reason, *, whole: bool = True) -> bytes:
    is_whole = whole and reason not in _PLACE_ONLY
    content = {**_readable("key", batch.keys[row]), **_readable("value", batch.values[row])} if is_whole else None
    letter = {
        "format": FORMAT,
        "topic": batch.topic,
        "partition": batch.partition,
        "offset": int(batch.offsets[row]),
        "timestamp": int(batch.timestamps[row]),
        "reason": reason.name,
        **({"omitted": _PLACE_ONLY.get(reason, _TOO_LONG)} if content is None else content),
    }
    return json.dumps(letter, separators=(",", ":")).encode("ascii") + b"\n"


def _readable(name: str, content: bytes | None) -> dict[str, Any]:
    """Text where it is text; bytes that are not UTF-8 as `<name>_base64`."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}
