"""What a worker process does: map the snapshot, run the job, give its result back as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamdp import result_messages
from streamdp.jobs.catalogue import KINDS
from streamdp.population import Snapshot


def run(kind: str, epsilon: Fraction, params: Mapping[str, Any], snapshot: Path) -> bytes:
    """Spends `epsilon`, which is charged already, with the operating system's randomness."""
    chosen = KINDS[kind]
    output = chosen.run(chosen.parameters.model_validate(dict(params)), epsilon, Snapshot.open(snapshot))
    rows = [] if output.rows is None else result_messages.encode_rows(output.rows)
    return result_messages.pack(output.result, rows)
