"""The chain of commits: one digest over all that was ever promised, spent, released, skipped or stored to be published.

A commit that adds rows to these tables gets a number and a digest: SHA-256 over the digest before it, a random salt and
those rows. Only what stays for ever is hashed (a pruned message keeps its own digest), so the chain can be computed
again at any time, and a row that is changed, missing or in another order is found.

The register of owners on the output holds the digest of what was published last. A journal without it is an old copy,
or a fork. Two forks that did the same by chance still differ, by their salts. The salt stays in the journal, so the
digest tells nobody anything.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from streamdp.journal.reader import JournalReader

SALT_BYTES = 16

CHAINED = {
    "settings": ("id", "name, value, since"),
    "reservations": ("rowid", "owner, epsilon, purpose"),
    "charges": ("id", "time_point, owner, epsilon, purpose, counted, amounts"),
    "points": ("time_point", "first, opened_ts, closed_ts, cut, epochs, status"),
    "releases": ("rowid", "release_id, histogram, time_point, cells, reason, sha256"),
    "messages": ("sequence", "time_point, topic, sha256"),
    "write_offs": ("id", "until, known, reason, ts"),
    "skips": ("id", "topic, partition, first, last, ts"),
}
"""The tables, by the name of their column in `commits`: what numbers their rows, and what is hashed of them."""

_ENDS = ", ".join(CHAINED)
_FIXED = "SELECT name, value FROM meta WHERE name NOT IN ('opening', 'jobs_position', 'pruned_until') ORDER BY name"


def extend(journal: JournalReader, connection: sqlite3.Connection, salt: bytes) -> None:
    """Adds a commit for the rows that are new, inside the transaction that wrote them; none when there are none."""
    last = journal.rows(f"SELECT number, digest, {_ENDS} FROM commits ORDER BY number DESC LIMIT 1")
    number, digest, *begin = last[0] if last else _beginning(journal)
    end = _ends(journal)
    if end != begin:
        link = (number + 1, salt, _hash(digest, salt, _added(journal, begin, end)), *end)
        places = ", ".join("?" * len(link))
        connection.execute(f"INSERT INTO commits (number, salt, digest, {_ENDS}) VALUES ({places})", link)


def problems(journal: JournalReader) -> Iterator[str]:
    """What of the journal is not what was chained. One pass over its tables: seconds for a year of points."""
    _, digest, *_ = _beginning(journal)
    tables = {
        table: _Rows(journal.each(f"SELECT {number}, {columns} FROM {table} ORDER BY {number}"))
        for table, (number, columns) in CHAINED.items()
    }
    commits = journal.each(f"SELECT number, salt, digest, {_ENDS} FROM commits ORDER BY number")
    for number, (found, salt, stored, *ends) in enumerate(commits, start=1):
        if found != number:
            yield f"commit {number} is missing"
            return
        added = [(table, rows.upto(end)) for (table, rows), end in zip(tables.items(), ends, strict=True)]
        digest = _hash(digest, salt, added)
        if digest != stored:
            yield f"what commit {number} wrote is no longer what the journal holds"
            return
    if any(rows.is_left for rows in tables.values()):
        yield "there are rows that no commit wrote, or the newest commits are gone"


class _Rows:
    """The rows of a table in the order of their numbers, taken commit by commit."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    @property
    def is_left(self) -> bool:
        return self._next is not None

    def upto(self, end: int) -> Iterator[tuple[Any, ...]]:
        while self._next is not None and self._next[0] <= end:
            yield self._next
            self._next = next(self._rows, None)


def _beginning(journal: JournalReader) -> tuple[Any, ...]:
    """What stands before the first commit: whose journal it is, its terms and its key, which never change."""
    return (0, _hash(b"", b"", [("meta", journal.each(_FIXED))]), *(0 for _ in CHAINED))


def _ends(journal: JournalReader) -> list[int]:
    return [
        journal.rows(f"SELECT coalesce(max({number}), 0) FROM {table}")[0][0] for table, (number, _) in CHAINED.items()
    ]


def _added(journal: JournalReader, begin: Sequence[int], end: Sequence[int]) -> Iterator[tuple[str, Iterable[Any]]]:
    """The rows of each table after one commit, up to the next."""
    for (table, (number, columns)), first, last in zip(CHAINED.items(), begin, end, strict=True):
        query = f"SELECT {number}, {columns} FROM {table} WHERE {number} > ? AND {number} <= ? ORDER BY {number}"
        yield table, journal.each(query, first, last) if first != last else ()


def _hash(before: bytes, salt: bytes, tables: Iterable[tuple[str, Iterable[Any]]]) -> bytes:
    digest = hashlib.sha256(before + salt)
    for table, rows in tables:
        for row in rows:
            digest.update(json.dumps([table, *row], default=bytes.hex).encode())
    return digest.digest()
