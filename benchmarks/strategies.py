"""How far every strategy is from the best one tuned in hindsight: the table and the plot of docs/strategies.md.

    python benchmarks/strategies.py --peer .bench-venv-strategies/bin/python [--quick] [--again auto] [--write-docs]
    python benchmarks/strategies.py --peer .bench-venv-strategies/bin/python --held-out

For every trace, epsilon 0.1 and 1, a finite horizon and windows of 20 and 100 points: each strategy's parameters are
searched on the trace itself (`streamdp compare --tune`), and its error is divided by that of the best one. `auto`,
where it is registered, has no parameters, takes no part in being the best, and is held to limits. Two traces are kept
apart: only --held-out runs them.

Results are kept in --folder after each step, and what is there is not measured again: --again NAME forgets a strategy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from strategies_report import AUTO, Cell, Results, Setting, passed, plot, tables, write_docs
from strategies_traces import QUICK, Source, digest, held_out, sources

from streamdp.cli._progress import Progress
from streamdp.errors import ConfigurationError
from streamdp.replay.compare import plain, spread_of
from streamdp.replay.truth import Truth
from streamdp.replay.tune.search import Effort, Search, error_of
from streamdp.replay.tune.trials import Trials
from streamdp.strategies import STRATEGIES, Conditions, strategies_for

EPSILONS = ("0.1", "1")
WINDOWS = (None, 20, 100)
SETTINGS = [Setting(window, epsilon) for window in WINDOWS for epsilon in EPSILONS]
MANY_CELLS = 10_000
VERSION = 1


def effort_for(truth: Truth, quick: bool) -> Effort:
    if quick:
        return Effort(choosing=5, reporting=6, seed=1, rounds=2)
    # A release of many cells is slow to measure, and averages over so many that fewer runs tell as much.
    return Effort(choosing=4, reporting=5, seed=1) if truth.cells > MANY_CELLS else Effort(8, 12, seed=1)


def kinds_for(setting: Setting) -> list[str]:
    return strategies_for("horizon" if setting.window is None else "window")


def arguments_for(kind: str, truth: Truth, setting: Setting) -> dict[str, Any]:
    """Those of `make_strategy`, but for the parameters."""
    return {
        "kind": kind,
        "epsilon": Fraction(setting.epsilon),
        "cells": truth.cells,
        "shape": truth.shape,
        "horizon": truth.points if setting.window is None else None,
        "window": setting.window,
        "sensitivity": 1,
    }


def measure(trials: Trials, truth: Truth, setting: Setting, kind: str, effort: Effort) -> Cell:
    arguments = arguments_for(kind, truth, setting)
    conditions = Conditions(arguments["epsilon"], truth.shape, arguments["horizon"], arguments["window"])
    found = Search(trials, arguments, effort).best(STRATEGIES[kind].tuning_space(conditions, truth))
    errors = [outcome.absolute for outcome in found.reporting]
    return {
        "absolute": error_of(found.reporting),
        "spread": spread_of(errors),
        "releases": sum(outcome.releases for outcome in found.reporting) / len(errors),
        "runs": len(errors),
        "tried": found.tried,
        "parameters": {name: plain(value) for name, value in found.parameters.items()},
    }


class Store:
    """What is measured already, by trace, setting and strategy."""

    def __init__(self, path: Path, again: list[str]) -> None:
        self._path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        self.results: Results = held["results"] if held.get("version") == VERSION else {}
        for trace in self.results.values():
            for cells in trace["settings"].values():
                for kind in again:
                    cells.pop(kind, None)

    def begin(self, source: Source, truth: Truth) -> dict[str, dict[str, Cell]]:
        """The settings of a trace; what belongs to other data of the same name is dropped."""
        known = self.results.get(source.name)
        if known is None or known["digest"] != digest(truth):
            known = self.results[source.name] = {"digest": digest(truth), "moving": source.moving, "settings": {}}
        settings: dict[str, dict[str, Cell]] = known["settings"]
        return settings

    def save(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"version": VERSION, "results": self.results}, indent=1))
        new.replace(self._path)


def run(chosen: list[Source], store: Store, given: argparse.Namespace) -> None:
    steps = sum(len(kinds_for(setting)) for setting in SETTINGS)
    with Progress("measuring", steps * len(chosen)) as progress:
        for place, source in enumerate(chosen):
            try:
                truth = source.truth(given.folder)
            except ConfigurationError as error:
                print(f"{source.name}: skipped: {error}", flush=True)
                continue
            settings = store.begin(source, truth)
            effort = effort_for(truth, given.quick)
            done = place * steps
            with Trials(truth, given.processes) as trials:
                for setting in SETTINGS:
                    began = time.monotonic()
                    cells = settings.setdefault(setting.key, {})
                    for kind in kinds_for(setting):
                        progress.at(done, f"{source.name}, {setting.title}: {kind}")
                        if kind not in cells:
                            cells[kind] = measure(trials, truth, setting, kind, effort)
                            store.save()
                        done += 1
                    best = min(cell["absolute"] for kind, cell in cells.items() if kind != AUTO)
                    figures = ", ".join(f"{kind} {cell['absolute'] / best:.3g}" for kind, cell in cells.items())
                    seconds = time.monotonic() - began
                    print(f"{source.name}, {setting.title}: {figures}  ({seconds:.0f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five traces, fewer runs")
    parser.add_argument("--held-out", action="store_true", help="the two traces that are kept apart, and only those")
    parser.add_argument("--peer", help="interpreter with benchmarks/requirements-strategies.txt, for some real data")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with flu/")
    parser.add_argument("--folder", type=Path, default=Path("build/strategies"), help="traces and results")
    parser.add_argument("--traces", help="only these, as in taxi,flu")
    parser.add_argument("--again", action="append", default=[], metavar="STRATEGY", help="measure it again")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write-docs", action="store_true", help="put tables and plot into docs/")
    given = parser.parse_args()
    chosen = held_out(given.peer) if given.held_out else sources(given.data, given.peer)
    wanted = given.traces.split(",") if given.traces else QUICK if given.quick and not given.held_out else None
    chosen = [source for source in chosen if wanted is None or source.name in wanted]
    given.folder.mkdir(parents=True, exist_ok=True)
    name = "held-out" if given.held_out else "results"
    files = given.folder / (f"{name}-quick" if given.quick else name)
    store = Store(files.with_suffix(".json"), given.again)
    run(chosen, store, given)
    results = {source.name: store.results[source.name] for source in chosen if source.name in store.results}
    text = tables(results, SETTINGS)
    files.with_suffix(".md").write_text(text, encoding="utf-8")
    files.with_suffix(".svg").write_text(plot(results, SETTINGS), encoding="utf-8")
    print("\n" + text)
    if given.write_docs:
        write_docs(Path(__file__).parent.parent / "docs", name, text, plot(results, SETTINGS))
    return 0 if passed(results, SETTINGS) else 1


if __name__ == "__main__":
    sys.exit(main())
