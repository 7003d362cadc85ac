"""Checkpoints and snapshots: whole or absent, private, checked, mapped by another process."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from population_model import DOMAIN, VIEWS, Message, feed

from streamdp.domain import Attribute, Domain, View
from streamdp.errors import ConfigurationError, StreamdpError
from streamdp.population import Population, Snapshot, load_latest, write_checkpoint, write_snapshot
from streamdp.population.column_file import DamagedFileError


def filled(time_point: int = 1) -> Population:
    population = Population(DOMAIN, VIEWS)
    messages = [Message(user, 0, 1, False, (user % 3, user), 0, user) for user in range(100)]
    feed(population, messages, time_point)
    population.close(time_point)
    return population


def damage(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x40
    path.write_bytes(content)


def test_a_checkpoint_comes_back_with_its_cut(tmp_path: Path) -> None:
    assert load_latest(tmp_path, DOMAIN, VIEWS) is None
    population = filled()
    write_checkpoint(population, tmp_path, {"input-0": 100}, 1)
    restored = load_latest(tmp_path, DOMAIN, VIEWS)
    assert restored is not None
    assert restored.cut == {"input-0": 100}
    assert restored.population.users == 100
    assert (restored.population.counts("both") == population.counts("both")).all()
    with pytest.raises(ValueError, match="never changes"):
        feed(restored.population, [Message(1, 0, 9, False, (0, 0), 0, 100)], 1)


def test_an_empty_population_comes_back_and_fills(tmp_path: Path) -> None:
    population = Population(DOMAIN, VIEWS)
    write_checkpoint(population, tmp_path, None, 0)
    restored = load_latest(tmp_path, DOMAIN, VIEWS)
    assert restored is not None
    feed(restored.population, [Message(1, 0, 9, False, (2, 0), 0, 100)], 0)
    assert restored.population.counts("colour").tolist() == [0, 0, 1]


def test_the_last_two_are_kept_readable_by_the_owner_only(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-000000000001.columns.tmp").write_bytes(b"left by a crash")
    population = filled()
    for time_point in range(2, 6):
        population.close(time_point)
        write_checkpoint(population, tmp_path, time_point, time_point)
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["checkpoint-000000000004.columns", "checkpoint-000000000005.columns"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_checkpoint_that_cannot_be_written_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    population = filled()
    write_checkpoint(population, tmp_path, None, 1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StreamdpError, match=r"No space left on device\. Make room"):
        write_checkpoint(population, tmp_path, None, 2)
    assert [path.name for path in tmp_path.glob("*.columns")] == ["checkpoint-000000000001.columns"]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    population = filled()
    write_checkpoint(population, tmp_path, "old", 1)
    population.close(2)
    newest = write_checkpoint(population, tmp_path, "new", 2)
    whole = newest.read_bytes()
    random = np.random.default_rng(11)
    for place in [0, len(whole) - 1, len(whole) - 20, 64, *random.integers(64, len(whole), 60).tolist()]:
        damage(newest, place)
        restored = load_latest(tmp_path, DOMAIN, VIEWS)
        assert restored is not None
        # Padding between columns is nobody's data; anything else must be noticed.
        assert restored.cut == "old" or (whole[place] == 0 and restored.population.users == 100)
        newest.write_bytes(whole)
    for length in [0, 7, 100, len(whole) // 2, len(whole) - 1]:
        newest.write_bytes(whole[:length])
        restored = load_latest(tmp_path, DOMAIN, VIEWS)
        assert restored is not None and restored.cut == "old"


def test_nothing_but_damaged_checkpoints_is_an_error(tmp_path: Path) -> None:
    damage(write_checkpoint(filled(), tmp_path, None, 1), 100)
    with pytest.raises(DamagedFileError, match="every checkpoint"):
        load_latest(tmp_path, DOMAIN, VIEWS)


def test_another_domain_or_bound_is_refused(tmp_path: Path) -> None:
    write_checkpoint(filled(), tmp_path, None, 1)
    other = Domain([Attribute.categorical("colour", ["red", "green"]), Attribute.integer("size", 0, 299)])
    with pytest.raises(ConfigurationError, match="another \\[domain\\]"):
        load_latest(tmp_path, other, [View("colour", other, ["colour"])])
    with pytest.raises(ConfigurationError, match="records per user"):
        load_latest(tmp_path, DOMAIN, VIEWS, records_per_user=2)


def test_histograms_may_change_between_runs(tmp_path: Path) -> None:
    write_checkpoint(filled(), tmp_path, None, 1)
    restored = load_latest(tmp_path, DOMAIN, [View("sizes", DOMAIN, ["size"])])
    assert restored is not None
    assert restored.population.counts("sizes").tolist() == [1] * 100 + [0] * 200


def _sums(path: Path) -> tuple[int, int, int]:
    snapshot = Snapshot.open(path)
    assert all(isinstance(column, np.memmap) for column in snapshot.columns.values())
    return len(snapshot), int(snapshot.columns["colour"].sum()), int(snapshot.columns["size"].sum())


@pytest.mark.slow
def test_another_process_maps_a_snapshot(tmp_path: Path) -> None:
    path = write_snapshot(filled(), tmp_path, 1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_sums, (path,)) == (100, 99, 4950)


def test_a_snapshot_is_private_frozen_and_complete(tmp_path: Path) -> None:
    population = filled()
    feed(population, [Message(5, 0, 2, True, (0, 0), 0, 200)], 2)
    population.close(2)
    path = write_snapshot(population, tmp_path, 2, with_users=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    snapshot = Snapshot.open(path)
    feed(population, [Message(6, 0, 3, False, (0, 299), 0, 201)], 3)
    assert snapshot.domain == DOMAIN
    assert (snapshot.time_point, snapshot.records_per_user, len(snapshot)) == (2, 1, 99)
    assert sorted(snapshot.columns["size"].tolist()) == [size for size in range(100) if size != 5]
    assert snapshot.columns["colour"].dtype == np.uint8
    assert snapshot.users is not None and len(np.unique(snapshot.users, axis=0)) == 99
    with pytest.raises(ValueError, match="read-only"):
        snapshot.columns["size"][0] = 1
    with pytest.raises(ValueError, match="before any later message"):
        write_snapshot(population, tmp_path, 2)


def test_an_empty_snapshot_opens(tmp_path: Path) -> None:
    population = Population(DOMAIN, VIEWS)
    population.close(0)
    snapshot = Snapshot.open(write_snapshot(population, tmp_path, 0))
    assert len(snapshot) == 0
    assert snapshot.users is None


def test_a_damaged_or_foreign_snapshot_is_refused(tmp_path: Path) -> None:
    population = filled()
    path = write_snapshot(population, tmp_path, 1)
    damage(path, 70)
    with pytest.raises(DamagedFileError):
        Snapshot.open(path)
    with pytest.raises(DamagedFileError, match="cannot be read"):
        Snapshot.open(tmp_path / "absent")
    with pytest.raises(StreamdpError, match="not a snapshot"):
        Snapshot.open(write_checkpoint(population, tmp_path, None, 1))
