"""Census-like data: the recipe of Li et al. (2015), section 7.1, with made-up people.

Six attributes of 96, 2, 12, 2, 2 and 3 values. Six times as many people as `users` exist; `users` of them are in the
dataset. At every point about m of them leave and as many of the others come, with m normal around r/2 times the users
(r = 0.01) and its variance the paper's 100,000 at 500,000 users. Ten periods have different m.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from streamdp.arrays import Integers
from streamdp.replay.draws import Draws
from streamdp.replay.generate.scenario import DELETE, Piece, Scenario, closed, table, times, upsert, write_lines

AGES, EDUCATIONS = 96, 12
INCOMES = ("none", "low", "high")
PEOPLE_PER_USER = 6
UPDATE_RATE = 0.01
PERIODS = (1.0, 0.2, 2.0, 0.5, 3.0, 0.1, 1.0, 0.3, 2.5, 0.4)
_PAPER_USERS, _PAPER_DEVIATION = 500_000, 316.0
_MANY = 100_000


def configuration(users: int, points: int) -> str:
    educations = ", ".join(f'"e{grade:02}"' for grade in range(EDUCATIONS))
    if users >= _MANY:
        releases, attributes = 10, '"age", "gender", "education", "insured", "married", "income"'
        groups, threshold = 24, "0.05"
    else:
        # Few people over 27,648 cells would be nothing but noise.
        releases, attributes = 5, '{ name = "age", bins = 8 }, "gender", "married", "income"'
        groups, threshold = 8, "0.1"
    return f"""\
# Made-up census data: people come and go, faster in some periods than in others.
[stream]
name = "census"

[domain.age]
type = "integer"
low = 0
high = {AGES - 1}

[domain.gender]
type = "categorical"
values = ["f", "m"]

[domain.education]
type = "categorical"
values = [{educations}]

[domain.insured]
type = "categorical"
values = ["yes", "no"]

[domain.married]
type = "categorical"
values = ["yes", "no"]

[domain.income]
type = "categorical"
values = ["none", "low", "high"]

[time]
length = "1m"

[privacy]
epsilon = "1.0"
horizon = {points}

[[histogram]]
name = "people"
attributes = [{attributes}]
strategy = "dsat"
share = "0.7"

[histogram.parameters]
releases = {max(1, min(releases, points // 5))}
threshold_fraction = "{threshold}"
expected_users = {users}
groups = {groups}

[[histogram]]
name = "age_by_gender"
attributes = [{{ name = "age", bins = 12 }}, "gender"]
strategy = "fixed"
share = "0.3"

[histogram.parameters]
interval = {max(1, points // 10)}

[input]
topics = ["people"]
"""


def lines(draws: Draws, users: int, points: int, length: int) -> Iterator[Piece]:
    endings = table([*_records(), DELETE])
    delete = len(endings) - 1
    cells = _people(draws, PEOPLE_PER_USER * users)
    # The first `users` of the order are in the dataset.
    order = draws.shuffled(len(cells))
    inside = order[:users]
    yield from write_lines(inside, times(draws, users, 1, length), endings, cells[inside])
    yield closed(1)
    for time_point in range(2, points + 1):
        mean = UPDATE_RATE * users / 2 * PERIODS[(time_point - 1) * len(PERIODS) // points]
        deviation = _PAPER_DEVIATION * users / _PAPER_USERS
        moving = int(np.clip(mean + deviation * draws.normals(1)[0], 1, users // 2))
        leaving = draws.some(users, moving)
        coming = users + draws.some(len(order) - users, moving)
        pairs = min(len(leaving), len(coming))
        leaving, coming = leaving[:pairs], coming[:pairs]
        order[leaving], order[coming] = order[coming], order[leaving]
        who = np.concatenate([order[coming], order[leaving]])
        what = np.concatenate([np.full(pairs, delete), cells[order[leaving]]])
        mixed = draws.shuffled(len(who))
        yield from write_lines(who[mixed], times(draws, len(who), time_point, length), endings, what[mixed])
        yield closed(time_point)


def _people(draws: Draws, count: int) -> Integers:
    """A record for each person, as the number of its ending. Attributes depend on each other as they do in life."""
    age = np.clip(38 + 23 * draws.normals(count), 0, AGES - 1).astype(np.int64)
    gender = draws.integers(2, count)
    schooling = np.minimum(age / 2, 4 + 3 * draws.uniforms(count) + 2 * draws.normals(count))
    education = np.clip(schooling, 0, EDUCATIONS - 1).astype(np.int64)
    insured = (draws.uniforms(count) < 0.1 + 0.15 * (age < 40)).astype(np.int64)
    married = (draws.uniforms(count) > np.clip((age - 18) / 40, 0, 0.65)).astype(np.int64)
    high = draws.uniforms(count) < 0.15 + 0.05 * education
    income = np.where(age < 20, 0, 1 + high)
    record = age
    for size, codes in ((2, gender), (EDUCATIONS, education), (2, insured), (2, married), (len(INCOMES), income)):
        record = record * size + codes
    return record.astype(np.int64)


def _records() -> Iterator[bytes]:
    values = product(range(AGES), "fm", range(EDUCATIONS), ("yes", "no"), ("yes", "no"), INCOMES)
    for age, gender, education, insured, married, income in values:
        yield upsert(
            f'{{"age":{age},"gender":"{gender}","education":"e{education:02}","insured":"{insured}"'
            f',"married":"{married}","income":"{income}"}}'
        )


CENSUS = Scenario(
    "census", "people with six attributes come and go, faster in some periods", 500_000, 500, configuration, lines
)
