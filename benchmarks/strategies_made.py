"""Made-up traces for benchmarks/strategies.py, of other kinds than the fixtures: each moves in its own way.

Users stand on a grid of `x` by `y` cells; a walk yields where everybody is at each point, -1 for who is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import cos, exp, pi, sin

import numpy as np
from numpy.typing import NDArray

from streamdp.arrays import Integers
from streamdp.replay.draws import Draws
from streamdp.replay.generate.scenario import DELETE, Piece, Scenario, closed, table, times, upsert, write_lines

Floats = NDArray[np.float64]
Walk = Callable[[Draws, int, int], Iterator[Integers]]
"""From draws, users and points to everybody's cell at each point."""
ABSENT = -1


def scenario(name: str, about: str, users: int, points: int, shape: tuple[int, int], walk: Walk) -> Scenario:
    def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
        records = [upsert(f'{{"x":{x},"y":{y}}}') for x in range(shape[0]) for y in range(shape[1])]
        endings = table([*records, DELETE])
        before = np.full(users, ABSENT, np.int64)
        for time_point, where in enumerate(walk(draws, users, points), 1):
            changed = np.flatnonzero(where != before)
            before = where
            chosen = np.where(where[changed] == ABSENT, len(records), where[changed])
            yield from write_lines(changed, times(draws, len(changed), time_point, length), endings, chosen)
            yield closed(time_point)

    domain = "".join(
        f'[domain.{axis}]\ntype = "integer"\nlow = 0\nhigh = {size - 1}\n\n'
        for axis, size in zip("xy", shape, strict=True)
    )
    configuration = configuration_for(name, f"made up: {about}", domain, '"x", "y"')
    return Scenario(name, about, users, points, configuration, lines)


def configuration_for(
    name: str, about: str, domain: str, attributes: str, *, length: str = "1h", more: str = ""
) -> Callable[[int, int], str]:
    """The TOML of a scenario with one histogram, named as the scenario is."""

    def configuration(users: int, points: int) -> str:
        return f"""\
# {about}
[stream]
name = "{name}"

{domain}[time]
length = "{length}"
{more}
[privacy]
epsilon = "1.0"
horizon = {points}

[[histogram]]
name = "{name}"
attributes = [{attributes}]
strategy = "fixed"
parameters = {{ interval = {max(1, points // 10)} }}

[input]
topics = ["{name}"]
"""

    return configuration


def hill(shape: tuple[int, int], x: float, y: float, width: float) -> Floats:
    """Weights of cells: a hill around a place, on a low plain."""
    across, along = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    weights: Floats = (0.02 + np.exp(-(((across - x) ** 2 + (along - y) ** 2) / (2 * width**2)))).ravel()
    return weights


