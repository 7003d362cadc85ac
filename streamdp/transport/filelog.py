"""The embedded log: a directory that implements `Transport`, for one machine and any number of processes.

    <root>/log.json                              format, version, id of the log; its lock serialises changes of topics
    <root>/<topic>/topic.json                    id of the topic, partitions, cleanup policy
    <root>/<topic>/<partition>/end               how far the partition is committed; its lock
    <root>/<topic>/<partition>/<offset>.log      segments
    <root>/.transactions/, <root>/.writers/      commit marks; locks of writers' identities

The content is private: files are 0600 and directories 0700. The decisions are argued in docs/adr/0004-embedded-log.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamdp.transport import cleanup
from streamdp.transport.base import MAX_RECORD_BYTES, TopicPartition, TopicSpec, TransportError, UnknownTopic
from streamdp.transport.file_reader import FileReader
from streamdp.transport.file_writer import FileWriter, IdentityLock
from streamdp.transport.files import create_file, lock, make_directory, sync_directory, translate
from streamdp.transport.guard import Guard
from streamdp.transport.partition import Partition, create_partition
from streamdp.transport.transaction import Transactions

VERSION = 1
SEGMENT_BYTES = 128 << 20
TOPIC_NAME = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,248}")


@dataclass(frozen=True)
class TopicDescription:
    id: str
    spec: TopicSpec


class FileLog:
    """Implements `Transport`. Opening it cuts torn tails; `durable=False` is for tests and bulk loads only.

    The log itself and each reader belong to one thread at a time; a writer may be shared between threads.
    """

    def __init__(
        self, root: Path | str, *, segment_bytes: int = SEGMENT_BYTES, durable: bool = True, create: bool = True
    ) -> None:
        self.root = Path(root)
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._partitions: dict[TopicPartition, Partition] = {}
        self._description = self.root / "log.json"
        if not self._description.exists():
            if not create:
                raise UnknownTopic(f"there is no log in {self.root}")
            with _failures_named(self.root):
                self._create()
        self._id = _read_description(self._description)["id"]
        self._transactions = Transactions(self.root / ".transactions")
        with _failures_named(self.root):
            for name in self._all_partitions(self.topics()):
                with self._partition(name).locked():
                    pass

    def _create(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (".transactions", ".writers"):
            make_directory(self.root / name)
        fresh = self.root / f".log.{uuid.uuid4().hex}"
        _write_description(fresh, {"id": uuid.uuid4().hex}, self._durable)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, self._description)  # Of two processes creating it, one wins and both use that.
        fresh.unlink()
        if self._durable:
            sync_directory(self.root)
            sync_directory(self.root.parent)

    def close(self) -> None:
        for partition in self._partitions.values():
            partition.close()
        self._partitions = {}

    # Topics

    def cluster_id(self) -> str:
        return str(self._id)

    def topics(self) -> list[str]:
        return sorted(path.parent.name for path in self.root.glob("*/topic.json") if path.parent.name[0] != ".")

    def describe(self, topic: str) -> TopicDescription:
        path = self.root / topic / "topic.json"
        if TOPIC_NAME.fullmatch(topic) is None or not path.exists():
            raise UnknownTopic(f"topic '{topic}' does not exist in the log {self.root}")
        fields = _read_description(path)
        spec = TopicSpec(topic, fields["partitions"], fields["cleanup"], fields["retention_ms"])
        return TopicDescription(fields["id"], spec)

    def topic_id(self, topic: str) -> str:
        return self.describe(topic).id

    def partitions(self, topic: str) -> list[int]:
        return list(range(self.describe(topic).spec.partitions))

    def deletes_kept_ms(self, topics: Iterable[str]) -> int | None:
        return None  # Compaction keeps null values here.

    def ensure_topics(self, specs: Iterable[TopicSpec]) -> None:
        with self._topics_locked(), _failures_named(self.root):
            for spec in specs:
                if TOPIC_NAME.fullmatch(spec.name) is None:
                    raise TransportError(
                        f"'{spec.name}' cannot name a topic: use up to 249 letters, digits, '.', '_' and '-', "
                        "not beginning with '.'"
                    )
                if spec.partitions < 1:
                    raise TransportError(f"topic '{spec.name}' needs at least one partition")
                if (self.root / spec.name).exists():
                    self._check(spec)
                else:
                    self._create_topic(spec)

    def _check(self, spec: TopicSpec) -> None:
        found = self.describe(spec.name).spec
        for what in ("partitions", "cleanup"):
            if getattr(found, what) != getattr(spec, what):
                raise TransportError(
                    f"topic '{spec.name}' exists with {what} = {getattr(found, what)}, "
                    f"but {getattr(spec, what)} is needed: choose another topic or move this one away"
                )

    def _create_topic(self, spec: TopicSpec) -> None:
        """Build it aside and rename it, so that nobody meets half a topic."""
        fresh = self.root / ".new"
        shutil.rmtree(fresh, ignore_errors=True)
        make_directory(fresh)
        try:
            for number in range(spec.partitions):
                create_partition(fresh / str(number), self._durable)
            self._describe_topic(fresh, uuid.uuid4().hex, spec)
            fresh.rename(self.root / spec.name)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        if self._durable:
            sync_directory(self.root)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Let a topic have this many partitions; running readers take the new ones on with `assign_more`."""
        with self._topics_locked(), _failures_named(self.root):
            found = self.describe(topic)
            for number in range(found.spec.partitions, partitions):
                create_partition(self.root / topic / str(number), self._durable)
            grown = max(partitions, found.spec.partitions)
            spec = TopicSpec(topic, grown, found.spec.cleanup, found.spec.retention_ms)
            self._describe_topic(self.root / topic, found.id, spec)

    def _describe_topic(self, directory: Path, topic_id: str, spec: TopicSpec) -> None:
        fields = {"partitions": spec.partitions, "cleanup": spec.cleanup, "retention_ms": spec.retention_ms}
        fresh = directory / "topic.json.new"
        _write_description(fresh, {"id": topic_id, **fields}, self._durable)
        fresh.replace(directory / "topic.json")
        if self._durable:
            sync_directory(directory)

    @contextlib.contextmanager
    def _topics_locked(self) -> Iterator[None]:
        descriptor = os.open(self._description, os.O_RDONLY | os.O_CLOEXEC)
        try:
            lock(descriptor, self._description)
            yield
        finally:
            os.close(descriptor)

    # Offsets, readers, writers

    def begin_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        return {name: self._partition(name).segments()[0] for name in self._all_partitions(topics)}

    def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        return {name: self._partition(name).visible_end().next_offset for name in self._all_partitions(topics)}

    def high_watermarks(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        return self.end_offsets(topics)  # An append holds its partitions until it is over: nothing lies behind it.

    def ends_of(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {}

    def reader(
        self,
        positions: Mapping[TopicPartition, int],
        max_record_bytes: int = MAX_RECORD_BYTES,
        guard: Guard | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> FileReader:
        """The bound changes nothing: the log is not compressed, and what is on its disk was written as it is."""
        reader = FileReader(self._open_partition, guard or Guard())
        reader.assign_more(positions)
        return reader

    def writer(self, identity: str) -> FileWriter:
        return FileWriter(
            IdentityLock(self.root / ".writers", identity),
            self.root / ".transactions",
            durable=self._durable,
            segment_bytes=self._segment_bytes,
            open_partition=self._open_partition,
            partition_count=lambda topic: self.describe(topic).spec.partitions,
            clean_up=self._clean_up,
        )

    def delete_before(self, name: TopicPartition, offset: int) -> None:
        """Delete the closed segments below the offset: retention by hand."""
        with self._partition(name).locked():
            cleanup.delete_before(self._partition(name), offset)

    def compact(self, topic: str) -> None:
        """Keep only the newest record of every key in the closed segments, now rather than at the next roll."""
        for name in self._all_partitions([topic]):
            with self._partition(name).locked(), _failures_named(self.root):
                cleanup.compact(self._partition(name))

    def erase(self, topic: str, keys: Collection[bytes]) -> int:
        """Take every record of these keys out of the topic's files, deletes included. Returns how many there were."""
        erased = 0
        for name in self._all_partitions([topic]):
            with self._partition(name).locked() as end, _failures_named(self.root):
                erased += cleanup.erase(self._partition(name), end, keys)
        return erased

    def _clean_up(self, partition: Partition) -> None:
        spec = self.describe(partition.name.topic).spec
        with contextlib.suppress(OSError):  # No room to tidy up is no reason to refuse the append.
            if spec.cleanup == "compact":
                cleanup.compact(partition)
            elif spec.retention_ms is not None:
                cleanup.delete_older_than(partition, spec.retention_ms)

    def _all_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in topics for number in self.partitions(topic)]

    def _open_partition(self, name: TopicPartition) -> Partition:
        if name.partition not in self.partitions(name.topic):
            raise UnknownTopic(f"topic '{name.topic}' has no partition {name.partition}")
        directory = self.root / name.topic / str(name.partition)
        return Partition(directory, name, self._transactions, self._durable)

    def _partition(self, name: TopicPartition) -> Partition:
        if name not in self._partitions:
            self._partitions[name] = self._open_partition(name)
        return self._partitions[name]


@contextlib.contextmanager
def _failures_named(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise translate(error, root) from error


def _write_description(path: Path, fields: dict[str, Any], durable: bool) -> None:
    content = json.dumps({"format": "streamdp-log", "version": VERSION, **fields}, indent=1)
    os.close(create_file(path, content.encode() + b"\n", durable))


def _read_description(path: Path) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError:
        raise TransportError(f"{path} is damaged: it is not the description of a streamdp log") from None
    if fields.get("format") != "streamdp-log" or fields.get("version") != VERSION:
        raise TransportError(f"{path} is not of a format this version reads (streamdp-log, version {VERSION})")
    return fields
