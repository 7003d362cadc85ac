"""The journal's tables. The meaning of a column never changes; a new meaning is a new column and a new format."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from streamdp.journal.errors import JournalCorrupted, JournalError

FORMAT = 4

# Marks the file as ours for file(1) and for us: "sdpj".
APPLICATION_ID = 0x7364706A

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;

-- What was promised, by the name of the setting, and from which time point it holds; the newest row counts.
CREATE TABLE settings (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    value TEXT NOT NULL,  -- JSON
    since INTEGER NOT NULL
) STRICT;

CREATE TABLE reservations (owner TEXT NOT NULL PRIMARY KEY, epsilon TEXT NOT NULL, purpose TEXT NOT NULL) STRICT;

CREATE TABLE charges (
    id INTEGER PRIMARY KEY,
    time_point INTEGER NOT NULL,
    owner TEXT NOT NULL,
    epsilon TEXT NOT NULL,
    purpose TEXT NOT NULL,
    counted INTEGER NOT NULL,  -- 0: the audit trail of a reservation
    amounts TEXT  -- ["p/q", ...], what each level pays; null when all pay epsilon
) STRICT;
CREATE INDEX charges_by_point ON charges (time_point);

-- Points in a row that were missed, or written off, share a row: from `first` to `time_point`.
CREATE TABLE points (
    time_point INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    opened_ts INTEGER,
    closed_ts INTEGER,
    cut TEXT,  -- {"topic": {"partition": offset}}
    epochs TEXT,  -- as the cut: which history of a log that may lose its end the offset is of
    status TEXT NOT NULL CHECK (status IN ('closed', 'missed', 'ended', 'written_off'))
) STRICT;

-- Only the newest state is kept, so that a commit does not grow with history.
CREATE TABLE engine_state (
    histogram TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    sha256 BLOB NOT NULL  -- of the state
) STRICT;

CREATE TABLE releases (
    release_id TEXT PRIMARY KEY,
    histogram TEXT NOT NULL,
    time_point INTEGER NOT NULL REFERENCES points (time_point),
    cells INTEGER NOT NULL,
    reason TEXT NOT NULL,
    sha256 BLOB NOT NULL,  -- of the counts
    counts BLOB  -- int64, little-endian, zstd; only a histogram's newest release keeps them
) STRICT;
CREATE INDEX releases_with_counts ON releases (histogram) WHERE counts IS NOT NULL;

CREATE TABLE messages (
    sequence INTEGER PRIMARY KEY,
    time_point INTEGER NOT NULL REFERENCES points (time_point),
    topic TEXT NOT NULL,
    partition INTEGER,
    key BLOB,
    value BLOB,
    timestamp INTEGER,
    headers TEXT,  -- [[name, hexadecimal value], ...]
    sha256 BLOB NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('stored', 'published', 'pruned', 'abandoned'))
) STRICT;
CREATE INDEX messages_by_point ON messages (time_point);
CREATE INDEX messages_by_hash ON messages (sha256);
CREATE INDEX messages_to_publish ON messages (sequence) WHERE status = 'stored';

-- An id is admitted once; refused requests are kept for whoever asks why.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    epsilon TEXT NOT NULL,
    params TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('admitted', 'done', 'failed', 'cancelled', 'refused')),
    time_point INTEGER,  -- of the snapshot it reads, at which it is charged
    reason TEXT,
    result BLOB,  -- until it is published
    published_at INTEGER,
    amounts TEXT  -- as that of its charge
) STRICT;
CREATE UNIQUE INDEX jobs_admitted ON jobs (id) WHERE state != 'refused';
CREATE INDEX jobs_under_way ON jobs (number) WHERE published_at IS NULL;

CREATE TABLE write_offs (
    id INTEGER PRIMARY KEY,
    until INTEGER NOT NULL,
    known INTEGER NOT NULL,
    reason TEXT NOT NULL,
    ts INTEGER NOT NULL
) STRICT;

-- Input that is never read again: each record of it failed alone. See daemon/skip.py.
CREATE TABLE skips (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    ts INTEGER NOT NULL
) STRICT;

-- The lowest level that a user's preference ever had, by digest; in the order of the terms' levels.
CREATE TABLE preferences (user BLOB PRIMARY KEY, level INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- See chain.py. A table's column holds its highest id after the commit.
CREATE TABLE commits (
    number INTEGER PRIMARY KEY,
    salt BLOB NOT NULL,
    digest BLOB NOT NULL,
    settings INTEGER NOT NULL,
    reservations INTEGER NOT NULL,
    charges INTEGER NOT NULL,
    points INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    write_offs INTEGER NOT NULL,
    skips INTEGER NOT NULL
) STRICT;
CREATE INDEX commits_by_message ON commits (messages);
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, inside the caller's transaction."""
    for statement in TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def is_empty(connection: sqlite3.Connection) -> bool:
    """True for a file that holds nothing yet: new, or created by a process that died before its first commit."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(tables == 0)


def require_readable(connection: sqlite3.Connection, path: Path) -> None:
    """Raise when the file is not a journal, or one of a format that this version does not know."""
    if is_empty(connection):
        raise JournalError(f"the journal at {path} is empty; start the daemon once")
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise JournalCorrupted(f"{path} is not a streamdp journal; give the path of one, or of a new file")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != FORMAT:
        raise JournalError(
            f"journal {path} has format {found}; this version reads {FORMAT}. Use the streamdp that wrote it"
        )
