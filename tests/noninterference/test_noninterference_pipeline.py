"""With every mechanism's answer fixed, two datasets cause the same calls, charges, states and bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answering import AnsweringSource
from datasets import PAIRS, POINT_MS, Dataset, crowd, nobody

from streamdp import messages
from streamdp.config import load
from streamdp.engine import Action, Charge, Engine, Plan, PointClosed, Publish, SaveState, StoreRelease
from streamdp.pipeline import Pipeline
from streamdp.privacy import Ledger
from streamdp.strategies import Decision, StreamStrategy
from streamdp.transport.batch import Blobs, RecordBatch

CONFIG = """\
[stream]
name = "clinic"

[domain.ward]
type = "categorical"
values = ["north", "south", "east", "west"]

[domain.age]
type = "integer"
low = 0
high = 99
bins = 20

[input]
topics = ["visits"]
{record_id}
[input.log]
path = "log"

[time]
length = "1s"
skew = "1h"
{expiry}

[privacy]
epsilon = "1"
{guarantee}
{records}

[output]
format = "{encoding}"

[[histogram]]
name = "wards"
attributes = ["ward"]
share = "0.5"
{strategy}

[[histogram]]
name = "ages"
attributes = ["ward", "age"]
share = "0.5"
{strategy}
"""
WINDOW, HORIZON = "window = 8", "horizon = 40"
POINTS = 40


@dataclass(frozen=True)
class Case:
    """A configuration, and what happens to the stream besides its data."""

    strategy: str
    guarantee: str = WINDOW
    expiry: str = ""
    record_id: str = ""
    records: str = ""
    encoding: str = "json"
    points: int = POINTS
    missed: frozenset[int] = frozenset({4, 17, 18})
    restarts: frozenset[int] = frozenset({3, 9, 10, 26})
    kinds: frozenset[str] = frozenset({"release", "repeat"})
    """Kinds of messages, and reasons, that must come up, or the case shows little."""

    def text(self) -> str:
        names = ("strategy", "guarantee", "expiry", "record_id", "records", "encoding")
        return CONFIG.format(**{name: getattr(self, name) for name in names})


def strategy(kind: str, *parameters: str, method: str = "laplace", more: str = "") -> str:
    lines = [f'strategy = "{kind}"', f'method = "{method}"', more, "[histogram.parameters]" if parameters else ""]
    return "\n".join([*lines, *parameters])


DISTANCE = ("releases = 4", "threshold = 20")
FORECASTS = frozenset({"release", "repeat", "forecast"})
ASKED = frozenset({"above", "below"})
CASES = {
    "auto, window": Case(strategy("auto"), "window = 30", points=80, kinds=FORECASTS | ASKED),
    "auto, horizon": Case(strategy("auto"), "horizon = 80", points=80, kinds=FORECASTS | ASKED),
    "auto, no negatives": Case(strategy("auto", more='post = ["nonnegative"]'), "window = 30", points=80),
    "baseline": Case(strategy("baseline"), kinds=frozenset({"release"})),
    "fixed, window": Case(strategy("fixed", "interval = 3")),
    "fixed, horizon": Case(strategy("fixed", "interval = 3"), HORIZON),
    "dsft": Case(strategy("dsft", *DISTANCE), HORIZON, kinds=ASKED),
    "dsat": Case(strategy("dsat", *DISTANCE, "burn_in = 4"), HORIZON, kinds=ASKED),
    "dsat_w": Case(strategy("dsat_w", *DISTANCE), kinds=ASKED),
    "bd": Case(strategy("bd"), kinds=ASKED),
    "ba": Case(strategy("ba"), kinds=ASKED),
    "several records a user": Case(
        strategy("dsat_w", *DISTANCE), record_id='record_id = "visit"', records="records_per_user = 3"
    ),
    "records expire": Case(strategy("auto"), expiry="expire_after = 3"),
    "arrow": Case(strategy("auto"), encoding="arrow"),
} | {
    method: Case(strategy("fixed", "interval = 2", method=method))
    for method in ("efpa", "hierarchical", "merged", "php", "privelet", "psd")
}


class NoLetters:
    def write(self, batch: RecordBatch, decoded: Any) -> None:
        pass


@dataclass
class Run:
    """What one dataset caused."""

    asked: list[Any]
    actions: list[Any] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    exact: list[tuple[int, ...]] = field(default_factory=list)
    """The true counts, point by point: what must not be seen in the rest."""


def run(case: Case, dataset: Dataset, directory: Path) -> Run:
    path = directory / "clinic.toml"
    path.write_text(case.text())
    config, source = load(path), AnsweringSource()
    ledger = Ledger(config.terms)
    for histogram in config.histogram:
        ledger.reserve(histogram.name, config.share(histogram), histogram.strategy)
    result = Run(source.asked)
    states: dict[str, Any] = {}
    releases: dict[str, StoreRelease] = {}
    population, offset = None, 0
    pipeline: Pipeline | None = None
    for time_point in range(1, case.points + 1):
        if pipeline is None or time_point in case.restarts:
            pipeline = Pipeline(
                config,
                journal_id="0123456789abcdef",
                digest_key=bytes(16),
                ledger=ledger,
                dead_letters=NoLetters(),
                population=population,
                last_point=time_point - 1,
                states=states,
                last_releases=releases,
                source=source,
            )
            population = pipeline.population
        rows = list(dataset(time_point))
        if case.record_id:
            rows = [(key, value and value.replace(b'"age"', b'"visit": %d, "age"' % time_point)) for key, value in rows]
        batch = RecordBatch(
            "visits",
            0,
            np.arange(offset, offset + len(rows), dtype=np.int64),
            np.full(len(rows), POINT_MS * time_point, np.int64),
            Blobs.from_list([key for key, _ in rows]),
            Blobs.from_list([value for _, value in rows]),
        )
        offset += len(rows)
        pipeline.feed(batch, time_point, None)
        opened, closed = POINT_MS * (time_point - 1), POINT_MS * time_point
        actions = pipeline.close(PointClosed(time_point, opened, closed, time_point in case.missed))
        charges = [action for action in actions if isinstance(action, Charge)]
        ledger.book(charges)
        for action in actions:
            if isinstance(action, SaveState):
                states[action.histogram] = action.state
            elif isinstance(action, StoreRelease):
                releases[action.histogram] = action
            elif isinstance(action, Publish) and action.topic.endswith(".releases"):
                header = messages.decode(action.value).header
                result.kinds.update([header["kind"], header.get("reason", "")])
        result.actions += map(plain, actions)
        result.exact.append(tuple(pipeline.population.counts("ages").tolist()))
    return result


def plain(action: Action) -> Any:
    """The action as something that can be compared; states include the dictated threshold noise."""
    return replace(action, counts=tuple(action.counts.tolist())) if isinstance(action, StoreRelease) else action


def compare(case: Case, pair: tuple[Dataset, Dataset], tmp_path: Path) -> tuple[Run, Run]:
    one, other = (run(case, dataset, tmp_path) for dataset in pair)
    assert one.exact != other.exact
    assert set(one.kinds) >= case.kinds
    assert one.asked == other.asked
    for here, there in zip(one.actions, other.actions, strict=True):
        assert here == there
    return one, other


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", CASES)
def test_nothing_but_the_answers_decides_what_leaves(name: str, pair: str, tmp_path: Path) -> None:
    compare(CASES[name], PAIRS[pair], tmp_path)


def threshold_peeks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published threshold plus the true count mod 7."""
    step = StreamStrategy.step

    def peeking(self: StreamStrategy, counts: Any) -> Decision:
        decision = step(self, counts)
        return replace(decision, threshold=(decision.threshold or 0) + int(counts.sum()) % 7)

    monkeypatch.setattr(StreamStrategy, "step", peeking)


