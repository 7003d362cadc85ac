"""A rotten byte is found before anything of it leaves, and nothing that is stored is quoted."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_samples import fresh_point, open_journal

from streamdp.journal import Journal, JournalCorrupted, JournalError, JournalReader, verify

SECRET = "the threshold noise is 17171717"


def fill(journal: Journal, points: int = 12) -> None:
    for time_point in range(1, points + 1):
        journal.commit_point(fresh_point(time_point, engine_state={"ages": {"rho": SECRET}}))
        journal.mark_published([stored.sequence for stored in journal.unpublished(time_point)][:-1])
    journal.close()


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def read_everything(path: Path) -> None:
    """What a start, and every command that reads, would do."""
    with open_journal(path) as journal:
        journal.engine_state()
        journal.last_release("ages")
        journal.unpublished()
        journal.jobs()
        journal.opening()
        journal.cuts()
    verify(path)


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("UPDATE messages SET value = x'00' WHERE sequence = 24", lambda journal: journal.unpublished()),
        ("UPDATE messages SET key = x'00' WHERE sequence = 24", lambda journal: journal.unpublished(12)),
        ("UPDATE releases SET counts = x'00' WHERE counts IS NOT NULL", lambda journal: journal.last_release("ages")),
        ("UPDATE engine_state SET state = '{}'", lambda journal: journal.engine_state()),
    ],
)
def test_changed_bytes_do_not_leave(
    path: Path, journal: Journal, statement: str, read: Callable[[JournalReader], object]
) -> None:
    """The chain holds digests, so the bytes themselves are compared when they are used."""
    fill(journal)
    change(path, statement)
    with JournalReader.open(path) as reader, pytest.raises(JournalCorrupted, match="not what was written"):
        read(reader)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charges SET epsilon = '1/40' WHERE id = 3",
        "DELETE FROM charges WHERE id = 3",
        "UPDATE messages SET sha256 = x'00' WHERE sequence = 3",
        "DELETE FROM releases WHERE time_point = 4",
        "UPDATE points SET cut = '{}' WHERE time_point = 5",
        "UPDATE meta SET value = x'00' WHERE name = 'digest_key'",
        "UPDATE meta SET value = '{}' WHERE name = 'terms'",
        "DELETE FROM commits WHERE number = 5",
        "DELETE FROM commits WHERE number = (SELECT max(number) FROM commits)",
    ],
)
def test_a_start_finds_what_was_changed_long_ago(path: Path, journal: Journal, statement: str) -> None:
    fill(journal)
    change(path, statement)
    with pytest.raises(JournalCorrupted, match="Restore a backup"):
        open_journal(path)


@pytest.mark.parametrize("seed", range(40))
def test_a_rotten_byte_is_a_clear_error_or_no_matter(path: Path, journal: Journal, seed: int) -> None:
    fill(journal)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    whole, chance = path.read_bytes(), random.Random(seed)
    for _ in range(10):
        rotten = bytearray(whole)
        for _ in range(3):
            rotten[chance.randrange(100, len(rotten))] ^= 1 << chance.randrange(8)
        path.write_bytes(rotten)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        try:
            read_everything(path)
        except JournalError as error:
            assert SECRET not in str(error)
