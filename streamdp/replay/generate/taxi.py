"""Taxi-like data: where taxis are, on a grid of ten by ten, by the hour, by day and by night.

As Li et al. (2015), section 7.1, cuts a week of Beijing: 168 points of an hour. By day most taxis work and drive to
and from the centre; by night many stop (they are deleted) and the others stay further out. Weekends are quieter.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi

import numpy as np
from numpy.typing import NDArray

from streamdp.replay.draws import Draws
from streamdp.replay.generate.scenario import DELETE, Piece, Scenario, closed, table, times, upsert, write_lines

GRID = 10
WEEK = 168


def configuration(users: int, points: int) -> str:
    return f"""\
# Made-up taxis on a grid, hour by hour: a daily rhythm.
[stream]
name = "taxi"

[domain.x]
type = "integer"
low = 0
high = {GRID - 1}

[domain.y]
type = "integer"
low = 0
high = {GRID - 1}

[time]
length = "1h"

[privacy]
epsilon = "1.0"
window = 24

[[histogram]]
name = "grid"
attributes = ["x", "y"]
strategy = "dsat_w"

[histogram.parameters]
releases = 6
threshold_fraction = "0.1"
expected_users = {users}
groups = 20

[input]
topics = ["taxis"]
"""


def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
    endings = table([*(upsert(f'{{"x":{x},"y":{y}}}') for x in range(GRID) for y in range(GRID)), DELETE])
    stopped = len(endings) - 1
    where = np.full(users, stopped, np.int64)
    for time_point in range(1, points + 1):
        busy = _busy(time_point - 1)
        works = draws.yes(0.25 + 0.7 * busy, users)
        # Who goes on in the same state mostly stays where they are, even by day.
        moves = (where == stopped) | draws.yes(0.05 + 0.25 * busy, users)
        target = np.where(works, draws.choices(_weights(busy), users), stopped)
        now = np.where(works & ~moves, where, target)
        # Shifts last for hours: only some of those who would start or stop do so within this one.
        shifts = (now == stopped) != (where == stopped)
        now = np.where(shifts & ~draws.yes(0.4, users), where, now)
        changed = np.flatnonzero(now != where)
        where = now
        mixed = changed[draws.shuffled(len(changed))]
        yield from write_lines(mixed, times(draws, len(mixed), time_point, length), endings, where[mixed])
        yield closed(time_point)


def _busy(hour: int) -> float:
    """0 in the dead of night, 1 at midday of a working day."""
    daily = (1 - cos(2 * pi * ((hour % 24) - 3) / 24)) / 2
    return daily * (0.7 if (hour // 24) % 7 >= 5 else 1.0)


def _weights(busy: float) -> NDArray[np.float64]:
    """By day the centre draws, by night the outskirts."""
    x, y = np.meshgrid(np.arange(GRID), np.arange(GRID), indexing="ij")
    distance = np.hypot(x - 4.5, y - 4.5)
    weights: NDArray[np.float64] = (busy * np.exp(-distance / 1.5) + (1 - busy) * 0.05 * distance).ravel()
    return weights


TAXI = Scenario("taxi", "taxis on a 10 x 10 grid, by day and by night", 110_357, WEEK, configuration, lines)
