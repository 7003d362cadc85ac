"""Charges, stored releases, cuts and engine state of a stream: one SQLite file, one transaction a time point."""

from streamdp.journal.backup import backup, backup_into, last_backup
from streamdp.journal.contents import (
    Commit,
    Cut,
    Identity,
    JobsCommit,
    Opening,
    Point,
    PointCommit,
    Release,
    StoredMessage,
    StoredRelease,
    message_digest,
)
from streamdp.journal.errors import JournalCorrupted, JournalError, JournalFull, JournalLocked, JournalMismatch
from streamdp.journal.journal import Journal
from streamdp.journal.reader import JournalReader
from streamdp.journal.verify import verify

__all__ = [
    "Commit",
    "Cut",
    "Identity",
    "JobsCommit",
    "Journal",
    "JournalCorrupted",
    "JournalError",
    "JournalFull",
    "JournalLocked",
    "JournalMismatch",
    "JournalReader",
    "Opening",
    "Point",
    "PointCommit",
    "Release",
    "StoredMessage",
    "StoredRelease",
    "backup",
    "backup_into",
    "last_backup",
    "message_digest",
    "verify",
]
