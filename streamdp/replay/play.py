"""Playing a trace through the real pipeline, and measuring the releases against the truth.

The pipeline is the daemon's own, to the byte. What differs around it: the ledger lives in memory, dead letters are only
counted, and nothing is published. The trace's budget is not spent: whoever shows the result to others shows truth.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from streamdp import messages
from streamdp.arrays import Counts
from streamdp.config import StreamConfig
from streamdp.config.histograms import HistogramSection
from streamdp.domain import View
from streamdp.engine import Action, Charge, PointClosed, Publish
from streamdp.errors import ConfigurationError
from streamdp.ingest import Decoded, Reason
from streamdp.pipeline import Pipeline
from streamdp.privacy import InsecureSeededSource, Ledger, NoiseSource
from streamdp.privacy.exact import to_text
from streamdp.replay.queries import QUERIES, RangeQueries, errors
from streamdp.replay.reader import TraceReader
from streamdp.replay.result import HistogramResult, ReplayResult, l1_distance
from streamdp.replay.timeline import Timeline
from streamdp.replay.trace import longest_line
from streamdp.strategies.statistic import L1Distance
from streamdp.transport.batch import RecordBatch

# A replay belongs to no journal. Any fixed values do: neither influences what is counted or decided.
JOURNAL_ID = "0" * 32
DIGEST_KEY = bytes(16)
_KEPT_POINTS = 1_024

OnPoint = Callable[[PointClosed, Sequence[Action], Pipeline], None]


class Tally:
    """Takes the place of the dead letters: counts them."""

    def __init__(self) -> None:
        self.messages = 0
        self.dropped = 0
        self.reasons: Counter[Reason] = Counter()

    def write(self, batch: RecordBatch, decoded: Decoded) -> None:
        self.messages += len(batch)
        self.dropped += len(decoded.dropped_rows)
        self.reasons.update(decoded.rejected_by_reason())

    def by_name(self) -> dict[str, int]:
        return {reason.name.lower(): self.reasons[reason] for reason in sorted(self.reasons)}


class Player:
    """One trace, one configuration, one pipeline."""

    def __init__(
        self,
        config: StreamConfig,
        trace: TraceReader,
        *,
        journal_id: str = JOURNAL_ID,
        digest_key: bytes = DIGEST_KEY,
        source: NoiseSource | None = None,
    ) -> None:
        self.config = config
        self.tally = Tally()
        self.ledger = Ledger(config.terms)
        for histogram in config.histogram:
            self.ledger.reserve(histogram.name, config.share(histogram) * config.epsilon, histogram.strategy)
        self.pipeline = Pipeline(
            config,
            journal_id=journal_id,
            digest_key=digest_key,
            ledger=self.ledger,
            dead_letters=self.tally,
            source=source,
        )
        self.timeline = Timeline(trace, self.pipeline)

    def play(self) -> Iterator[tuple[PointClosed, list[Action]]]:
        """Every point with what the engine wants done, booked in the ledger; ends with the trace or the horizon."""
        for event in self.timeline.points():
            actions = self.pipeline.close(event)
            self.ledger.book(action for action in actions if isinstance(action, Charge))
            self.ledger.settle(event.time_point - max(self.ledger.terms.points, _KEPT_POINTS))
            yield event, actions
            if self.pipeline.engine.ended:
                return


def open_trace(path: str | Path, config: StreamConfig, *, skip_bad: bool = False) -> TraceReader:
    """A trace as this configuration reads it."""
    topics = config.input.topics
    longest = longest_line(config.input.max_record_bytes)
    return TraceReader(path, topics[0], frozenset(topics), skip_bad=skip_bad, max_line_bytes=longest)


def seeded(seed: int | None) -> NoiseSource | None:
    if seed is None:
        return None
    if seed < 0:
        raise ConfigurationError("--seed is 0 or more")
    return InsecureSeededSource(seed)


def replay(
    config: StreamConfig,
    trace: TraceReader,
    *,
    seed: int | None = None,
    queries: int = QUERIES,
    on_point: OnPoint | None = None,
) -> ReplayResult:
    """Plays a whole trace and measures every point. `on_point` sees each one, for progress and for pace."""
    began = time.monotonic()
    player = Player(config, trace, source=seeded(seed))
    measures = [
        _Measure(player, histogram, view, queries)
        for histogram, view in zip(config.histogram, player.pipeline.views, strict=True)
    ]
    clock = "marks" if trace.has_marks() else "event"
    result = ReplayResult(
        stream=config.name,
        trace=trace.name,
        guarantee="none" if clock == "event" else measures[0].result.guarantee,
        clock=clock,
        seed=seed,
        histograms=[measure.result for measure in measures],
    )
    for event, actions in player.play():
        result.time_points.append(event.time_point)
        result.opened.append(event.opened_ts)
        result.closed.append(event.closed_ts)
        for measure in measures:
            measure.take(event.time_point, actions)
        result.records.append(measures[0].records)
        if on_point is not None:
            on_point(event, actions, player.pipeline)
    for measure in measures:
        measure.finish()
    result.messages = player.tally.messages
    result.rejected = player.tally.by_name()
    result.dropped = player.tally.dropped
    result.bad_lines = trace.bad_lines
    result.ended = player.pipeline.engine.ended
    result.seconds = time.monotonic() - began
    return result


class _Measure:
    """One histogram against its truth."""

    def __init__(self, player: Player, histogram: HistogramSection, view: View, queries: int) -> None:
        self._player, self._view = player, view
        self._queries = RangeQueries(view.shape, queries)
        self._distance = L1Distance(view.cells, getattr(histogram.parameters, "groups", None))
        self._held: Counts | None = None
        self._answered = np.zeros(self._queries.count, np.int64)
        self._spent = Fraction(0)
        self._truth: Counts = np.zeros(view.cells, np.int64)
        self.result = HistogramResult(
            name=view.name,
            strategy=histogram.strategy,
            guarantee=player.pipeline.engine.plans[view.name].strategy.guarantee,
            view=view.describe(),
            shape=view.shape,
            axis_labels=view.axis_labels,
            epsilon=to_text(player.config.share(histogram) * player.config.epsilon),
            queries=self._queries.count,
        )

    @property
    def records(self) -> int:
        return int(self._truth.sum())

    def take(self, time_point: int, actions: Sequence[Action]) -> None:
        """The point as it closed, and what was made of it."""
        name, result = self._view.name, self.result
        truth = self._truth = self._player.pipeline.population.counts(name)
        result.distances.append(None if self._held is None else self._distance.between(truth, self._held))
        published = self._published(actions)
        header = published[0].header
        result.kinds.append(header["kind"])
        result.reasons.append(header["reason"])
        result.thresholds.append(None if header["threshold"] is None else float(Fraction(header["threshold"])))
        whole = messages.join_parts(message for message in published if message.counts is not None)
        if whole is not None and whole.counts is not None:
            self._held = whole.counts
            self._answered = self._queries.answers(whole.counts)
        for action in actions:
            if isinstance(action, Charge) and action.owner == name:
                self._spent += action.epsilon
        # Before the first release a subscriber knows nothing, which is measured as if it were zeros.
        held = np.zeros_like(truth) if self._held is None else self._held
        absolute, relative = errors(self._queries.answers(truth), self._answered, self.records)
        result.absolute.append(absolute)
        result.relative.append(relative)
        result.l1.append(l1_distance(held, truth))
        result.epsilon_spent.append(float(self._player.ledger.spent(time_point, name)))
        result.epsilon_left.append(float(Fraction(header["epsilon_left"])))

    def _published(self, actions: Sequence[Action]) -> list[messages.Decoded]:
        """What subscribers read of the histogram at a point."""
        topic, key = self._player.pipeline.engine.topics.releases, self._view.name.encode()
        return [
            messages.decode(action.value)
            for action in actions
            if isinstance(action, Publish) and (action.topic, action.key) == (topic, key)
        ]

    def finish(self) -> None:
        self.result.total_spent = to_text(self._spent)
        self.result.true_counts = self._truth.tolist()
        self.result.released_counts = [] if self._held is None else self._held.tolist()