def drift(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """Random steps with a wind from the west: many cells, and never a jump."""
    x, y = (np.clip(20 + 8 * draws.normals(users), 0, 63).astype(np.int64) for _ in range(2))
    for _ in range(points):
        yield x * 64 + y
        steps = draws.yes(0.05, users)
        x = np.clip(x + steps * (draws.integers(4, users) - 1), 0, 63)
        y = np.clip(y + steps * (draws.integers(3, users) - 1), 0, 63)


def seasons(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """A slow swing of 60 points and a faster one of 12: nobody is new, all change their minds."""
    where = draws.choices(hill((8, 6), 4, 3, 2), users)
    for point in range(points):
        yield where
        weights = hill((8, 6), 4 + 3 * sin(2 * pi * point / 60), 3 + sin(2 * pi * point / 12), 1.5)
        where = np.where(draws.yes(0.15, users), draws.choices(weights, users), where)


def regimes(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """Stillness, a rush, a slow change and stillness again."""
    where = draws.choices(hill((4, 4), 0, 0, 1), users)
    for point in range(points):
        yield where
        part = point / points
        rate = 0.1 if 0.35 < part < 0.5 else 0.01 if 0.65 < part < 0.85 else 0.0
        where = np.where(draws.yes(rate, users), draws.choices(hill((4, 4), 3, 4 * part, 1), users), where)


def large(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """A million users, of whom few move at a time, towards a place that wanders."""
    where = draws.choices(hill((16, 16), 3, 3, 4), users)
    for point in range(points):
        yield where
        moving = draws.some(users, users // 400)
        target = hill((16, 16), 3 + 10 * point / points, 8 + 5 * sin(2 * pi * point / 150), 3)
        where = where.copy()
        where[moving] = draws.choices(target, len(moving))


def still(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    where = draws.choices(hill((8, 8), 3, 4, 2), users)
    for _ in range(points):
        yield where


def still_wide(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    where = draws.choices(hill((32, 32), 10, 20, 6), users)
    for _ in range(points):
        yield where


def launch(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """A service that starts with few, grows, has a rhythm of seven, loses a region for a while and gains a crowd."""
    where = np.full(users, ABSENT, np.int64)
    for point in range(points):
        part = point / points
        wanted = 0.03 + 0.8 / (1 + np.exp(-10 * (part - 0.4))) + (0.15 if part > 0.7 else 0.0)
        joining = (where == ABSENT) & draws.yes(0.3 * wanted if point else 0.03, users)
        leaving = (where != ABSENT) & draws.yes(0.3 * (1 - wanted), users)
        changing = (where != ABSENT) & draws.yes(0.02 + 0.02 * (point % 7 > 4), users)
        moved = draws.choices(hill((10, 10), 2 + 6 * part, 5 + 2 * sin(2 * pi * point / 7), 2.5), users)
        where = np.where(joining | changing, moved, np.where(leaving, ABSENT, where))
        down = 0.55 < part < 0.6
        yield np.where((where // 10 < 3) & down, ABSENT, where)


def crowds(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """A city whose people walk about and whose events, at times nobody knows, gather a part of them for a while."""
    city = hill((12, 12), 5, 6, 3)
    where = home = draws.choices(city, users)
    until = np.zeros(users, np.int64)
    for point in range(points):
        yield where
        home = np.where(draws.yes(0.01, users), draws.choices(city, users), home)
        if draws.yes(0.04, 1)[0]:
            place, lasts, part = draws.integers(144, 1)[0], 4 + draws.integers(9, 1)[0], draws.uniforms(1)[0]
            goes = draws.yes(0.03 + 0.12 * part, users) & (until <= point)
            where, until = np.where(goes, place, where), np.where(goes, point + lasts, until)
        where = np.where(until <= point, home, where)


def network(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """Phones on 16 by 16 masts: to work and home again, less so at weekends; a part of the masts fails; a festival."""
    homes = draws.choices(hill((16, 16), 8, 8, 5), users)
    works = draws.choices(hill((16, 16), 5, 10, 2), users)
    leaves, returns = 7 + draws.integers(3, users), 16 + draws.integers(4, users)
    employed, goes = draws.yes(0.6, users), draws.yes(0.08, users)
    for point in range(points):
        day, hour = divmod(point, 24)
        is_off = draws.yes(0.9 if day % 7 > 4 else 0.1, users)
        at_work = employed & ~is_off & (leaves <= hour) & (hour < returns)
        where = np.where(at_work, works, homes)
        where = np.where(draws.yes(0.05, users), draws.choices(hill((16, 16), 7, 9, 6), users), where)
        if 0.45 < point / points < 0.49:
            where = np.where((where // 16 < 5) & (where % 16 < 8), where + 8, where)
        if 0.7 < point / points < 0.85:
            where = np.where(goes, 200, where)
        yield where


def wards(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """Patients by ward and days of stay: planned ones come on weekdays, few go home at weekends, winter fills a ward.

    Emergencies come every day, some change wards, and how long a stay is depends on the ward; the last of the ten days
    is that one and all later ones.
    """
    usual = 1 / (2.0 + np.arange(12))
    ward = np.where(draws.yes(0.06, users), draws.choices(usual, users), ABSENT)
    stayed = draws.integers(10, users)
    for point in range(points):
        yield np.where(ward == ABSENT, ABSENT, ward * 10 + np.minimum(stayed, 9))
        is_weekend = point % 7 > 4
        winter = 1 + cos(2 * pi * point / 365)
        weights = usual + 0.3 * winter * (np.arange(12) == 4)
        coming = (ward == ABSENT) & draws.yes(0.006 + 0.001 * winter + (0.0 if is_weekend else 0.005), users)
        leaving = draws.uniforms(users) * (3 + ward % 5) < (0.5 if is_weekend else 1.0)
        moving = coming | ((ward != ABSENT) & draws.yes(0.04, users))
        ward = np.where(moving, draws.choices(weights, users), np.where(leaving, ABSENT, ward))
        stayed = np.where(coming, 0, stayed + 1)


def versions(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """Phones by country and version of an app, day by day: a new version every 15 days, offered to more and more.

    Each phone updates at a pace of its own, some come and some go, and one version is withdrawn four days after it came
    out: phones that have it go back to the one before, and wait for the one after.
    """
    known, faulty = 4, 12
    country = draws.choices(1 / (1.0 + np.arange(8)), users)
    pace = 0.4 * draws.uniforms(users) ** 2
    version = known - 1 - draws.choices(np.exp2(-np.arange(known)), users)
    has_it = draws.yes(0.6, users)
    for point in range(points):
        yield np.where(has_it, country * 20 + version, ABSENT)
        age, newest = point % 15, min(known + point // 15, 19)
        if age == 0:
            luck = draws.uniforms(users)
        before = newest - 2 if newest - 1 == faulty else newest - 1
        is_withdrawn = newest == faulty and age >= 4
        offered = np.where((luck < 0.02 * 2**age) & (not is_withdrawn), newest, before)
        coming = ~has_it & draws.yes(0.004, users)
        updating = (draws.uniforms(users) < pace) & (version < offered)
        returning = (version == faulty) & is_withdrawn & draws.yes(0.5, users)
        version = np.where(coming | updating | returning, offered, version)
        has_it = coming | (has_it & ~draws.yes(0.002, users))


def parking(draws: Draws, users: int, points: int) -> Iterator[Integers]:
    """Cars by car park and hours they have stood: for work, for shops, where people live, and one at a stadium.

    Workers come on weekdays and stay, shoppers come and go and are more on Saturdays, neighbours stay for the night.
    Two matches fill the stadium's, a car park with shops is closed for repairs for three days of the second week, and
    who finds a car park full drives on. The last of the ten hours is that one and all later ones.
    """
    kind = np.repeat(np.arange(4), (5, 5, 3, 1))
    popular = 1 / (2.0 + np.arange(14) % 5)
    park = np.where(draws.yes(0.08, users), 10 + draws.integers(3, users), ABSENT)
    stayed = draws.integers(10, users)
    for point in range(points):
        yield np.where(park == ABSENT, ABSENT, park * 10 + np.minimum(stayed, 9))
        day, hour = divmod(point, 24)
        is_match = (day, hour) in ((5, 14), (5, 15), (9, 19), (9, 20))
        rates = (
            (0.002 if day % 7 > 4 else 0.05) * exp(-(((hour - 8) / 1.7) ** 2)),
            (0.04 if day % 7 == 5 else 0.01 if day % 7 == 6 else 0.02) * exp(-(((hour - 14) / 4.2) ** 2)),
            0.02 * exp(-(((hour - 19) / 2.8) ** 2)),
            0.3 if is_match else 0.0,
        )
        weights = np.array(rates)[kind] * popular
        wanted = np.where((park == ABSENT) & draws.yes(weights.sum(), users), draws.choices(weights, users), ABSENT)
        room = np.maximum(0.06 * users - np.bincount(park[park != ABSENT], minlength=14), 0)
        room[6] *= not 8 <= day < 11
        asking = np.bincount(wanted[wanted != ABSENT], minlength=14)
        coming = (wanted != ABSENT) & (draws.uniforms(users) * asking[wanted] < room[wanted])
        chances = (
            np.where(stayed < 7, 0.02, 0.4),
            0.4,
            0.35 if 6 <= hour <= 10 else 0.02,
            np.where(stayed < 2, 0.0, 0.8),
        )
        leaving = draws.uniforms(users) < np.choose(kind[park], chances)
        park = np.where(coming, wanted, np.where(leaving, ABSENT, park))
        stayed = np.where(coming, 0, stayed + 1)


DRIFT = scenario("drift", "random steps with a wind, on many cells", 50_000, 300, (64, 64), drift)
SEASONS = scenario("seasons", "a slow and a fast swing", 15_000, 300, (8, 6), seasons)
REGIMES = scenario("regimes", "stillness, a rush, slow change, among few", 1_000, 300, (4, 4), regimes)
LARGE = scenario("large", "a million, of whom few move at a time", 1_000_000, 300, (16, 16), large)
STILL = scenario("still", "nothing ever changes", 20_000, 300, (8, 8), still)
STILL_WIDE = scenario("still_wide", "nothing ever changes, on many cells", 5_000, 300, (32, 32), still_wide)
LAUNCH = scenario(
    "launch", "a service that grows, fails in part and is found by a crowd", 30_000, 300, (10, 10), launch
)
CROWDS = scenario("crowds", "a city with events at times that nobody knows", 60_000, 300, (12, 12), crowds)
NETWORK = scenario("network", "phones on masts, with a failure and a festival", 200_000, 336, (16, 16), network)
WARDS = scenario("wards", "patients by ward and days of stay, through a year", 100_000, 365, (12, 10), wards)
VERSIONS = scenario("versions", "phones by country and version of an app, day by day", 250_000, 240, (8, 20), versions)
PARKING = scenario(
    "parking", "cars by car park and hours they have stood, hour by hour", 40_000, 336, (14, 10), parking
)
