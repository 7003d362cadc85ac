"""The traces of benchmarks/strategies.py: made once into a folder, read once, then an array of true counts each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import strategies_made as made
import strategies_real as real

from streamdp.cli._progress import Progress
from streamdp.config import load
from streamdp.replay.generate import SCENARIOS, Scenario
from streamdp.replay.play import open_trace
from streamdp.replay.queries import QUERIES
from streamdp.replay.truth import Truth, truths

SEED = 1


@dataclass(frozen=True)
class Source:
    """A trace and the one histogram of it that is measured (the first when none is named)."""

    scenario: Scenario
    users: int
    points: int
    histogram: str | None = None
    moving: bool = True
    label: str = ""
    """Its name here, where that is not the scenario's."""

    @property
    def name(self) -> str:
        return self.label or self.scenario.name

    def truth(self, folder: Path) -> Truth:
        """Made, or as it was made before. FOLDER/NAME.jsonl.zst and .toml are for `streamdp compare` too."""
        place = folder / f"{self.scenario.name}-{self.users}-{self.points}"
        place.mkdir(parents=True, exist_ok=True)
        trace, settings = place / "trace.jsonl.zst", place / "config.toml"
        ready = place / "ready"
        if not ready.exists():
            trace.unlink(missing_ok=True)
            with Progress(f"{self.name}: making", self.points) as progress:
                self.scenario.write(trace, self.users, self.points, SEED, progress.at)
            settings.write_text(self.scenario.configuration(self.users, self.points), encoding="utf-8")
        config = load(settings)
        section = next(one for one in config.histogram if self.histogram in (None, one.name))
        shape = next(view.shape for view in config.build_views() if view.name == section.name)
        if ready.exists():
            return Truth.load(place, shape, QUERIES)
        with open_trace(trace, config) as reader, Progress(f"{self.name}: reading", self.points) as progress:
            (truth,) = truths(config, reader, histograms=[section.name], on_point=progress.at).values()
        truth.save(place)
        ready.touch()
        return truth


def sources(data: Path, peer: str | None) -> list[Source]:
    """The five fixtures at sizes that tell strategies apart, real data, and made-up ones of other kinds."""
    fixtures = SCENARIOS
    return [
        Source(fixtures["taxi"], 20_000, 336),
        Source(fixtures["census"], 50_000, 300, "people"),
        Source(fixtures["outbreak"], 20_000, 300),
        Source(fixtures["churn"], 10_000, 300, "plan_by_hours"),
        Source(fixtures["hostile"], 1_000, 200, "colour_by_level"),
        Source(real.flu(data), 50_000, real.FLU_WEEKS),
        _as_is(made.REGIMES),
        _as_is(made.DRIFT),
        _as_is(made.SEASONS),
        _as_is(made.LARGE),
        _as_is(made.STILL, moving=False),
        _as_is(made.STILL_WIDE, moving=False),
        Source(fixtures["census"], 100_000, 200, "people", label="census_wide"),
        _as_is(real.flights(peer)),
        _as_is(made.LAUNCH),
        _as_is(real.workers(peer)),
        _as_is(made.CROWDS),
        _as_is(real.departures(peer)),
        _as_is(made.NETWORK),
        _as_is(real.riders(peer)),
        _as_is(made.WARDS),
        _as_is(real.swabs(peer)),
        _as_is(made.VERSIONS),
    ]


QUICK = ("taxi", "outbreak", "flu", "regimes", "still")


def held_out(peer: str | None) -> list[Source]:
    """Kept apart while a strategy is worked on; measured last and once."""
    return [_as_is(real.stops(peer)), _as_is(made.PARKING)]


def _as_is(scenario: Scenario, moving: bool = True) -> Source:
    return Source(scenario, scenario.users, scenario.points, moving=moving)


def digest(truth: Truth) -> str:
    """Which truth results belong to."""
    return hashlib.sha256(np.ascontiguousarray(truth.counts).tobytes()).hexdigest()[:16]
