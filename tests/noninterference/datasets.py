"""Pairs of datasets as different as can be: what arrives at every time point."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

WARDS = ("north", "south", "east", "west")
POINT_MS = 1_000

Message = tuple[bytes, bytes | None]
Dataset = Callable[[int], Iterator[Message]]
"""The messages of a time point, as key and value."""


def upsert(user: int, ward: int, age: int, time_point: int) -> Message:
    record = {"ward": WARDS[ward % 4], "age": age % 100}
    value = {"ts": POINT_MS * time_point, "op": "upsert", "record": record}
    return f"user-{user}".encode(), json.dumps(value).encode()


def nobody(time_point: int) -> Iterator[Message]:
    yield from ()


def crowd(time_point: int, users: int = 2_000) -> Iterator[Message]:
    """Many users who come at once, then move: all to one ward, and back, with some rubbish among it."""
    if time_point == 1:
        yield from (upsert(user, user, user * 7, 1) for user in range(users))
    elif time_point % 5 == 0:
        ward = time_point // 5
        yield from (upsert(user, ward, user + time_point, time_point) for user in range(0, users, 2))
    yield f"odd-{time_point}".encode(), b"{rubbish"


def resting(time_point: int) -> Iterator[Message]:
    if time_point == 1:
        yield from (upsert(user, user, user * 7, 1) for user in range(200))


def resting_but_one(time_point: int) -> Iterator[Message]:
    """As `resting`, with one user more, who moves at every point."""
    yield from resting(time_point)
    yield upsert(999, time_point, 13 * time_point, time_point)


def growing(time_point: int) -> Iterator[Message]:
    yield from (upsert(100 * time_point + user, user, user, time_point) for user in range(100))


def shrinking(time_point: int) -> Iterator[Message]:
    if time_point == 1:
        yield from (upsert(user, user, user, 1) for user in range(3_000))
    yield from ((f"user-{user}".encode(), None) for user in range(100 * time_point, 100 * time_point + 100))


PAIRS: dict[str, tuple[Dataset, Dataset]] = {
    "nobody against a crowd": (nobody, crowd),
    "one user moved": (resting, resting_but_one),
    "growing against shrinking": (growing, shrinking),
}
