"""Is a journal whole, and does it keep its own promises?"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

from streamdp.journal import chain
from streamdp.journal.contents import counts_digest, message_digest
from streamdp.journal.errors import JournalCorrupted
from streamdp.journal.reader import JournalReader, decompressed
from streamdp.privacy.exact import as_fraction, decimal_text


def verify(path: str | Path) -> list[str]:
    """The problems found, empty when there are none; works beside a running daemon.

    Checks the file's pages and access, that time points follow each other, that charges and records fit the ledger's
    terms in every window of its history (decisions in every window that a sparse vector meets), that every release has
    its entry and every job its one charge, that stored bytes match their hashes, and that all of it was chained.
    Raises JournalError when the file cannot be read as a journal at all.
    """
    problems = _access(Path(path).resolve())  # before opening, which may create files beside it
    with JournalReader.open(path) as journal, journal.one_commit():
        try:
            pages = [text for (text,) in journal.rows("PRAGMA integrity_check") if text != "ok"]
        except JournalCorrupted as error:
            pages = [str(error)]
        if pages:
            return [*problems, *(f"damaged pages: {text}" for text in pages)]
        for check in (_ledger, _windows, _points, _releases, _messages, _jobs, chain.problems):
            try:
                problems += check(journal)
            except JournalCorrupted as error:
                problems.append(str(error))
        return problems


def _access(path: Path) -> list[str]:
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", ".lock", ".reading")]
    shared = [file.name for file in files if file.exists() and file.stat().st_mode & 0o77]
    return [f"{name} is open to others; chmod 600 it" for name in shared]


def _ledger(journal: JournalReader) -> list[str]:
    journal.read_ledger(whole=True)
    known = journal.rows("SELECT coalesce(max(time_point), 0) FROM points")[0][0]
    late = journal.rows("SELECT count(*) FROM charges WHERE time_point > ?", known)[0][0]
    return [f"{late} charges lie beyond the last time point"] if late else []


def _windows(journal: JournalReader) -> list[str]:
    """The cost of every window, counted again from single entries.

    A release costs the windows that hold its point. The decisions of one sparse vector cost every window that meets it,
    from its first question to the "above" that ends it; the ledger books them at the first question.
    """
    length, last = journal.terms.points, journal.last_time_point
    problems = []
    for owner, limit in journal.rows("SELECT owner, epsilon FROM reservations"):
        changes: dict[int, Fraction] = defaultdict(Fraction)
        above = journal.rows("SELECT time_point FROM releases WHERE histogram = ? AND reason = 'above'", owner)
        ends = sorted(point for (point,) in (*above, *journal.rows("SELECT known FROM write_offs"), (last,)))
        for begin, epsilon, purpose in journal.rows(
            "SELECT time_point, epsilon, purpose FROM charges WHERE owner = ? AND counted = 0", owner
        ):
            end = ends[min(bisect_left(ends, begin), len(ends) - 1)] if purpose == "decisions" else begin
            changes[begin] += as_fraction(epsilon)
            changes[end + length] -= as_fraction(epsilon)
        cost = Fraction(0)
        for point in sorted(changes):
            cost += changes[point]
            if cost > as_fraction(limit):
                problems.append(
                    f"{owner!r} reserved epsilon {decimal_text(as_fraction(limit))}, but the window that ends with "
                    f"time point {point} cost {decimal_text(cost)}"
                )
                break
    return problems


def _points(journal: JournalReader) -> list[str]:
    problems = []
    expected = 1
    for point in journal.points():
        if point.first != expected:
            problems.append(f"time point {expected} is missing")
        expected = point.time_point + 1
    return problems


def _releases(journal: JournalReader) -> list[str]:
    unpaid = journal.rows(
        "SELECT histogram, time_point FROM releases AS r WHERE NOT EXISTS (SELECT 1 FROM charges AS c"
        " WHERE c.time_point = r.time_point AND c.owner = r.histogram AND c.counted = 0)"
    )
    problems = [f"the release of {name!r} at time point {time_point} has no entry" for name, time_point in unpaid]
    newest = "SELECT histogram, cells, counts, sha256 FROM releases WHERE counts IS NOT NULL"
    for name, cells, counts, sha256 in journal.rows(newest):
        whole = decompressed(counts, cells)
        if whole is None or counts_digest(whole) != sha256:
            problems.append(f"the counts of the last release of {name!r} are damaged")
    return problems


def _messages(journal: JournalReader) -> list[str]:
    problems = []
    for (time_point,) in journal.rows("SELECT DISTINCT time_point FROM messages WHERE status != 'pruned'"):
        for stored in journal.messages(time_point):
            if message_digest(stored.message) != stored.sha256:
                problems.append(f"message {stored.sequence} of time point {time_point} does not match its hash")
    return problems


def _jobs(journal: JournalReader) -> list[str]:
    wrong = journal.rows(
        "SELECT id FROM jobs AS j WHERE state != 'refused' AND (SELECT count(*) FROM charges AS c WHERE"
        " c.owner = 'job:' || j.id AND c.time_point = j.time_point AND c.epsilon = j.epsilon AND c.counted = 1"
        " AND c.amounts IS j.amounts) != 1"
    )
    unknown = journal.rows(
        "SELECT owner FROM charges WHERE counted = 1 AND owner NOT IN"
        " (SELECT 'job:' || id FROM jobs WHERE state != 'refused')"
    )
    return [
        *(f"the job {job_id!r} does not have exactly one charge" for (job_id,) in wrong),
        *(f"the charge of {owner!r} belongs to no job" for (owner,) in unknown),
    ]
