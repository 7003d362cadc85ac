"""Frozen copies of the counted records at one closed time point, for jobs in other processes to map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.domain import Domain
from streamdp.errors import StreamdpError
from streamdp.population import column_file
from streamdp.population.column_file import Column, Reader
from streamdp.population.index import Words
from streamdp.population.levels import LevelTable
from streamdp.population.population import Population

KIND = "population-snapshot"


def write_snapshot(
    population: Population,
    directory: Path,
    time_point: int,
    *,
    with_users: bool = False,
    levels: LevelTable | None = None,
    level_count: int = 0,
) -> Path:
    """Write one row for each counted record, one column for each attribute; `with_users` adds the users' digests.

    `levels` adds the level of privacy of each record's user, and the table's public sizes of `level_count` levels: a
    job that is run again sees the same. The order of the rows carries no meaning and may differ between runs.
    """
    if population.closed_point != time_point or population.open_point_began:
        raise ValueError("a snapshot is taken after the close of its time point and before any later message")
    path = directory / f"snapshot-{time_point:012d}.columns"
    columns = {
        f"codes {name}": Column(dtype, (), _pieces(population, lambda _, codes, place=place: codes[place]))  # type: ignore[misc]
        for place, (name, dtype) in enumerate(zip(population.domain.names, population.domain.dtypes, strict=True))
    }
    if with_users:
        columns["users"] = Column(np.dtype(np.uint64), (2,), _pieces(population, lambda users, _: users))
    description: dict[str, Any] = {
        "kind": KIND,
        "time_point": time_point,
        "domain": population.domain.describe(),
        "records_per_user": population.records_per_user,
    }
    if levels is not None:
        columns["levels"] = Column(np.dtype(np.uint8), (), _pieces(population, lambda users, _: levels.of(users)))
        description["level_sizes"] = levels.sizes(level_count)
    column_file.write(path, description, columns)
    return path


def relevel(path: Path, levels: LevelTable, level_count: int) -> None:
    """Write a snapshot with users anew, with the levels that its users have by now."""
    reader = Reader(path)
    columns = dict(reader.map())
    columns["levels"] = levels.of(columns["users"])
    description = reader.description | {"level_sizes": levels.sizes(level_count)}
    column_file.write(path, description, {name: Column.of(values) for name, values in columns.items()})


def _pieces(
    population: Population, choose: Callable[[Words, list[npt.NDArray[Any]]], npt.NDArray[Any]]
) -> Iterator[npt.NDArray[Any]]:
    for users, codes in population.counted_chunks():
        yield choose(users, codes)


@dataclass(frozen=True, repr=False)
class Snapshot:
    """A mapped snapshot: read-only columns of codes by attribute name. As private as the input."""

    time_point: int
    domain: Domain
    records_per_user: int
    columns: Mapping[str, npt.NDArray[Any]]
    users: npt.NDArray[np.uint64] | None
    levels: npt.NDArray[np.uint8] | None = None
    """The level of each record's user, strictest first, where the stream has levels of privacy."""
    level_sizes: tuple[int, ...] = ()
    """How many users the public table has of each level, present or not."""

    @classmethod
    def open(cls, path: Path) -> Snapshot:
        reader = Reader(path)
        description = reader.description
        if description.get("kind") != KIND:
            raise StreamdpError(f"{path.name} is not a snapshot of a population")
        columns = reader.map()
        domain = Domain.from_description(description["domain"])
        return cls(
            time_point=description["time_point"],
            domain=domain,
            records_per_user=description["records_per_user"],
            columns={name: columns[f"codes {name}"] for name in domain.names},
            users=columns.get("users"),
            levels=columns.get("levels"),
            level_sizes=tuple(description.get("level_sizes", ())),
        )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))
