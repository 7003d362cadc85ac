"""Writing the embedded log: appends that happen wholly or not at all, over any number of partitions."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from streamdp.transport.base import Fenced, Message, TopicPartition, TransportError
from streamdp.transport.files import translate
from streamdp.transport.partition import End, Partition
from streamdp.transport.segment import SEGMENT_HEADER, Columns, encode_frame
from streamdp.transport.transaction import TransactionWriter


class IdentityLock:
    """Held from opening a writer to closing it; the operating system releases it when the process dies."""

    def __init__(self, directory: Path, identity: str) -> None:
        self._path = directory / hashlib.sha256(identity.encode()).hexdigest()[:32]
        while True:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._descriptor)
                raise Fenced(f"another process is writing as '{identity}': stop it first") from None
            # The last holder removes its file on closing: a lock on a removed file would guard nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                    return
            os.close(self._descriptor)

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


class FileWriter:
    """Implements `Writer`.

    An append to one partition writes its frame, syncs it and records the new end. An append to several locks them all
    in order of name, writes and syncs a frame in each, and then commits them with one mark (see `transaction`).
    """

    def __init__(
        self,
        identity: IdentityLock,
        transactions: Path,
        *,
        durable: bool,
        segment_bytes: int,
        open_partition: Callable[[TopicPartition], Partition],
        partition_count: Callable[[str], int],
        clean_up: Callable[[Partition], None],
    ) -> None:
        self._identity = identity
        self._transactions = transactions
        self._durable = durable
        self._segment_bytes = segment_bytes
        self._open_partition = open_partition
        self._partition_count = partition_count
        self._clean_up = clean_up
        self._partitions: dict[TopicPartition, Partition] = {}
        self._marks: TransactionWriter | None = None
        self._failed = False
        self._closed = False
        self._one_append = threading.Lock()

    def append(self, messages: Sequence[Message]) -> list[tuple[TopicPartition, int]]:
        with self._one_append:
            if self._closed or self._failed:
                raise TransportError("this writer is closed or has failed: open a new one")
            groups, rows = self._route(messages)
            with contextlib.ExitStack() as held:
                starts = {name: held.enter_context(self._partition(name).locked()) for name in sorted(groups)}
                self._write(groups, starts)
            following = {name: count(start.next_offset) for name, start in starts.items()}
            return [(name, next(following[name])) for name in rows]

    def close(self) -> None:
        with self._one_append:
            if not self._closed:
                self._closed = True
                for partition in self._partitions.values():
                    partition.close()
                if self._marks is not None:
                    self._marks.close()
                self._identity.release()

    def _partition(self, name: TopicPartition) -> Partition:
        if name not in self._partitions:
            self._partitions[name] = self._open_partition(name)
        return self._partitions[name]

    def _route(self, messages: Sequence[Message]) -> tuple[dict[TopicPartition, list[Message]], list[TopicPartition]]:
        """The messages of every partition, and every message's partition."""
        groups: dict[TopicPartition, list[Message]] = {}
        rows: list[TopicPartition] = []
        names: dict[tuple[str, int], TopicPartition] = {}
        counts: dict[str, int] = {}
        for message in messages:
            topic, number = message.topic, message.partition
            if number is None:
                if topic not in counts:
                    counts[topic] = self._partition_count(topic)
                partitions = counts[topic]
                number = zlib.crc32(message.key) % partitions if partitions > 1 and message.key is not None else 0
            name = names.get((topic, number))
            if name is None:
                name = names[topic, number] = TopicPartition(topic, number)
                groups[name] = []
            groups[name].append(message)
            rows.append(name)
        return groups, rows

    def _write(self, groups: dict[TopicPartition, list[Message]], starts: dict[TopicPartition, End]) -> None:
        writer = sequence = 0
        now = time.time_ns() // 1_000_000
        tails: dict[TopicPartition, End] = {}
        ends: dict[TopicPartition, End] = {}
        try:
            if len(groups) > 1:
                if self._marks is None:
                    self._marks = TransactionWriter(self._transactions, self._durable)
                self._marks.sequence += 1
                writer, sequence = self._marks.number, self._marks.sequence
            for name, start in starts.items():
                partition = self._partition(name)
                frame = encode_frame(_columns(groups[name], now), start.next_offset, writer, sequence)
                tails[name] = self._room_for(partition, start, sum(map(len, frame)))
                ends[name] = partition.write(frame, len(groups[name]), tails[name])
            for name, end in ends.items():
                self._partition(name).sync(end)
        except BaseException as error:
            self._take_back(tails)
            if isinstance(error, OSError):
                raise translate(error, self._transactions.parent) from error
            raise
        self._commit(sequence, ends)

    def _room_for(self, partition: Partition, start: End, length: int) -> End:
        if start.position == SEGMENT_HEADER.size or start.position + length <= self._segment_bytes:
            return start
        rolled = partition.roll(start)
        self._clean_up(partition)
        return rolled

    def _take_back(self, tails: dict[TopicPartition, End]) -> None:
        """Cut what was written, while the locks are held and nobody can have seen it."""
        with self._or_fail("an append failed and could not be taken back"):
            for name, tail in tails.items():
                self._partition(name).cut(tail)

    def _commit(self, sequence: int, ends: dict[TopicPartition, End]) -> None:
        with self._or_fail("committing an append failed"):
            if sequence and self._marks is not None:
                self._marks.commit(sequence)
            for name, end in ends.items():
                self._partition(name).record(end)

    @contextlib.contextmanager
    def _or_fail(self, what: str) -> Iterator[None]:
        """An interruption here ends this writer: its next commit could bring back what is left of this append."""
        try:
            yield
        except BaseException as error:
            self._failed = True
            if isinstance(error, OSError):
                raise TransportError(
                    f"{what} ({os.strerror(error.errno or 0)}): its outcome is unknown until the log is opened again"
                ) from error
            raise


def _columns(messages: list[Message], now: int) -> Columns:
    timestamps = [now if message.timestamp is None else message.timestamp for message in messages]
    headers = [message.headers for message in messages]
    return Columns(
        np.array(timestamps, np.int64),
        [message.key for message in messages],
        [message.value for message in messages],
        headers if any(headers) else None,
    )
