"""Hostile data: every kind of bad record among good ones, duplicates, late ones, and disorder.

Two topics, three partitions in all, full and short lines mixed. Nothing here is a broken *line*: all of it is data, and
takes its usual way. The test beside the fixture counts the same trace with a reader of its own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from streamdp.replay.draws import Draws
from streamdp.replay.generate.scenario import FIRST_OPEN, Piece, Scenario, closed

COLOURS = ("red", "green", "blue", "grün")
MAX_BYTES = 2_000
_EVERY = 4
"""One message in so many is a bad one."""


def configuration(users: int, points: int) -> str:
    return f"""\
# Hostile messages: every kind of bad record among good ones.
[stream]
name = "hostile"

[domain.colour]
type = "categorical"
values = ["red", "green", "blue", "grün"]

[domain.level]
type = "integer"
low = 0
high = 9

[domain.weight]
type = "real"
low = 0.0
high = 1.0
bins = 4
outside = "clamp"

[domain.zone]
type = "integer"
low = 0
high = 3
outside = "drop"

[time]
length = "1m"
skew = "5s"
tombstone_points = 3

[privacy]
epsilon = "2.0"
horizon = {points}

[[histogram]]
name = "colour_by_level"
attributes = ["colour", "level"]
strategy = "fixed"

[histogram.parameters]
interval = {max(1, points // 8)}

[[histogram]]
name = "weights"
attributes = ["weight", "zone"]
strategy = "dsft"

[histogram.parameters]
releases = {max(1, min(6, points // 2))}
threshold = {max(1, users // 5)}

[input]
topics = ["main", "side"]
max_record_bytes = {MAX_BYTES}
"""


class _Hostile:
    def __init__(self, draws: Draws, users: int, length: int) -> None:
        self._draws, self._users, self._length = draws, users, length
        self._offsets = {("main", 0): 0, ("main", 1): 0, ("side", 0): 0}
        self._now = FIRST_OPEN
        self._bad = 0

    def point(self, time_point: int, messages: int) -> Iterator[bytes]:
        opens = FIRST_OPEN + (time_point - 1) * self._length
        kept: list[bytes] = []
        for place in range(messages):
            self._now = opens + place * self._length // messages
            line = self._bad_line(kept) if place % _EVERY == _EVERY - 1 else self._good_line()
            kept.append(line)
            yield line

    def _number(self, limit: int) -> int:
        return int(self._draws.integers(limit, 1)[0])

    def _record(self) -> dict[str, Any]:
        weight = self._number(1_400) / 1_000 - 0.2
        # One zone in five lies outside, which that attribute drops.
        return {
            "colour": COLOURS[self._number(4)],
            "level": self._number(10),
            "weight": weight,
            "zone": self._number(5),
        }

    def _ts(self) -> int:
        """Mostly now; sometimes late by up to three points, sometimes early within the skew, sometimes a tie."""
        dice = self._number(10)
        if dice == 0:
            return max(0, self._now - self._number(3 * self._length))
        if dice == 1:
            return self._now + self._number(4_000)
        return self._now - self._now % 10_000 if dice == 2 else self._now

    def _user(self) -> str:
        number = self._number(self._users)
        return f'né"{number}\\' if number % 10 == 0 else f"u{number}"

    def _good_line(self) -> bytes:
        user, ts, record = self._user(), self._ts(), self._record()
        match self._number(8):
            case 0:
                return self._full(user.encode(), json.dumps({"ts": ts, "op": "delete"}))
            case 1:
                return self._full(user.encode(), None)
            case 2:
                return _line({"key": user, "ts": ts, "op": "delete"})
            case 3:
                return self._full(user.encode(), json.dumps({"op": "c", "after": record, "before": None}))
            case 4:
                return _line({"op": "upsert", "record": record, "ts": ts, "key": user}, spaced=True)
            case 5:
                return _line({"key": user, "ts": ts, "op": "upsert", "record": record})
            case _:
                return self._full(user.encode(), json.dumps({"ts": ts, "op": "upsert", "record": record}))

    def _bad_line(self, kept: list[bytes]) -> bytes:
        self._bad += 1
        user, ts, record = self._user(), self._now, self._record()
        good: dict[str, Any] = {"ts": ts, "op": "upsert", "record": record}
        text = json.dumps(good)
        far = self._now + 10 * self._length
        values: list[Any] = [
            text[:-2],  # not JSON any more
            "",
            text.replace('"op"', '"op\n"'),
            text + text,
            "[1,2]",
            '"text"',
            "null",
            "NaN",
            json.dumps({**good, "more": 1}),
            json.dumps({**good, "op": "merge"}),
            json.dumps({"ts": ts, "record": record}),
            json.dumps({**good, "ts": -1}),
            json.dumps({**good, "ts": str(ts)}),
            json.dumps({**good, "ts": ts + 0.5}),
            json.dumps({**good, "ts": 2**63}),
            json.dumps({**good, "ts": far}),
            json.dumps({"ts": ts, "op": "upsert"}),
            json.dumps({**good, "record": None}),
            json.dumps({**good, "record": [record]}),
            json.dumps({**good, "record": {**record, "colour": None}}),
            json.dumps({**good, "record": {"level": 1}}),
            json.dumps({**good, "record": {**record, "colour": 7}}),
            json.dumps({**good, "record": {**record, "level": "7"}}),
            json.dumps({**good, "record": {**record, "level": 7.5}}),
            json.dumps({**good, "record": {**record, "level": True}}),
            json.dumps({**good, "record": {**record, "size": 1}}),
            json.dumps({**good, "record": {**record, "colour": "mauve"}}),
            json.dumps({**good, "record": {**record, "level": 10}}),
            json.dumps({**good, "record": {**record, "colour": "red" + " " * MAX_BYTES}}),
            json.dumps({"op": "x", "after": record}),
            '{"ts":' + "[" * 300 + "]" * 300 + "}",
            b"\xff\xfe" + text.encode(),
            text.encode("utf-16"),
        ]
        kind = (self._bad - 1) % (len(values) + 5)
        if kind < len(values):
            return self._full(user.encode(), values[kind])
        match kind - len(values):
            case 0:
                return self._full(None, text)
            case 1:
                return self._full(b"", text)
            case 2:
                return self._full(None, None)
            case 3:
                return _line({"key": user, "ts": "soon", "op": "upsert", "record": record})
            case _:
                # The very same message again: delivered twice.
                return kept[self._number(len(kept))]

    def _full(self, key: bytes | None, value: str | bytes | None) -> bytes:
        # A user's messages stay in one partition, as a key's hash would have it.
        places = list(self._offsets)
        topic, partition = places[sum(key or b"") % len(places)]
        self._offsets[topic, partition] += 1 + self._number(3)
        fields: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "offset": self._offsets[topic, partition],
            "timestamp": self._ts(),
        }
        for name, content in (("key", key), ("value", value.encode() if isinstance(value, str) else value)):
            try:
                fields[name] = None if content is None else content.decode()
            except UnicodeDecodeError:
                fields[f"{name}_base64"] = base64.b64encode(content or b"").decode()
        return _line(fields)


def _line(fields: dict[str, Any], spaced: bool = False) -> bytes:
    separators = (" , ", " : ") if spaced else (",", ":")
    return json.dumps(fields, separators=separators, ensure_ascii=False).encode() + b"\n"


def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
    hostile = _Hostile(draws, users, length)
    for time_point in range(1, points + 1):
        yield b"".join(hostile.point(time_point, max(8, users // 4)))
        yield closed(time_point)


HOSTILE = Scenario("hostile", "every kind of bad record, duplicates, late, out of order", 200, 40, configuration, lines)
