"""Churn: many come, change and go again, so that the dataset is never the same people for long.

Deletes, inserts of users who were deleted before, and users who fall silent and expire.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamdp.replay.draws import Draws
from streamdp.replay.generate.scenario import DELETE, Piece, Scenario, closed, table, times, upsert, write_lines

PLANS = ("free", "basic", "plus", "team", "enterprise")
HOURS = 24


def configuration(users: int, points: int) -> str:
    return f"""\
# Made-up sessions: users come, change and go, and are forgotten when they fall silent.
[stream]
name = "churn"

[domain.plan]
type = "categorical"
values = ["free", "basic", "plus", "team", "enterprise"]

[domain.hours]
type = "integer"
low = 0
high = {HOURS - 1}

[time]
length = "10m"
expire_after = 12
tombstone_points = 6

[privacy]
epsilon = "1.0"
window = {max(2, min(20, points // 2))}

[[histogram]]
name = "plans"
attributes = ["plan"]
strategy = "ba"
share = "0.5"

[[histogram]]
name = "plan_by_hours"
attributes = ["plan", {{ name = "hours", bins = 6 }}]
strategy = "bd"
share = "0.5"

[input]
topics = ["sessions"]
"""


def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
    endings = table([*(upsert(f'{{"plan":"{p}","hours":{h}}}') for p in PLANS for h in range(HOURS)), DELETE])
    gone = len(endings) - 1
    for time_point in range(1, points + 1):
        # A wave: sometimes more leave than come.
        leaving = 0.3 + 0.25 * np.sin(time_point / 6)
        speaking = draws.some(users, users if time_point == 1 else users // 5)
        popular = np.roll(np.array([8.0, 4, 3, 2, 1]), time_point // 15)
        plan = draws.choices(popular, len(speaking))
        chosen = plan * HOURS + draws.integers(HOURS, len(speaking))
        if time_point > 1:
            chosen = np.where(draws.yes(float(leaving), len(speaking)), gone, chosen)
        yield from write_lines(speaking, times(draws, len(speaking), time_point, length), endings, chosen)
        yield closed(time_point)


CHURN = Scenario("churn", "users come, change, go and expire", 50_000, 200, configuration, lines)
