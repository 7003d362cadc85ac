"""A small stream and traces of it, for the tests of replays."""

from __future__ import annotations

import json

from streamdp.config.load import parse

WARDS = ("north", "south", "east", "west")
LENGTH = 60_000
FIRST = 1_767_225_600_000


def config(clock="wall", privacy='epsilon = "1.0"\nwindow = 4', strategy='strategy = "baseline"', extra=""):
    return parse(
        f"""
[stream]
name = "clinic"
[domain.ward]
type = "categorical"
values = ["north", "south", "east", "west"]
[time]
length = "1m"
clock = "{clock}"
{extra}
[privacy]
{privacy}
[[histogram]]
name = "wards"
attributes = ["ward"]
{strategy}
[input]
topics = ["visits"]
"""
    )


def line(key, ts, ward=None):
    """A short line at `ts` milliseconds after the first point opened; a delete without a ward."""
    fields = {"key": key, "ts": FIRST + ts}
    fields |= {"op": "delete"} if ward is None else {"op": "upsert", "record": {"ward": ward}}
    return json.dumps(fields, separators=(",", ":")).encode()


def close(time_point, **more):
    return json.dumps({"close": time_point, **more}).encode()


def write(path, lines):
    path.write_bytes(b"".join(text + b"\n" for text in lines))
    return path
