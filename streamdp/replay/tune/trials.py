"""Runs of strategies over true counts that are known already, in several processes."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from streamdp.replay.compare import source_of
from streamdp.replay.truth import Truth
from streamdp.strategies import make_strategy

# A fork would copy the threads' locks of the libraries that read the trace.
_SPAWN = multiprocessing.get_context("spawn")
_TASKS_AT_ONCE = 2


class Outcome(NamedTuple):
    """One run of one strategy."""

    absolute: float
    """The mean over points of the mean absolute error of the random range counts."""
    releases: int


class Trial(NamedTuple):
    """What to run: the arguments of `make_strategy`, and the noise as draw `draw` of `seed` (none: the system's)."""

    arguments: Mapping[str, Any]
    seed: int | None
    draw: int


def run_trial(truth: Truth, trial: Trial) -> Outcome:
    """Steps a new strategy through all points. Before the first release subscribers hold nothing: zeros."""
    strategy = make_strategy(**trial.arguments, source=source_of(trial.seed, trial.draw))
    answered = np.zeros(truth.range_queries.count, np.int64)
    held = None
    error = releases = 0
    for counts, answers, missed in zip(truth.counts, truth.answers, truth.missed, strict=True):
        decision = strategy.skip(int(missed)) if missed else strategy.step(counts)
        if decision.counts is not None and decision.counts is not held:
            held = decision.counts
            answered = truth.range_queries.answers(held)
        error += int(np.abs(answers - answered).sum())
        releases += decision.fresh
    return Outcome(error / (truth.points * truth.range_queries.count), releases)


class Trials:
    """`with Trials(truth, processes) as trials: trials.run([...])`; one process is this one."""

    def __init__(self, truth: Truth, processes: int = 1) -> None:
        self._truth = truth
        self._pool: ProcessPoolExecutor | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._processes = processes

    def __enter__(self) -> Self:
        if self._processes > 1:
            # Only its owner may enter a temporary directory.
            self._folder = tempfile.TemporaryDirectory(prefix="streamdp-truth-")
            folder = Path(self._folder.name)
            self._truth.save(folder)
            self._pool = ProcessPoolExecutor(
                self._processes, _SPAWN, _begin, (folder, self._truth.shape, self._truth.queries)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._folder is not None:
            self._folder.cleanup()

    def run(self, trials: Iterable[Trial], on_done: Callable[[], None] | None = None) -> list[Outcome]:
        """The outcomes, in the order of the trials."""
        found = (
            (run_trial(self._truth, trial) for trial in trials)
            if self._pool is None
            else self._pool.map(_run, trials, chunksize=_TASKS_AT_ONCE)
        )
        outcomes = []
        for outcome in found:
            outcomes.append(outcome)
            if on_done is not None:
                on_done()
        return outcomes


_truth: Truth | None = None


def _begin(folder: Path, shape: tuple[int, ...], queries: int) -> None:
    global _truth  # noqa: PLW0603 - what a worker process is started with
    _truth = Truth.load(folder, shape, queries)


def _run(trial: Trial) -> Outcome:
    assert _truth is not None
    return run_trial(_truth, trial)
