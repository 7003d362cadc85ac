"""Whose the input is. Whoever reads the same input twice owns two ledgers and no guarantee, also one after the other.

A compacted topic remembers which journal owns an input topic. It lies in the input's log; where the input is Kafka,
beside the output, for a reader needs no right to write to its input. To change an entry one holds the writer of its
name, so of two daemons that begin at once one is fenced. The entry also names the identity under which its owner
publishes, so that whoever takes an input over fences a daemon that still runs, whatever other topics it reads.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from streamdp.config import StreamConfig
from streamdp.daemon.outputs import tail
from streamdp.errors import StreamdpError
from streamdp.journal import Identity
from streamdp.transport.base import Message, TopicSpec, Transport, Writer

OWNERS = "streamdp.owners"
MOST_OWNERS = 100_000


@dataclass(frozen=True)
class _Claim:
    topic: str
    key: bytes
    """The entry's, in the registry."""
    identity: str
    """Of the writer that may change the entry."""


def publishing_identity(input_identity: str) -> str:
    """Under which identity a stream publishes: the same for every daemon on the same input."""
    return "streamdp-" + _digest(input_identity)


def claim_input(
    source: Transport, target: Transport, config: StreamConfig, owner: Identity, *, take_over: bool = False
) -> list[Writer]:
    """Makes the journal the owner of its input topics; refused when one belongs to another, unless `take_over`.

    Returns what holds them against a second daemon while it is open.
    """
    registry, claims = _claims(source, target, config)
    if not take_over:
        # Before fencing anybody: a daemon that was started by mistake must not stop the right one.
        _require_free(registry, claims, owner)
    held: list[Writer] = []
    try:
        held += [registry.writer(claim.identity) for claim in claims]
        others = _owners(registry) if take_over else _require_free(registry, claims, owner)
        for claim, writer in zip(claims, held, strict=True):
            other = others.get(claim.key, {})
            if take_over and "writer" in other:
                target.writer(other["writer"]).close()
            mine = {"journal_id": owner.journal_id, "writer": publishing_identity(owner.input_identity)}
            if other != mine:
                writer.append([Message(OWNERS, json.dumps({"format": 1, **mine}).encode(), key=claim.key)])
    except BaseException:
        for writer in held:
            writer.close()
        raise
    return held


def other_owners(source: Transport, target: Transport, config: StreamConfig, owner: Identity) -> set[str]:
    """The ids of the journals, other than `owner`, that the input topics belong to."""
    registry, claims = _claims(source, target, config)
    owners = _owners(registry)
    return {owners.get(claim.key, {}).get("journal_id", owner.journal_id) for claim in claims} - {owner.journal_id}


def _claims(source: Transport, target: Transport, config: StreamConfig) -> tuple[Transport, list[_Claim]]:
    """Where owners are remembered, and the entries of this stream's input."""
    on_kafka = config.input.kafka is not None
    registry = target if on_kafka else source
    registry.ensure_topics([TopicSpec(OWNERS, cleanup="compact")])
    return registry, [_claim(source, topic, on_kafka) for topic in sorted(config.input.topics)]


def _claim(source: Transport, topic: str, on_kafka: bool) -> _Claim:
    if not on_kafka:
        return _Claim(topic, topic.encode(), f"reader-of-{topic}")
    key = json.dumps([source.cluster_id(), topic, source.topic_id(topic)])
    return _Claim(topic, key.encode(), "streamdp-reader-" + _digest(key))


def _owners(registry: Transport) -> dict[bytes | None, dict[str, str]]:
    entries = {message.key: json.loads(message.value or b"{}") for message in tail(registry, OWNERS, MOST_OWNERS)}
    return {
        key: {name: value for name, value in entry.items() if name in ("journal_id", "writer")}
        for key, entry in entries.items()
    }


def _require_free(registry: Transport, claims: list[_Claim], owner: Identity) -> dict[bytes | None, dict[str, str]]:
    owners = _owners(registry)
    for claim in claims:
        journal_id = owners.get(claim.key, {}).get("journal_id", owner.journal_id)
        if journal_id != owner.journal_id:
            raise StreamdpError(
                f"the input topic {claim.topic!r} belongs to another journal, {journal_id[:12]}: a second ledger over "
                "the same data would spend its budget twice. Give that journal's path in [journal], or, if it is lost, "
                "`streamdp journal write-off`"
            )
    return owners


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
