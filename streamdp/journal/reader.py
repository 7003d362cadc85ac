"""Reading a journal, also while a daemon writes it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import numpy as np
import zstandard

from streamdp.arrays import Counts
from streamdp.engine.job import Job
from streamdp.journal import schema
from streamdp.journal.contents import (
    Commit,
    Cut,
    Identity,
    Opening,
    Point,
    StoredMessage,
    StoredRelease,
    counts_digest,
    message_digest,
)
from streamdp.journal.errors import JournalCorrupted, JournalError, clear_errors
from streamdp.population.levels import LevelTable
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.ledger import Charge, Ledger, Reservation
from streamdp.privacy.terms import Terms
from streamdp.transport.base import Message, TopicPartition
from streamdp.transport.guard import Skip

# A job may read a snapshot of any of the last points; older ones are settled, so that memory and start-up do not grow
# with the history of an endless stream.
_LEAST_UNSETTLED = 1024


class JournalReader:
    """A read-only view. Every call sees the newest commit."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: str | Path) -> JournalReader:
        """Open read-only; raises JournalError when there is no journal, or none that this version reads."""
        resolved = Path(path).resolve()
        if not resolved.is_file():
            raise JournalError(f"there is no journal at {resolved}; check the path, or start the daemon once")
        with clear_errors(resolved):
            address = f"file:{quote(str(resolved))}?mode=ro"
            connection = sqlite3.connect(address, uri=True, isolation_level=None)
            try:
                schema.require_readable(connection, resolved)
            except BaseException:
                connection.close()
                raise
        return cls(resolved, connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # Whose it is

    @property
    def identity(self) -> Identity:
        found = self._meta()
        with self._readable("whose it is"):
            return Identity(*(found[name] for name in Identity.__dataclass_fields__))

    @property
    def terms(self) -> Terms:
        with self._readable("its terms"):
            return Terms.from_state(json.loads(self._meta()["terms"]))

    @property
    def digest_key(self) -> bytes:
        """The secret under which users' keys are kept as digests."""
        return bytes(self._meta()["digest_key"])

    def settings(self, time_point: int) -> dict[str, Any]:
        """What was promised, by the name of the setting, as it holds at the time point."""
        return {name: value for since, name, value in self.setting_changes() if since <= time_point}

    def setting_changes(self) -> list[tuple[int, str, Any]]:
        """From which time point which setting has had which value, in order."""
        held = self.rows("SELECT since, name, value FROM settings ORDER BY id")
        with self._readable("the settings"):
            return [(since, name, json.loads(value)) for since, name, value in held]

    # The chain of commits

    def commit_of(self, sequence: int) -> Commit:
        """The commit that stored the message."""
        query = "SELECT number, digest FROM commits WHERE messages >= ? ORDER BY messages, number LIMIT 1"
        ((number, digest),) = self.rows(query, sequence)
        return Commit(number, digest.hex())

    def last_commit(self) -> Commit:
        ((number, digest),) = self.rows("SELECT number, digest FROM commits ORDER BY number DESC LIMIT 1")
        return Commit(number, digest.hex())

    def contains(self, commit: Commit) -> bool:
        """Whether the commit is one of this journal's; it is not in an older copy, nor in one that went another way."""
        found = self.rows("SELECT digest FROM commits WHERE number = ?", commit.number)
        return bool(found) and found[0][0].hex() == commit.digest

    # Ledger

    def read_ledger(self, *, whole: bool = False) -> Ledger:
        """The ledger as of the newest commit; `whole` reads entries that are settled long since, too."""
        with self.one_commit():
            try:
                return self._read_ledger(whole)
            except ValueError as error:
                raise JournalCorrupted(f"journal {self.path}: {error}. Restore a backup") from error

    def _read_ledger(self, whole: bool) -> Ledger:
        terms = self.terms
        settled_before = 1 if whole or terms.is_finite else max(1, self._last_time_point() - unsettled(terms))
        return Ledger.restore(
            terms,
            (
                Reservation(owner, as_fraction(epsilon), purpose)
                for owner, epsilon, purpose in self.rows(
                    "SELECT owner, epsilon, purpose FROM reservations ORDER BY rowid"
                )
            ),
            (
                Charge(time_point, owner, as_fraction(epsilon), purpose, bool(counted), _amounts(amounts))
                for time_point, owner, epsilon, purpose, counted, amounts in self.rows(
                    "SELECT time_point, owner, epsilon, purpose, counted, amounts FROM charges"
                    " WHERE time_point > ? ORDER BY id",
                    settled_before - terms.points,
                )
            ),
            written_off_until=self.written_off_until(),
            settled_before=settled_before,
        )

    def preferences(self) -> LevelTable:
        """The lowest level that each user's preference ever had; empty when the stream has no levels."""
        rows = self.rows("SELECT user, level FROM preferences")
        users = np.frombuffer(b"".join(user for user, _ in rows), "<u8").reshape(-1, 2).astype(np.uint64)
        return LevelTable.of_entries(users, np.array([level for _, level in rows], np.uint8))

    def written_off_until(self) -> int:
        """The last time point that the operator wrote off, or 0."""
        return int(self.rows("SELECT coalesce(max(until), 0) FROM write_offs")[0][0])

    # Points and what they left

    @property
    def last_time_point(self) -> int:
        """The newest point the journal knows, or 0."""
        return self._last_time_point()

    def opening(self) -> Opening | None:
        """How the stream began; None before its first point opened."""
        text = self._meta().get("opening")
        if text is None:
            return None
        with self._readable("how the stream began"):
            found = json.loads(text)
            return Opening(
                found["first_open"],
                found["length"],
                _cut(json.dumps(found["start"])),
                _cut(json.dumps(found["backlog"])),
                found["latest_ts"],
            )

    def last_point(self) -> Point | None:
        found = self.points(self._last_time_point() - 1)
        return found[0] if found else None

    def points(self, since: int = 0) -> list[Point]:
        """The time points after `since`, in order; of a run that holds it, all of the run."""
        return [
            Point(time_point, first, opened, closed, None if cut is None else _cut(cut), status, _cut(epochs or "{}"))
            for time_point, first, opened, closed, cut, epochs, status in self.rows(
                "SELECT time_point, first, opened_ts, closed_ts, cut, epochs, status FROM points WHERE time_point > ?"
                " ORDER BY time_point",
                since,
            )
        ]

    def skips(self) -> list[Skip]:
        """What of the input is never read again."""
        held = self.rows("SELECT topic, partition, first, last FROM skips ORDER BY id")
        return [Skip(TopicPartition(topic, partition), first, last) for topic, partition, first, last in held]

    def cuts(self, since: int = 0) -> list[tuple[int, Cut]]:
        """The cuts of the time points after `since` that have one, in order."""
        return [(point.time_point, point.cut) for point in self.points(since) if point.cut is not None]

    def engine_state(self) -> dict[str, dict[str, Any]]:
        """The newest state of every strategy, each compared with its digest: it decides what is asked next."""
        states = {}
        with self._readable("a state"):
            for histogram, text, digest in self.rows("SELECT * FROM engine_state"):
                if hashlib.sha256(text.encode()).digest() != digest:
                    raise self.damaged(f"the state of the histogram {histogram!r} is not what was written")
                states[histogram] = json.loads(text)
        return states

    def last_release(self, histogram: str) -> StoredRelease | None:
        rows = self.rows(
            "SELECT release_id, time_point, cells, counts, sha256 FROM releases"
            " WHERE histogram = ? AND counts IS NOT NULL",
            histogram,
        )
        if not rows:
            return None
        release_id, time_point, cells, compressed, digest = rows[0]
        counts = decompressed(compressed, cells)
        if counts is None or counts_digest(counts) != digest:
            raise self.damaged(f"the newest release of the histogram {histogram!r} is not what was written")
        return StoredRelease(release_id, histogram, time_point, counts)

    # Messages

    def unpublished(self, time_point: int | None = None) -> list[StoredMessage]:
        """What is stored and not yet marked as published, in the order to publish it; of all points, or of one."""
        condition = "status = 'stored'"
        if time_point is None:
            return self._sound(self.rows(f"{MESSAGES} WHERE {condition} ORDER BY sequence"))
        return self._sound(self.rows(f"{MESSAGES} WHERE {condition} AND time_point = ? ORDER BY sequence", time_point))

    def unpublished_points(self) -> list[int]:
        """The time points that have something stored and not yet marked, oldest first."""
        query = "SELECT DISTINCT time_point FROM messages WHERE status = 'stored' ORDER BY time_point"
        return [row[0] for row in self.rows(query)]

    def published_until(self) -> int:
        """The last time point up to which everything is marked as published, or 0."""
        oldest = "SELECT min(time_point) FROM messages WHERE status = 'stored'"
        query = f"SELECT coalesce(max(time_point), 0) FROM points WHERE time_point < coalesce(({oldest}), ?)"
        return int(self.rows(query, self._last_time_point() + 1)[0][0])

    def messages(self, time_point: int) -> list[StoredMessage]:
        """The messages of one time point whose bytes are still kept, in order."""
        query = f"{MESSAGES} WHERE time_point = ? AND status != 'pruned' ORDER BY sequence"
        with self._readable("a message"):
            return [stored_message(row) for row in self.rows(query, time_point)]

    def _sound(self, rows: Iterable[tuple[Any, ...]]) -> list[StoredMessage]:
        """The messages of these rows, on their way out: bytes that are not those that were stored are refused."""
        with self._readable("a message"):
            found = [stored_message(row) for row in rows]
        for stored in found:
            if message_digest(stored.message) != stored.sha256:
                raise self.damaged(f"a message of time point {stored.time_point} is not what was written")
        return found

    @contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE:  # whose texts may quote what is stored
            raise self.damaged(f"{what} cannot be read") from None

    def damaged(self, what: str) -> JournalCorrupted:
        """Says what is no longer as it was written, and nothing of what it holds."""
        return JournalCorrupted(
            f"journal {self.path} is damaged: {what}. Restore a backup; if it is older than "
            "what was published, write the difference off (streamdp journal write-off)"
        )

    def knows(self, message: Message) -> bool:
        """True when these very bytes were stored here once, however long ago."""
        return bool(self.rows("SELECT 1 FROM messages WHERE sha256 = ? LIMIT 1", message_digest(message)))

    # Jobs

    def jobs(self) -> list[Job]:
        """Every job and refused request, in the order they were decided on, without results."""
        return self._jobs(self.rows(f"SELECT {_JOB_COLUMNS}, NULL FROM jobs ORDER BY number"))

    def job(self, job_id: str) -> Job | None:
        """The job of that id, or the newest refused request with it; without its result."""
        newest = "WHERE id = ? ORDER BY state = 'refused', number DESC LIMIT 1"
        rows = self.rows(f"SELECT {_JOB_COLUMNS}, NULL FROM jobs {newest}", job_id)
        return self._jobs(rows)[0] if rows else None

    def jobs_under_way(self) -> list[Job]:
        """Jobs that are open, or whose outcome was not published yet, with their results."""
        query = f"SELECT {_JOB_COLUMNS}, result FROM jobs WHERE published_at IS NULL ORDER BY number"
        return self._jobs(self.rows(query))

    def _jobs(self, rows: Iterable[tuple[Any, ...]]) -> list[Job]:
        with self._readable("a job"):
            return [_job(row) for row in rows]

    def job_ids(self) -> set[str]:
        """The ids of all jobs that were ever admitted."""
        return {job_id for (job_id,) in self.rows("SELECT id FROM jobs WHERE state != 'refused'")}

    def jobs_position(self) -> int | None:
        """Where to read on in the topic of requests; None before it was looked at."""
        found = self._meta().get("jobs_position")
        return None if found is None else int(found)

    # For verify and backup

    @contextmanager
    def one_commit(self) -> Iterator[None]:
        """Let everything read inside see the same commit."""
        if self._connection.in_transaction:
            yield
            return
        with clear_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                with suppress(sqlite3.Error):  # nothing was written; damage is reported by whoever met it
                    self._connection.execute("COMMIT")

    def copy_into(self, target: sqlite3.Connection) -> None:
        """Copy every page as of one commit. What SQLite raises may be about either file: the caller explains it."""
        self._connection.backup(target)

    def rows(self, query: str, *values: Any) -> list[Any]:
        with clear_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def each(self, query: str, *values: Any) -> Iterator[Any]:
        """The rows one by one, where there may be too many to hold."""
        with clear_errors(self.path):
            cursor = self._connection.execute(query, values)
            while rows := cursor.fetchmany(1_000):
                yield from rows

    # Inside

    def _meta(self) -> dict[str, Any]:
        return dict(self.rows("SELECT name, value FROM meta"))

    def _last_time_point(self) -> int:
        return int(self.rows("SELECT coalesce(max(time_point), 0) FROM points")[0][0])


_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
_JOB_COLUMNS = "id, kind, epsilon, params, state, time_point, reason, published_at, amounts"
MESSAGES = "SELECT sequence, time_point, topic, partition, key, value, timestamp, headers, sha256 FROM messages"


def unsettled(terms: Terms) -> int:
    """How many of the newest time points may still be charged, at least."""
    return max(terms.points, _LEAST_UNSETTLED)


def stored_message(row: tuple[Any, ...]) -> StoredMessage:
    sequence, time_point, topic, partition, key, value, timestamp, headers, sha256 = row
    named = tuple((name, bytes.fromhex(text)) for name, text in json.loads(headers))
    message = Message(topic=topic, value=value, key=key, timestamp=timestamp, headers=named, partition=partition)
    return StoredMessage(sequence, time_point, message, sha256)


def _job(row: tuple[Any, ...]) -> Job:
    job_id, kind, epsilon, params, state, time_point, reason, published_at, amounts, result = row
    asked, given = as_fraction(epsilon), json.loads(params)
    return Job(job_id, kind, asked, given, state, time_point, reason, result, published_at, _amounts(amounts))


def _amounts(text: str | None) -> tuple[Fraction, ...] | None:
    return None if text is None else tuple(map(as_fraction, json.loads(text)))


def decompressed(compressed: bytes, cells: int) -> Counts | None:
    """The counts of a release; None when these are not the bytes of so many cells."""
    try:
        raw = zstandard.ZstdDecompressor().decompress(compressed, max_output_size=8 * cells)
    except zstandard.ZstdError:
        return None
    return np.frombuffer(raw, dtype="<i8").astype(np.int64) if len(raw) == 8 * cells else None


def _cut(text: str) -> Cut:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in json.loads(text).items()
        for partition, offset in offsets.items()
    }
