"""The statements that put what happened into the journal's tables, inside the caller's transaction."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import zstandard

from streamdp.engine.job import Job
from streamdp.journal.contents import PointCommit, Release, counts_digest, message_digest
from streamdp.population.levels import LevelTable
from streamdp.privacy.exact import to_text
from streamdp.privacy.ledger import Charge
from streamdp.transport.base import Message, TopicPartition


def store_point(connection: sqlite3.Connection, point: PointCommit) -> None:
    connection.execute(
        "INSERT INTO points (time_point, first, opened_ts, closed_ts, cut, epochs, status)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            point.time_point,
            point.time_point if point.first is None else point.first,
            point.opened_ts,
            point.closed_ts,
            _cut_text(point.cut),
            _cut_text(point.epochs),
            point.status,
        ),
    )
    store_charges(connection, point.charges)
    connection.executemany(
        "INSERT OR REPLACE INTO engine_state VALUES (?, ?, ?)",
        (_state_row(name, state) for name, state in point.engine_state.items()),
    )
    for release in point.releases:
        _store_release(connection, point.time_point, release)
    store_messages(connection, point.time_point, point.messages)
    store_jobs(connection, point.jobs, point.jobs_position)


def store_charges(connection: sqlite3.Connection, charges: Sequence[Charge]) -> None:
    connection.executemany(
        "INSERT INTO charges (time_point, owner, epsilon, purpose, counted, amounts) VALUES (?, ?, ?, ?, ?, ?)",
        ((c.time_point, c.owner, to_text(c.epsilon), c.purpose, c.counted, _amounts_text(c.amounts)) for c in charges),
    )


def store_messages(connection: sqlite3.Connection, time_point: int, messages: Sequence[Message]) -> None:
    connection.executemany(
        "INSERT INTO messages (time_point, topic, partition, key, value, timestamp, headers, sha256, status)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'stored')",
        (_message_row(time_point, message) for message in messages),
    )


def store_jobs(connection: sqlite3.Connection, jobs: Sequence[Job], position: int | None) -> None:
    connection.executemany(
        "INSERT INTO jobs (id, kind, epsilon, params, state, time_point, reason, result, published_at, amounts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) WHERE state != 'refused' DO UPDATE SET"
        " state = excluded.state, reason = excluded.reason, result = excluded.result,"
        " published_at = excluded.published_at, amounts = coalesce(excluded.amounts, amounts)",
        (
            (
                job.job_id,
                job.kind,
                to_text(job.epsilon),
                json.dumps(dict(job.params)),
                job.state,
                job.time_point,
                job.reason,
                job.result,
                job.published_at,
                _amounts_text(job.amounts),
            )
            for job in jobs
        ),
    )
    if position is not None:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('jobs_position', ?)", (position,))


def store_preferences(connection: sqlite3.Connection, table: LevelTable) -> None:
    digests = np.ascontiguousarray(table.users, "<u8").view("V16")[:, 0]
    connection.executemany(
        "INSERT OR REPLACE INTO preferences VALUES (?, ?)",
        zip((digest.tobytes() for digest in digests), table.levels.tolist(), strict=True),
    )


def _amounts_text(amounts: Sequence[Fraction] | None) -> str | None:
    return None if amounts is None else json.dumps([to_text(amount) for amount in amounts])


def _store_release(connection: sqlite3.Connection, time_point: int, release: Release) -> None:
    counts = np.ascontiguousarray(release.counts, dtype="<i8")
    connection.execute(
        "UPDATE releases SET counts = NULL WHERE histogram = ? AND counts IS NOT NULL", (release.histogram,)
    )
    connection.execute(
        "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            release.release_id,
            release.histogram,
            time_point,
            counts.size,
            release.reason,
            counts_digest(counts),
            zstandard.ZstdCompressor(level=1).compress(counts.data.cast("B")),
        ),
    )


def _state_row(name: str, state: Mapping[str, Any]) -> tuple[str, str, bytes]:
    text = json.dumps(state, separators=(",", ":"))
    return name, text, hashlib.sha256(text.encode()).digest()


def _message_row(time_point: int, message: Message) -> tuple[Any, ...]:
    headers = json.dumps([[name, value.hex()] for name, value in message.headers])
    return (
        time_point,
        message.topic,
        message.partition,
        message.key,
        message.value,
        message.timestamp,
        headers,
        message_digest(message),
    )


def _cut_text(cut: Mapping[TopicPartition, int] | None) -> str | None:
    return None if cut is None else json.dumps(cut_fields(cut), separators=(",", ":"))


def cut_fields(cut: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in cut.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics
