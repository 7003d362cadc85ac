"""The fixtures in `replay_fixtures/`: small traces with what a seeded replay of them must find.

`python -m streamdp.replay.fixtures` makes all of them again; a change in `expected.json` is a change of behaviour, to
be explained where it is committed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamdp.config import load
from streamdp.replay.generate import SCENARIOS
from streamdp.replay.play import open_trace, replay

FOLDER = Path("replay_fixtures")
TRACE, CONFIG, EXPECTED, README = "trace.jsonl.zst", "config.toml", "expected.json", "README.md"
SEED = 7


@dataclass(frozen=True)
class Fixture:
    name: str
    users: int
    points: int
    why: str


FIXTURES = (
    Fixture("census", 4_000, 60, "The paper's recipe, scaled down: steady updates in ten periods of different speed."),
    Fixture("taxi", 600, 168, "A daily rhythm on a grid: distance-based release has to follow it without a clock."),
    Fixture("outbreak", 10_000, 100, "Long silence, then a burst: the budget must still be there when it comes."),
    Fixture("churn", 1_200, 80, "Deletes, returns and expiry: the dataset is never the same people for long."),
    Fixture("hostile", 240, 60, "Every kind of bad record, duplicates, disorder: none may be counted wrongly."),
)


def found(folder: Path) -> dict[str, Any]:
    """What a seeded replay of the fixture finds, down to the last released count."""
    config = load(folder / CONFIG)
    with open_trace(folder / TRACE, config) as trace:
        result = replay(config, trace, seed=SEED)
    summary = result.summary()
    for histogram in result.histograms:
        figures = summary["histograms"][histogram.name]
        figures["released_at"] = [
            point for point, kind in zip(result.time_points, histogram.kinds, strict=True) if kind == "release"
        ]
        figures["true_counts_sha256"] = _digest(histogram.true_counts)
        figures["released_counts_sha256"] = _digest(histogram.released_counts)
    return summary


def _digest(counts: list[int]) -> str:
    return hashlib.sha256(np.array(counts, "<i8").tobytes()).hexdigest()


def make(fixture: Fixture, folder: Path) -> None:
    """The fixture's folder, anew."""
    folder.mkdir(parents=True, exist_ok=True)
    scenario = SCENARIOS[fixture.name]
    (folder / TRACE).unlink(missing_ok=True)
    scenario.write(folder / TRACE, fixture.users, fixture.points, SEED)
    (folder / TRACE).chmod(0o644)
    (folder / CONFIG).write_text(scenario.configuration(fixture.users, fixture.points), encoding="utf-8")
    (folder / EXPECTED).write_text(json.dumps(found(folder), indent=2) + "\n", encoding="utf-8")
    (folder / README).write_text(f"{fixture.why}\n", encoding="utf-8")


def main() -> None:
    for fixture in FIXTURES:
        make(fixture, FOLDER / fixture.name)


if __name__ == "__main__":
    main()
