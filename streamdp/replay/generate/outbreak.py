"""An outbreak: nothing happens for a long time, then much at once in one place, then it ebbs away.

What a strategy is for: repeat while nothing happens, keep the budget, and release in time when something does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from streamdp.replay.draws import Draws
from streamdp.replay.generate.scenario import Piece, Scenario, closed, table, times, upsert, write_lines

DISTRICTS, AGE_GROUPS = 8, ("0-19", "20-39", "40-59", "60+")
STATES = ("well", "ill", "recovered")
_BURST = 10
"""Points the outbreak lasts, at most."""
_HIT = 2


def configuration(users: int, points: int) -> str:
    districts = ", ".join(f'"d{number}"' for number in range(1, DISTRICTS + 1))
    return f"""\
# Made-up patients: static, then an outbreak in one district.
[stream]
name = "outbreak"

[domain.district]
type = "categorical"
values = [{districts}]

[domain.age]
type = "categorical"
values = ["0-19", "20-39", "40-59", "60+"]

[domain.state]
type = "categorical"
values = ["well", "ill", "recovered"]

[time]
length = "1h"

[privacy]
epsilon = "1.0"
window = {max(2, min(50, points // 2))}

[[histogram]]
name = "state_by_district"
attributes = ["district", "state"]
strategy = "dsat_w"

[histogram.parameters]
releases = {max(1, min(4, points // 4))}
threshold_fraction = "0.1"
expected_users = {users}
threshold_low = {max(400, users * 0.05):g}
decision_ratio = "0.3"

[input]
topics = ["patients"]
"""


def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
    records = product(range(1, DISTRICTS + 1), AGE_GROUPS, STATES)
    endings = table([upsert(f'{{"district":"d{d}","age":"{a}","state":"{s}"}}') for d, a, s in records])
    district, age = draws.integers(DISTRICTS, users), draws.integers(len(AGE_GROUPS), users)
    state = np.where(draws.yes(0.01, users), 1, 0)
    begin = 1 + 3 * points // 5
    for time_point in range(1, points + 1):
        after = time_point - begin
        catches = 0.2 if 0 <= after < _BURST else 0.0002
        risk = np.where(district == _HIT, catches, 0.0002 if after < 2 else min(catches, 0.02))
        falls_ill = (state == 0) & (draws.uniforms(users) < risk)
        recovers = (state == 1) & draws.yes(0.05 if after >= 5 else 0.01, users)
        state = np.where(falls_ill, 1, np.where(recovers, 2, state))
        moved = np.arange(users) if time_point == 1 else np.flatnonzero(falls_ill | recovers)
        chosen = (district[moved] * len(AGE_GROUPS) + age[moved]) * len(STATES) + state[moved]
        yield from write_lines(moved, times(draws, len(moved), time_point, length), endings, chosen)
        yield closed(time_point)


OUTBREAK = Scenario("outbreak", "static, then a burst in one district", 20_000, 200, configuration, lines)
