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
from streamdp.population.population import Population

KIND = "population-snapshot"


def write_snapshot(population: Population, directory: Path, time_point: int, *, with_users: bool = False) -> Path:
    """Write one row for each counted record, one column for each attribute; `with_users` adds the users' digests.

    The order of the rows carries no meaning and may differ between runs.
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
    description = {
        "kind": KIND,
        "time_point": time_point,
        "domain": population.domain.describe(),
        "records_per_user": population.records_per_user,
    }
    column_file.write(path, description, columns)
    return path


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
        )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))
