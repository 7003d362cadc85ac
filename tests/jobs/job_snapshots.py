"""A small population whose two halves differ, and a snapshot of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.domain import Attribute, Domain
from streamdp.population import Population, Snapshot, write_snapshot

DOMAIN = Domain(
    [
        Attribute.categorical("ward", ["north", "south"]),
        Attribute.integer("age", 0, 99, bins=10),
        Attribute.real("weight", 0, 200, bins=40),
    ]
)


def user_keys(users: int) -> npt.NDArray[np.uint64]:
    number = np.arange(users, dtype=np.uint64)
    return np.stack([number, number * 7919], axis=1)


def halves(directory: Path, users: int, records_per_user: int = 1, **more: Any) -> Snapshot:
    """Half of the users in the north and in bin 2 of age and 8 of weight, half in the south and in 7 and 30.

    `more` goes to `write_snapshot`.
    """
    population = Population(
        DOMAIN, [], record_ids=records_per_user > 1, records_per_user=records_per_user, tombstone_points=10
    )
    keys = user_keys(users)
    half = np.arange(users) % 2
    population.apply(
        user=keys,
        record=keys if records_per_user > 1 else None,
        ts=np.full(users, 1_000),
        delete=np.zeros(users, dtype=bool),
        codes=[half, 2 + 5 * half, 8 + 22 * half],
        partition=0,
        offsets=np.arange(users),
        time_point=1,
    )
    population.close(1)
    return write_snapshot(population, directory, 1, **more)
