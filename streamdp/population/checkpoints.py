"""Checkpoints of the population: its columns and the cut they stand at. The last two are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamdp.domain import Domain, View
from streamdp.errors import ConfigurationError
from streamdp.population import column_file
from streamdp.population.column_file import Column, DamagedFileError, Reader
from streamdp.population.population import Population

KIND = "population-checkpoint"
KEPT = 2


@dataclass(frozen=True, repr=False)
class Restored:
    """A population, the cut it stands at and the time point it was saved under."""

    population: Population
    cut: Any
    time_point: int


def write_checkpoint(population: Population, directory: Path, cut: Any, time_point: int) -> Path:
    """Write the population (synchronously, all or nothing) with the JSON-able cut it stands at.

    `cut` must name exactly the messages that were applied; the usual moment is right after the close of `time_point`.
    Older checkpoints but one are removed afterwards.
    """
    path = directory / f"checkpoint-{time_point:012d}.columns"
    description = {
        "kind": KIND,
        "time_point": time_point,
        "closed_point": population.closed_point,
        "open_point_began": population.open_point_began,
        "cut": cut,
        "domain": population.domain.fingerprint,
        "bounds": _bounds(population),
    }
    for leftover in directory.glob("checkpoint-*.tmp"):
        leftover.unlink()
    columns = {name: Column.of(values) for name, values in population.columns().items()}
    column_file.write(path, description, columns)
    for old in _newest_first(directory)[KEPT:]:
        old.unlink()
    return path


def load_latest(directory: Path, domain: Domain, views: Sequence[View], **options: Any) -> Restored | None:
    """The newest whole checkpoint, or None when there is none; `options` are those of `Population`.

    A damaged file is passed over for the one before it: recovery then re-reads more input. If all are damaged that is
    an error, because starting from nothing must be somebody's decision.
    """
    found = _newest_first(directory)
    for path in found:
        try:
            reader = Reader(path)
            population = Population(domain, views, **options)
            _check(reader.description, population)
            columns = reader.load()
        except DamagedFileError:
            continue
        saved = reader.description
        population.restore(columns, saved["closed_point"], open_point_began=saved["open_point_began"])
        return Restored(population, saved["cut"], saved["time_point"])
    if found:
        raise DamagedFileError(
            f"every checkpoint in {directory} is damaged; restore one from a backup, or remove them to read the input "
            "again from its start"
        )
    return None


def _newest_first(directory: Path) -> list[Path]:
    return sorted(directory.glob("checkpoint-*.columns"), reverse=True)


def _bounds(population: Population) -> list[Any]:
    return [population.record_ids, population.records_per_user, population.keys_per_user]


def _check(description: Mapping[str, Any], population: Population) -> None:
    if description.get("kind") != KIND:
        raise DamagedFileError("not a checkpoint of a population")
    if description["domain"] != population.domain.fingerprint:
        raise ConfigurationError(
            "the checkpoint was taken with another [domain]; put the old one back, or begin a new stream (the budget "
            "spent on this input stays spent)"
        )
    if description["bounds"] != _bounds(population):
        raise ConfigurationError("the checkpoint was taken with other records per user or record ids; put them back")