def forecast_peeks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast plus the parity of a count."""
    step = StreamStrategy.step

    def peeking(self: StreamStrategy, counts: Any) -> Decision:
        decision = step(self, counts)
        return replace(decision, counts=decision.counts + counts[0] % 2) if decision.kind == "forecast" else decision

    monkeypatch.setattr(StreamStrategy, "step", peeking)


def header_peeks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of the header that follows a count."""
    header = Engine._header

    def peeking(self: Engine, plan: Plan, *rest: Any) -> dict[str, Any]:
        return {**header(self, plan, *rest), "busy": bool(self._counts[plan.name].sum() > 150)}

    monkeypatch.setattr(Engine, "_header", peeking)


@pytest.mark.parametrize("peek", [threshold_peeks, forecast_peeks, header_peeks])
def test_what_peeks_is_seen(peek: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peek(monkeypatch)
    with pytest.raises(AssertionError):
        compare(CASES["auto, window"], PAIRS["growing against shrinking"], tmp_path)


@pytest.mark.slow
def test_a_million_users_are_as_quiet_as_none(tmp_path: Path) -> None:
    def a_million(time_point: int):
        return crowd(time_point, 1_000_000) if time_point == 1 else crowd(time_point)

    compare(replace(CASES["auto, window"], points=12, kinds=frozenset({"release"})), (nobody, a_million), tmp_path)
