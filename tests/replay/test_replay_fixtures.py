"""Every fixture gives exactly what it must; the hostile one is counted again by a reader that shares no code."""

from __future__ import annotations

import base64
import bisect
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zstandard

from streamdp.config import load
from streamdp.replay.fixtures import CONFIG, EXPECTED, FIXTURES, README, TRACE, found
from streamdp.replay.play import Player, open_trace

FOLDER = Path(__file__).parents[2] / "replay_fixtures"
NAMES = [fixture.name for fixture in FIXTURES]
AGAIN = "a seeded replay finds something else; if that is meant, `python -m streamdp.replay.fixtures` writes it down"


@pytest.mark.parametrize("name", NAMES)
def test_a_seeded_replay_finds_exactly_what_is_written_down(name):
    expected = json.loads((FOLDER / name / EXPECTED).read_text())
    assert json.loads(json.dumps(found(FOLDER / name))) == expected, AGAIN


@pytest.mark.parametrize("folder", sorted(FOLDER.iterdir()), ids=lambda folder: folder.name)
def test_a_fixture_is_whole_small_and_says_why_it_exists(folder):
    assert folder.name in NAMES
    assert (folder / TRACE).stat().st_size < 300_000
    assert len((folder / README).read_text().split()) > 5
    load(folder / CONFIG)


def test_the_hostile_fixture_has_every_reason_there_is():
    from streamdp.ingest import Reason

    expected = json.loads((FOLDER / "hostile" / EXPECTED).read_text())
    assert set(expected["rejected"]) == {reason.name.lower() for reason in set(Reason) - {Reason.SKIPPED}}
    assert expected["dropped"] > 0


def test_the_hostile_fixture_equals_an_independent_count():
    folder = FOLDER / "hostile"
    config = load(folder / CONFIG)
    truth, reasons, dropped = plain_count(folder / TRACE)
    with open_trace(folder / TRACE, config) as trace:
        player = Player(config, trace)
        points = 0
        for event, _ in player.play():
            levels, weights = truth[event.time_point]
            population = player.pipeline.population
            assert population.counts("colour_by_level").tolist() == levels, event.time_point
            assert population.counts("weights").tolist() == weights, event.time_point
            points += 1
    assert points == len(truth) == 60
    assert player.tally.by_name() == dict(reasons)
    assert player.tally.dropped == dropped


# The independent reader: plain json.loads, one message at a time, a dict for the dataset.

COLOURS = ["red", "green", "blue", "grün"]
NUMBERS = {("main", 0): 0, ("main", 1): 1, ("side", 0): 1024}


class Bad(Exception):
    pass


def plain_count(path):
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    lines = raw.split(b"\n")[:-1]
    header = json.loads(lines[0])
    held, truth, reasons, dropped = {}, {}, Counter(), 0
    point = 1
    for number, text in enumerate(lines[1:], start=2):
        fields = json.loads(text)
        if "close" in fields:
            held = {user: entry for user, entry in held.items() if entry[1] is not None or entry[2] > point - 3}
            truth[point] = histograms(held)
            point += 1
            continue
        key, value, timestamp, stamp = message(fields, number)
        latest = header["first_open"] + point * header["length"] + 5_000
        try:
            ts, codes = meaning(key, value, timestamp, latest)
        except Bad as bad:
            reasons[str(bad)] += 1
            continue
        if codes == "dropped":
            dropped += 1
            continue
        if key not in held or (ts, *stamp) > held[key][0]:
            held[key] = ((ts, *stamp), codes, point)
    return truth, reasons, dropped


def histograms(held):
    levels, weights = np.zeros((4, 10), int), np.zeros((4, 4), int)
    for _, codes, _ in held.values():
        if codes is not None:
            colour, level, weight, zone = codes
            levels[colour, level] += 1
            weights[weight, zone] += 1
    return levels.ravel().tolist(), weights.ravel().tolist()


def message(fields, number):
    if "ts" in fields and "key" in fields:
        key = fields.pop("key").encode()
        ts = fields["ts"] if isinstance(fields["ts"], int) else 0
        return key, json.dumps(fields).encode(), ts, (0, number)
    parts = []
    for name in ("key", "value"):
        if f"{name}_base64" in fields:
            parts.append(base64.b64decode(fields[f"{name}_base64"]))
        else:
            parts.append(None if fields[name] is None else fields[name].encode())
    number = NUMBERS[fields["topic"], fields["partition"]]
    return *parts, fields["timestamp"], (number, fields["offset"])


def meaning(key, value, timestamp, latest):
    """(ts, codes), codes None for a delete."""
    if len(key or b"") + len(value or b"") > 2_000:
        raise Bad("too_large")
    if value is None:
        return check_time(timestamp, latest), check_user(key, None)
    try:
        if value.count(b"[") > 256:
            raise ValueError
        what = json.loads(value.decode(), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        raise Bad("bad_json") from None
    if not isinstance(what, dict):
        raise Bad("not_an_object")
    if what.get("after") is not None:
        if what["op"] not in "cur":
            raise Bad("unknown_op")
        ts, record = check_time(timestamp, latest), what["after"]
        check_user(key, None)
        return ts, encode(record)
    if set(what) - {"ts", "op", "record"}:
        raise Bad("unknown_field")
    if "op" not in what:
        raise Bad("missing_field")
    if what["op"] not in ("upsert", "delete"):
        raise Bad("unknown_op")
    ts = check_time(what.get("ts", timestamp), latest)
    record = what.get("record")
    if what["op"] == "delete":
        return ts, check_user(key, None)
    if record is None:
        raise Bad("missing_field")
    if not isinstance(record, dict):
        raise Bad("wrong_type")
    if set(record) - {"colour", "level", "weight", "zone"}:
        raise Bad("unknown_attribute")
    check_user(key, None)
    return ts, encode(record)


def check_time(ts, latest):
    if not isinstance(ts, int) or not 0 <= ts < 2**63:
        raise Bad("bad_timestamp")
    if ts > latest:
        raise Bad("too_far_ahead")
    return ts


def check_user(key, result):
    if not key:
        raise Bad("no_user")
    return result


def encode(record):
    for name, right in (("colour", str), ("level", int), ("weight", float), ("zone", int)):
        if record.get(name) is None:
            raise Bad("missing_field")
        if not isinstance(record[name], right) or isinstance(record[name], bool):
            raise Bad("wrong_type")
    if record["colour"] not in COLOURS or not 0 <= record["level"] <= 9:
        raise Bad("outside_domain")
    if not 0 <= record["zone"] <= 3:
        return "dropped"
    weight = max(0, bisect.bisect_right([0.0, 0.25, 0.5, 0.75], record["weight"]) - 1)
    return COLOURS.index(record["colour"]), record["level"], weight, record["zone"]
