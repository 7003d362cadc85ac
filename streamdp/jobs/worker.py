"""What a worker process does: map the snapshot, run the job, give its result back as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamdp import result_messages
from streamdp.jobs.catalogue import KINDS
from streamdp.population import Snapshot


def run(
    kind: str,
    epsilon: Fraction,
    params: Mapping[str, Any],
    snapshot: Path,
    amounts: tuple[Fraction, ...] | None = None,
) -> bytes:
    """Spends `epsilon`, or `amounts` by level, which are charged already, with the operating system's randomness."""
    chosen = KINDS[kind]
    parameters, data = chosen.parameters.model_validate(dict(params)), Snapshot.open(snapshot)
    if chosen.run_by_level is not None:
        assert amounts is not None  # it was charged by level
        output = chosen.run_by_level(parameters, amounts, data)
    else:
        assert chosen.run is not None  # a kind has one or the other
        output = chosen.run(parameters, epsilon, data)
    rows = [] if output.rows is None else result_messages.encode_rows(output.rows)
    return result_messages.pack(output.result, rows)
