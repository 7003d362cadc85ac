"""Strategies with their parameters searched in hindsight, side by side: what the best of each could have done.

Private: the result tells how far off the truth each of them is, and its parameters were chosen from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

from streamdp.config import StreamConfig
from streamdp.replay.candidates import Candidate, candidates, fitting
from streamdp.replay.compare import mean_of, plain, spread_of
from streamdp.replay.queries import QUERIES
from streamdp.replay.reader import TraceReader
from streamdp.replay.result import PRIVATE
from streamdp.replay.truth import Truth, truths
from streamdp.replay.tune.search import Effort, Parameters, Search, error_of
from streamdp.replay.tune.trials import Trials
from streamdp.strategies import STRATEGIES

VERSION = 1


@dataclass
class Tuned:
    """One strategy on one histogram, with the best parameters that were found for it."""

    histogram: str
    strategy: str
    parameters: dict[str, Any]
    absolute: float
    """The mean over runs, on draws of noise that had no part in choosing the parameters."""
    absolute_spread: float
    """The standard deviation between the runs."""
    releases: float
    tried: int
    """Different parameters that were tried."""
    chosen: float | None
    """The same error on the draws that chose; None where nothing was to choose."""
    default_parameters: dict[str, Any]
    default_chosen: float | None
    default_absolute: float
    ratio: float = 1.0
    """To the best of all strategies, tuned."""
    default_ratio: float = 1.0
    """Of the defaults to the best of all strategies, tuned."""


@dataclass
class Tuning:
    stream: str
    trace: str
    runs: int
    seed: int | None
    time_points: int
    standings: list[Tuned]

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, "private": PRIVATE, **asdict(self)}

    def of(self, histogram: str) -> list[Tuned]:
        """The strategies of a histogram, the most accurate first."""
        return sorted(
            (standing for standing in self.standings if standing.histogram == histogram),
            key=lambda standing: standing.absolute,
        )

    @property
    def histograms(self) -> list[str]:
        return list(dict.fromkeys(standing.histogram for standing in self.standings))


class Trying(NamedTuple):
    """How far the search is: what it tries now, and the part of all that is done, about."""

    histogram: str
    strategy: str
    part: float


def tune(
    config: StreamConfig,
    trace: TraceReader,
    *,
    strategies: Sequence[str] | None = None,
    runs: int = 10,
    histograms: Sequence[str] | None = None,
    seed: int | None = None,
    queries: int = QUERIES,
    processes: int = 1,
    on_point: Callable[[int], None] | None = None,
    on_trial: Callable[[Trying], None] | None = None,
) -> Tuning:
    """Tunes the strategies (all that fit, when none are named) on every histogram (or those named)."""
    kinds = strategies or fitting(config)
    fields = {
        view.name: candidates(config, section, view, kinds, {})
        for section, view in zip(config.histogram, config.build_views(), strict=True)
        if histograms is None or view.name in histograms
    }
    found = truths(config, trace, histograms=histograms, queries=queries, on_point=on_point)
    effort = Effort(choosing=runs, reporting=runs, seed=seed)
    standings: list[Tuned] = []
    for place, (name, chosen) in enumerate(fields.items()):
        of_histogram: list[Tuned] = []
        with Trials(found[name], processes) as trials:
            for candidate in chosen:
                begin = (place + len(of_histogram) / len(chosen)) / len(fields)
                length = 1 / (len(chosen) * len(fields))
                on_part = partial(_tell, on_trial, Trying(name, candidate.kind, begin), length)
                of_histogram.append(_tuned(candidate, found[name], trials, effort, on_part))
        standings += _rated(of_histogram)
    points = max((truth.points for truth in found.values()), default=0)
    return Tuning(config.name, trace.name, runs, seed, points, standings)


def _tell(on_trial: Callable[[Trying], None] | None, begin: Trying, length: float, part: float) -> None:
    if on_trial is not None:
        on_trial(begin._replace(part=begin.part + length * part))


def _tuned(
    candidate: Candidate, truth: Truth, trials: Trials, effort: Effort, on_part: Callable[[float], None]
) -> Tuned:
    arguments = candidate.config.strategy_arguments(candidate.section, candidate.view)
    default: Parameters = arguments.pop("parameters")
    search = Search(trials, arguments, effort, on_part)
    conditions = candidate.config.conditions(candidate.section, candidate.view)
    space = STRATEGIES[candidate.kind].tuning_space(conditions, truth)
    best = search.best(space, default)
    tuned = dict(best.parameters) != dict(default)
    (of_default,) = search.report([default]) if tuned else [best.reporting]
    chosen_default = search.outcomes([default], range(effort.choosing))[0] if tuned else best.choosing
    errors = [outcome.absolute for outcome in best.reporting]
    return Tuned(
        histogram=candidate.view.name,
        strategy=candidate.kind,
        parameters={name: plain(value) for name, value in best.parameters.items()},
        absolute=mean_of(errors),
        absolute_spread=spread_of(errors),
        releases=mean_of([outcome.releases for outcome in best.reporting]),
        tried=best.tried,
        chosen=error_of(best.choosing) if best.choosing else None,
        default_parameters={name: plain(value) for name, value in default.items()},
        default_chosen=error_of(chosen_default) if chosen_default else None,
        default_absolute=error_of(of_default),
    )


def _rated(standings: list[Tuned]) -> list[Tuned]:
    # A trace of nobody has an error of zero in hindsight only if nothing was released; then nothing can be rated.
    best = min((standing.absolute for standing in standings), default=0.0)
    for standing in standings:
        if best > 0:
            standing.ratio = standing.absolute / best
            standing.default_ratio = standing.default_absolute / best
    return standings
