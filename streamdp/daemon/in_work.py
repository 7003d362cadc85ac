"""Which part of the input is being worked on, in a file that outlives the process, however that ends.

The next start reads it and knows where the last one died. The file is mapped into memory: writing a place costs no
system call, and the kernel keeps it when the process is killed, runs out of memory or crashes. A power cut may lose it,
which is right: that was no record's doing.

It lies beside the journal and is as private.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from streamdp.errors import StreamdpError
from streamdp.journal import Journal
from streamdp.transport.base import TopicPartition
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard, Skips

DEATHS = 3
"""After so many in a row at one place a start is refused: one or two may be chance."""

_MAGIC = b"SDPREAD\x01"
_PLACE = struct.Struct("<iiqq256p")  # deaths (0: nothing), partition, first and last offset, topic
_BATCHES = 3
"""How many batches may be between their begin and their end: one is applied while the next is decoded."""
_READING, _SUSPECTS = 0, 1 + _BATCHES
_PLACES = 2 * _SUSPECTS


class Place(NamedTuple):
    """Offsets of a partition, and how often in a row a daemon died while it worked on them."""

    name: TopicPartition
    first: int
    last: int
    deaths: int = 1

    def __str__(self) -> str:
        offsets = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return f"{offsets} of partition {self.name.partition} of topic {self.name.topic!r}"

    def after(self, suspects: list[Place]) -> Place:
        """A place where a daemon died, given where those before it did."""
        same = [each for each in suspects if self.overlaps(each)]
        if not same:
            return self
        before = max(same, key=lambda each: each.deaths)
        return Place(self.name, max(self.first, before.first), min(self.last, before.last), before.deaths + 1)

    def overlaps(self, other: Place) -> bool:
        return self.name == other.name and self.first <= other.last and other.first <= self.last


class InWork(Guard):
    """The file, and what it says of earlier runs. Open it under the journal's lock.

    `suspects` are the places that were worked on when the last process died, until one has passed them.
    """

    def __init__(self, path: Path, skips: Skips | None = None) -> None:
        super().__init__(skips)
        self.path = path
        places = places_in(path)
        died, before = [p for p in places[:_SUSPECTS] if p], [p for p in places[_SUSPECTS:] if p]
        elsewhere = [place for place in before if not any(place.overlaps(each) for each in died)]
        self.suspects = [*(place.after(before) for place in died), *elsewhere][: _PLACES - _SUSPECTS]
        fresh = path.with_name(path.name + ".new")
        content = b"".join([_MAGIC, bytes(_SUSPECTS * _PLACE.size), *map(_packed, self._suspect_slots())])
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, content)
            self._map = mmap.mmap(descriptor, len(content))
        finally:
            os.close(descriptor)
        fresh.replace(path)
        self._begun = 0
        self._waiting: deque[tuple[int, TopicPartition, int]] = deque()

    @classmethod
    def beside(cls, journal: Journal) -> InWork:
        """The file of a journal that is open for writing."""
        return cls(journal.path.with_name(journal.path.name + ".reading"), Skips(journal.skips()))

    def require_progress(self) -> None:
        """Refuses to go where daemons died again and again."""
        places = [str(place) for place in self.suspects if place.deaths >= DEATHS]
        if places:
            raise StreamdpError(
                f"the daemon died {DEATHS} times or more while it worked on {'; '.join(places)}. Run `streamdp journal "
                "skip CONFIG`: it tries these records in a process of their own, and skips those that fail alone. If "
                "something else ended the daemon (too little memory, a kill), mend that; the command then skips nothing"
            )

    @contextmanager
    def orderly_end(self) -> Iterator[None]:
        """Around all work. Ends that say why are no deaths: a signal, or an error with a reason of its own."""
        try:
            yield
        except (StreamdpError, SystemExit, KeyboardInterrupt):
            self._rest_all()
            raise
        self._rest_all()

    def clear(self) -> None:
        """Suspect nothing any more."""
        self.suspects = []
        self._write_suspects()

    def close(self) -> None:
        self._map.close()

    def reading(self, name: TopicPartition, first: int, last: int) -> None:
        self._write(_READING, name, first, last)

    def read(self) -> None:
        self._erase(_READING)

    def begin(self, batch: RecordBatch) -> None:
        slot = 1 + self._begun % _BATCHES
        name, last = TopicPartition(batch.topic, batch.partition), int(batch.offsets[-1])
        self._write(slot, name, int(batch.offsets[0]), last)
        self._waiting.append((slot, name, last))
        self._begun += 1

    def end(self) -> None:
        slot, name, last = self._waiting.popleft()
        self._erase(slot)
        if self.suspects:
            self.suspects = [each for each in self.suspects if each.name != name or each.last > last]
            self._write_suspects()

    def rest(self) -> None:
        while self._waiting:
            self._erase(self._waiting.popleft()[0])

    def _rest_all(self) -> None:
        self.read()
        self.rest()

    def _write(self, slot: int, name: TopicPartition, first: int, last: int) -> None:
        topic = name.topic.encode()  # of at most 249 bytes, on Kafka as in the embedded log
        _PLACE.pack_into(self._map, len(_MAGIC) + slot * _PLACE.size, 1, name.partition, first, last, topic)

    def _erase(self, slot: int) -> None:
        self._map[len(_MAGIC) + slot * _PLACE.size] = 0

    def _suspect_slots(self) -> list[Place | None]:
        return [*self.suspects, *[None] * (_PLACES - _SUSPECTS - len(self.suspects))]

    def _write_suspects(self) -> None:
        begin = len(_MAGIC) + _SUSPECTS * _PLACE.size
        self._map[begin:] = b"".join(map(_packed, self._suspect_slots()))


def places_in(path: Path) -> list[Place | None]:
    """Every slot of the file; all empty where there is none, or one of another format."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    if content[: len(_MAGIC)] != _MAGIC or len(content) != len(_MAGIC) + _PLACES * _PLACE.size:
        return [None] * _PLACES
    return [_place(*fields) for fields in _PLACE.iter_unpack(content[len(_MAGIC) :])]


def died_reading(path: Path) -> Place | None:
    """What its process could not even read, if it died of that."""
    return places_in(path)[_READING]


def _place(deaths: int, partition: int, first: int, last: int, topic: bytes) -> Place | None:
    return Place(TopicPartition(topic.decode(errors="replace"), partition), first, last, deaths) if deaths > 0 else None


def _packed(place: Place | None) -> bytes:
    if place is None:
        return bytes(_PLACE.size)
    return _PLACE.pack(place.deaths, place.name.partition, place.first, place.last, place.name.topic.encode())
