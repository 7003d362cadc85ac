"""The journal's one writer.

**Charge, then store the exact bytes, then publish.** Everything a time point did (charges, engine state with its secret
threshold noise, released counts, message bytes, the cut) is one SQLite transaction that is on disk, fsynced, before
anything is published. A restart publishes stored bytes and never draws again. So a crash may lose unspent budget, and
can never spend it twice; and no release exists that the ledger does not know.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from streamdp.journal import chain, schema
from streamdp.journal.contents import JobsCommit, Opening, PointCommit
from streamdp.journal.errors import JournalError, JournalMismatch, clear_errors
from streamdp.journal.lock import WriterLock
from streamdp.journal.reader import JournalReader, unsettled
from streamdp.journal.store import (
    cut_fields,
    store_charges,
    store_jobs,
    store_messages,
    store_point,
    store_preferences,
)
from streamdp.population.levels import LevelTable
from streamdp.privacy.exact import as_fraction, decimal_text, to_text
from streamdp.privacy.ledger import Ledger, Reservation
from streamdp.privacy.noise import NoiseSource, SystemSource
from streamdp.privacy.terms import Terms
from streamdp.transport.guard import Skip

_DIGEST_KEY_BYTES = 16


class Journal(JournalReader):
    """One writer under an exclusive lock; `ledger` is what the tables say, and changes only when they do.

    Made by `create_or_open`. Use it from the thread that opened it. After a commit that failed it refuses everything:
    whether the disk kept it is known only after opening again.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: WriterLock,
        step: Callable[[str], None] | None,
        source: NoiseSource,
    ) -> None:
        super().__init__(path, connection)
        self._lock = lock
        self._source = source
        self._step = step or (lambda name: None)
        self._file = _file_of(path)
        self._failed = False
        self.ledger: Ledger = self.read_ledger()
        self._last = self._last_time_point()

    @classmethod
    def create_or_open(
        cls,
        path: str | Path,
        *,
        input_identity: str,
        output_identity: str,
        terms: Terms,
        settings: Mapping[str, Any],
        may_shorten: Collection[str] = (),
        source: NoiseSource | None = None,
        step: Callable[[str], None] | None = None,
    ) -> Journal:
        """Open the journal at `path`, or begin one; its folder exists.

        `input_identity` names the input data as its transport does (cluster and topics), because the ledger belongs to
        the data; `output_identity` the log or cluster that releases go to. `settings` (JSON values by name) do not
        change, but those in `may_shorten` may become smaller numbers, from the next point on; None is the largest.
        `step` is told the names of the steps of a commit, for crash tests. Raises JournalLocked, JournalMismatch,
        JournalCorrupted or JournalError, each of which says what to do.
        """
        resolved = Path(path).resolve()
        lock = WriterLock(resolved)
        connection = None
        try:
            with clear_errors(resolved):
                _prepare_file(resolved)
                connection = _connect(resolved)
                if schema.is_empty(connection):
                    _begin(
                        connection,
                        input_identity=input_identity,
                        output_identity=output_identity,
                        terms=json.dumps(terms.state()),
                        digest_key=(source or SystemSource()).random_bytes(_DIGEST_KEY_BYTES),
                    )
                schema.require_readable(connection, resolved)
            _require_chained(JournalReader(resolved, connection))
            journal = cls(resolved, connection, lock, step, source or SystemSource())
            journal._require_ours(input_identity, output_identity)
            journal._require_same(settings, may_shorten)
            if journal.ledger.terms != terms:
                raise JournalMismatch(f"journal {resolved} was begun under other terms; give back the old guarantee")
            return journal
        except BaseException:
            if connection is not None:
                connection.close()
            lock.release()
            raise

    def close(self) -> None:
        super().close()
        self._lock.release()

    # Writing

    def reserve(self, owner: str, epsilon: Any, purpose: str) -> Reservation:
        """Reserve for `owner`, or find the reservation made at an earlier start, which has to be the same.

        `purpose` says what the share is for with everything that may not change under it (strategy, most releases).
        """
        for held in self.ledger.reservations:
            if held.owner == owner:
                if (held.epsilon, held.purpose) != (as_fraction(epsilon), purpose):
                    raise JournalMismatch(
                        f"{owner!r} holds epsilon {decimal_text(held.epsilon)} for {held.purpose!r}, which does not "
                        "change under a ledger. Restore those settings, or use another name and a share that is left"
                    )
                return held
        if self.rows("SELECT 1 FROM charges WHERE owner = ? LIMIT 1", owner):
            raise ValueError(f"{owner!r} was charged before; a reservation needs an owner of its own")
        with self.ledger.all_or_nothing(), self._transaction("reserve") as connection:
            reservation = self.ledger.reserve(owner, epsilon, purpose)
            connection.execute(
                "INSERT INTO reservations VALUES (?, ?, ?)", (owner, to_text(reservation.epsilon), purpose)
            )
        return reservation

    def keep_settings(self, settings: Mapping[str, Any]) -> None:
        """Remember what is promised from the next time point on, once nothing about it was refused."""
        newest = self.settings(self._last + 1)
        fresh = [(name, value) for name, value in settings.items() if name not in newest or newest[name] != value]
        if fresh:
            with self._transaction("settings") as connection:
                connection.executemany(
                    "INSERT INTO settings (name, value, since) VALUES (?, ?, ?)",
                    ((name, json.dumps(value), self._last + 1) for name, value in fresh),
                )

    def record_opening(self, opening: Opening) -> None:
        """Remember how the stream began, once."""
        fields = {
            "first_open": opening.first_open,
            "length": opening.length,
            "start": cut_fields(opening.start),
            "backlog": cut_fields(opening.backlog),
            "latest_ts": opening.latest_ts,
        }
        with self._transaction("opening") as connection:
            connection.execute("INSERT INTO meta VALUES ('opening', ?)", (json.dumps(fields),))

    def commit_point(self, point: PointCommit) -> None:
        """Book, store and remember everything that the time point did, or nothing of it.

        Raises BudgetExceeded, with nothing changed, when a charge does not fit.
        """
        _require_sound(point, self._last + 1)
        with self.ledger.all_or_nothing(), self._transaction("commit") as connection:
            self.ledger.book(point.charges)
            store_point(connection, point)
        self._last = point.time_point
        keep = unsettled(self.ledger.terms)
        if self._last - self.ledger.settled_before >= 2 * keep:  # seldom, because it walks through all entries
            self.ledger.settle(self._last - keep)

    def commit_jobs(self, commit: JobsCommit) -> None:
        """Remember what happened to jobs while no time point closed; all or nothing, as a point."""
        if commit.time_point > self._last or any(charge.time_point > self._last for charge in commit.charges):
            raise ValueError("jobs belong to a time point that has closed")
        with self.ledger.all_or_nothing(), self._transaction("jobs") as connection:
            self.ledger.book(commit.charges)
            store_charges(connection, commit.charges)
            store_messages(connection, commit.time_point, commit.messages)
            store_jobs(connection, commit.jobs, commit.jobs_position)

    def keep_preferences(self, changed: LevelTable) -> None:
        """Remember users' levels, so that none rises after a restart either."""
        with self._transaction("preferences") as connection:
            store_preferences(connection, changed)

    def mark_published(self, sequences: Iterable[int]) -> None:
        """Remember that the transport has acknowledged these messages."""
        with self._transaction("mark") as connection:
            connection.executemany(
                "UPDATE messages SET status = 'published' WHERE sequence = ? AND status = 'stored'",
                ((sequence,) for sequence in sequences),
            )

    def write_off(self, until: int, reason: str) -> None:
        """Accept that outputs up to time point `until` exist that this journal does not know.

        Nobody knows what they cost, so all of it is regarded as spent: nothing may be asked before every window has
        left those points behind, and under a finite horizon never again (`ledger.resumes_at`). The points are closed,
        the engine's state is dropped (its threshold noise may have answered already), and what is stored for them is
        not published any more.
        """
        if isinstance(until, bool) or not isinstance(until, int) or until < max(1, self._last):
            raise JournalError(
                f"a write-off reaches at least to the journal's last time point, {max(1, self._last)}; "
                "name the last point that was published"
            )
        with self._transaction("write_off") as connection:
            connection.execute(
                "INSERT INTO write_offs (until, known, reason, ts) VALUES (?, ?, ?, ?)",
                (until, self._last, reason, time.time_ns() // 1_000_000),
            )
            if until > self._last:
                connection.execute(
                    "INSERT INTO points (time_point, first, status) VALUES (?, ?, 'written_off')",
                    (until, self._last + 1),
                )
            connection.execute("UPDATE messages SET status = 'abandoned' WHERE status = 'stored'")
            connection.execute("DELETE FROM engine_state")
            # Their results may be out already: running them again would answer twice.
            connection.execute(
                "UPDATE jobs SET state = 'failed', reason = 'written off', result = NULL, published_at = ?"
                " WHERE published_at IS NULL",
                (until,),
            )
        self.ledger.write_off(until)
        self._last = until

    def skip(self, skip: Skip) -> None:
        """Remember what of the input is never read again."""
        with self._transaction("skip") as connection:
            connection.execute(
                "INSERT INTO skips (topic, partition, first, last, ts) VALUES (?, ?, ?, ?, ?)",
                (*skip.name, skip.first, skip.last, time.time_ns() // 1_000_000),
            )

    def prune(self, keep_points: int) -> None:
        """Drop the bytes of messages published more than `keep_points` ago; their hashes stay, so they stay known."""
        if keep_points < 0:
            raise ValueError("the number of points to keep is not negative")
        pruned = self._meta().get("pruned_until", 0)
        oldest = self.rows("SELECT time_point FROM messages WHERE status = 'stored' ORDER BY sequence LIMIT 1")
        until = min(self._last - keep_points, oldest[0][0] - 1 if oldest else self._last)
        if until <= pruned:
            return
        with self._transaction("prune") as connection:
            connection.execute(
                "UPDATE messages SET key = NULL, value = NULL, headers = NULL, status = 'pruned'"
                " WHERE time_point > ? AND time_point <= ?",
                (pruned, until),
            )
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('pruned_until', ?)", (until,))

    # Inside

    @contextmanager
    def _transaction(self, name: str) -> Iterator[sqlite3.Connection]:
        """One transaction, all or nothing; whatever leaves its outcome in doubt makes the journal refuse the rest."""
        if self._failed:
            raise JournalError(f"journal {self.path}: an earlier step failed; stop, and start again")
        with clear_errors(self.path):
            self._require_in_place()
            self._failed = True
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                chain.extend(self, self._connection, self._source.random_bytes(chain.SALT_BYTES))
                self._step(f"{name}:written")
            except Exception as error:
                if self._connection.in_transaction:  # SQLite rolls back by itself when the disk is full
                    self._connection.execute("ROLLBACK")
                self._failed = isinstance(error, sqlite3.Error)
                raise
            self._connection.execute("COMMIT")
            self._step(f"{name}:done")
            self._failed = False

    def _require_in_place(self) -> None:
        """A journal that was moved or replaced under the daemon would take charges that the next start cannot see."""
        with suppress(FileNotFoundError):
            if _file_of(self.path) == self._file:
                return
        self._failed = True
        raise JournalError(f"journal {self.path} was moved, deleted or replaced while in use. Put it back and restart")

    def _require_ours(self, input_identity: str, output_identity: str) -> None:
        found = self.identity
        if found.input_identity != input_identity:
            raise JournalMismatch(
                f"journal {self.path} belongs to the input {found.input_identity!r}, not {input_identity!r}. "
                "A ledger belongs to its data: give that input, or the path of this input's own journal"
            )
        if found.output_identity != output_identity:
            raise JournalMismatch(
                f"journal {self.path} publishes to the log or cluster {found.output_identity!r}, not "
                f"{output_identity!r}. Only that one tells whether this is the newest copy of the journal: put the old "
                "output back"
            )

    def _require_same(self, asked: Mapping[str, Any], may_shorten: Collection[str]) -> None:
        """Refuses what may not change."""
        held = self.settings(max(1, self._last))
        for name, value in asked.items():
            if name not in held or value == held[name]:
                continue
            if name not in may_shorten:
                other = "a histogram of another name" if name.startswith("histogram.") else "other input data"
                raise JournalMismatch(
                    f"{name} is {json.dumps(held[name])} and does not change under a ledger; found "
                    f"{json.dumps(value)}. Put the old value back; another one needs {other}"
                )
            if value is None or (held[name] is not None and value > held[name]):
                raise JournalMismatch(
                    f"{name} is {json.dumps(held[name])} and may only become shorter under a ledger; found "
                    f"{json.dumps(value)}. Put the old value back, or give a smaller one"
                )


def _file_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _prepare_file(path: Path) -> None:
    """Make the file ours alone before SQLite writes a byte; its -wal and -shm files take the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        os.close(os.open(path, os.O_RDWR))  # SQLite would silently fall back to reading only
        for kept in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
            with suppress(FileNotFoundError):
                kept.chmod(kept.stat().st_mode & 0o600)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise JournalError(f"journal {path} lies on a disk without shared memory; use a local disk")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _begin(connection: sqlite3.Connection, **meta: Any) -> None:
    meta |= {"journal_id": uuid.uuid4().hex, "created_ts": time.time_ns() // 1_000_000}
    connection.execute("BEGIN IMMEDIATE")
    schema.create(connection)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    connection.execute("COMMIT")


def _require_chained(journal: JournalReader) -> None:
    """Before anything of it is used: whatever is no longer as it was written is found now."""
    with journal.one_commit():
        for problem in chain.problems(journal):
            raise journal.damaged(problem)


def _require_sound(point: PointCommit, expected: int) -> None:
    first = point.time_point if point.first is None else point.first
    if first != expected or first > point.time_point:
        raise ValueError(f"time point {expected} comes next, not {first}")
    if first != point.time_point and point.cut is not None:
        raise ValueError("only points that were missed share a row")
    if any(charge.time_point > point.time_point for charge in point.charges):
        raise ValueError("a charge is for a closed snapshot, not for a later time point")
    booked = {(charge.owner, charge.time_point) for charge in point.charges if not charge.counted}
    for release in point.releases:
        if (release.histogram, point.time_point) not in booked:
            raise ValueError(f"the release of {release.histogram!r} comes without its entry in the ledger")
