"""A dictionary model of the population: what the table should hold, from sets of messages, in plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from streamdp.domain import Attribute, Domain, View
from streamdp.population import Moved, Population

DOMAIN = Domain([Attribute.categorical("colour", ["red", "green", "blue"]), Attribute.integer("size", 0, 299)])
VIEWS = (View("colour", DOMAIN, ["colour"]), View("both", DOMAIN, ["size", "colour"]))


@dataclass(frozen=True)
class Message:
    user: int
    record: int
    ts: int
    delete: bool
    codes: tuple[int, int]
    partition: int
    offset: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        return self.ts, self.partition, self.offset


@dataclass
class Model:
    """State by (user, record): the message that won and the point in which it came."""

    record_ids: bool
    records_per_user: int
    keys_per_user: int
    expire_after: int | None
    tombstone_points: int
    state: dict[tuple[int, int], tuple[Message, int]] = field(default_factory=dict)

    def point(self, messages: Iterable[Message], time_point: int) -> None:
        """All messages of one point, whatever their order, and its close."""
        for message in messages:
            key = (message.user, message.record if self.record_ids else 0)
            if key not in self.state or message.stamp > self.state[key][0].stamp:
                self.state[key] = (message, time_point)
        for keys in self._keys_by_user().values():
            for key in keys[: -self.keys_per_user]:
                del self.state[key]
        for key, (message, accepted) in list(self.state.items()):
            expired = self.expire_after is not None and time_point - accepted >= self.expire_after
            if expired or (message.delete and time_point - accepted >= self.tombstone_points):
                del self.state[key]

    def _keys_by_user(self) -> dict[int, list[tuple[int, int]]]:
        """Every user's keys, oldest stamp first."""
        keys: dict[int, list[tuple[int, int]]] = {}
        for key in sorted(self.state, key=lambda key: self.state[key][0].stamp):
            keys.setdefault(key[0], []).append(key)
        return keys

    def held(self) -> list[tuple[int, tuple[int, int]]]:
        """(user, codes) of everything counted."""
        counted = []
        for user, keys in self._keys_by_user().items():
            live = [self.state[key][0] for key in keys if not self.state[key][0].delete]
            counted += [(user, message.codes) for message in live[-self.records_per_user :]]
        return sorted(counted)

    def counts(self, view: View) -> np.ndarray:
        codes = np.array([codes for _, codes in self.held()], np.int64).reshape(-1, 2)
        return np.bincount(view.cell_of([codes[:, 0], codes[:, 1]]), minlength=view.cells)


def digests(numbers: Iterable[int], crowded: bool) -> np.ndarray:
    """Digests of small numbers: well spread, or all with the same leading bits, so that every probe collides."""
    numbers = np.array(list(numbers), np.uint64)
    if crowded:
        return np.stack([numbers >> np.uint64(1), numbers], axis=1)
    return np.stack([numbers * np.uint64(0x9E3779B97F4A7C15), numbers * np.uint64(0xC2B2AE3D27D4EB4F)], axis=1)


def _record_digests(numbers: list[int], crowded: bool) -> np.ndarray:
    """Crowded ones differ in their last bits only; the first word must tell the records of a user apart."""
    return np.repeat(np.array(numbers, np.uint64)[:, None], 2, axis=1) if crowded else digests(numbers, crowded=False)


def feed(population: Population, messages: list[Message], time_point: int, crowded: bool = False) -> Moved:
    """One batch: messages of one partition, in order of their offsets."""
    codes = np.array([message.codes for message in messages], np.int64).reshape(-1, 2)
    deleted = np.array([message.delete for message in messages], np.bool_)
    codes[deleted] = -1
    return population.apply(
        digests((message.user for message in messages), crowded),
        _record_digests([message.record for message in messages], crowded) if population.record_ids else None,
        np.array([message.ts for message in messages], np.int64),
        deleted,
        [codes[:, 0], codes[:, 1]],
        partition=messages[0].partition if messages else 0,
        offsets=np.array([message.offset for message in messages], np.int64),
        time_point=time_point,
    )
