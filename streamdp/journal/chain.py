"""The chain of commits: one digest over all that was ever promised, spent, released or stored to be published.

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
from collections.abc import Iterator, Sequence
from typing import Any

from streamdp.journal.reader import JournalReader

SALT_BYTES = 16

CHAINED = {
    "settings": ("id", "name, value, since"),
    "reservations": ("rowid", "owner, epsilon, purpose"),
    "charges": ("id", "time_point, owner, epsilon, purpose, counted, amounts"),
    "points": ("time_point", "opened_ts, closed_ts, status"),
    "releases": ("rowid", "release_id, histogram, time_point, cells, reason, sha256"),
    "messages": ("sequence", "time_point, topic, sha256"),
    "write_offs": ("id", "until, known, reason, ts"),
}
"""The tables, by the name of their column in `commits`: what numbers their rows, and what is hashed of them."""

_ENDS = ", ".join(CHAINED)


def extend(journal: JournalReader, connection: sqlite3.Connection, salt: bytes) -> None:
    """Adds a commit for the rows that are new, inside the transaction that wrote them; none when there are none."""
    last = journal.rows(f"SELECT number, digest, {_ENDS} FROM commits ORDER BY number DESC LIMIT 1")
    number, digest, *begin = last[0] if last else _beginning(journal)
    end = _ends(journal)
    if end != begin:
        link = (number + 1, salt, _digest(journal, digest, salt, begin, end), *end)
        places = ", ".join("?" * len(link))
        connection.execute(f"INSERT INTO commits (number, salt, digest, {_ENDS}) VALUES ({places})", link)


def problems(journal: JournalReader) -> Iterator[str]:
    """What of the journal is not what was chained."""
    number, digest, *begin = _beginning(journal)
    for found, salt, stored, *end in journal.rows(f"SELECT number, salt, digest, {_ENDS} FROM commits ORDER BY number"):
        number += 1
        if found != number:
            yield f"commit {number} is missing"
            return
        digest = _digest(journal, digest, salt, begin, end)
        if digest != stored:
            yield f"what commit {number} wrote is no longer what the journal holds"
            return
        begin = end
    if begin != _ends(journal):
        yield "there are rows that no commit wrote, or the newest ones are gone"


def _beginning(journal: JournalReader) -> tuple[Any, ...]:
    """What stands before the first commit."""
    return (0, journal.identity.journal_id.encode(), *(0 for _ in CHAINED))


def _ends(journal: JournalReader) -> list[int]:
    return [
        journal.rows(f"SELECT coalesce(max({number}), 0) FROM {table}")[0][0] for table, (number, _) in CHAINED.items()
    ]


def _digest(journal: JournalReader, before: bytes, salt: bytes, begin: Sequence[int], end: Sequence[int]) -> bytes:
    digest = hashlib.sha256(before + salt)
    for (table, (number, columns)), first, last in zip(CHAINED.items(), begin, end, strict=True):
        if first == last:
            continue
        query = f"SELECT {number}, {columns} FROM {table} WHERE {number} > ? AND {number} <= ? ORDER BY {number}"
        for row in journal.rows(query, first, last):
            digest.update(json.dumps([table, *row], default=bytes.hex).encode())
    return digest.digest()
