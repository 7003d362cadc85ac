"""The benchmark of strategies: its traces are whole, and its limits bind."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from streamdp.errors import ConfigurationError
from streamdp.replay.play import open_trace, replay
from streamdp.replay.truth import truths

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # after what is installed: one of them is called kafka

import strategies_made as made
import strategies_real as real
from strategies_report import Setting, passed, plot, ratios, tables, write_docs
from strategies_traces import Source, held_out, sources

MADE = [made.DRIFT, made.SEASONS, made.REGIMES, made.LARGE, made.STILL, made.STILL_WIDE]
MADE += [made.LAUNCH, made.CROWDS, made.NETWORK, made.WARDS, made.VERSIONS, made.PARKING]
SETTINGS = [Setting(None, "0.1"), Setting(20, "1")]


@pytest.mark.parametrize("scenario", MADE, ids=[scenario.name for scenario in MADE])
def test_a_made_up_trace_plays_without_a_dead_letter(scenario, tmp_path):
    scenario.write(tmp_path / "trace.jsonl", 400, 40, 1)
    config = scenario.config(400, 40)
    with open_trace(tmp_path / "trace.jsonl", config) as trace:
        result = replay(config, trace, seed=1)
    assert len(result.time_points) == 40 and not result.rejected
    with open_trace(tmp_path / "trace.jsonl", config) as trace:
        (truth,) = truths(config, trace).values()
    moved = np.abs(np.diff(truth.counts, axis=0)).sum()
    assert (moved == 0) == scenario.name.startswith("still")
    assert 0 < truth.counts.sum(axis=1).max() <= 400


def flu(folder, weeks):
    """By (year, week): the count of the first age group in region 1; all other figures are zero."""
    heads = ["REGION", "YEAR", "WEEK", *real.AGES.values()]
    rows = [
        ",".join([region, str(year), str(week), str(count if region == "Region 1" else 0), "0", "0", "0", "0"])
        for (year, week), count in weeks.items()
        for region in real.REGIONS
    ]
    (folder / "flu").mkdir()
    (folder / "flu" / "ilinet.csv.gz").write_bytes(gzip.compress("\n".join([",".join(heads), *rows]).encode()))


def test_the_flu_has_as_many_users_as_a_quarter_of_the_cases(tmp_path):
    weeks = {(2016, 39): 4_000, (2016, 40): 400, (2016, 41): 100, (2017, 1): 800}
    flu(tmp_path, weeks)
    truth = Source(real.flu(tmp_path), 50, 3).truth(tmp_path)
    assert truth.counts[:, 0].tolist() == [100, 25, 200]
    assert truth.counts.sum() == 325
    again = Source(real.flu(tmp_path / "nowhere"), 50, 3).truth(tmp_path)
    assert np.array_equal(again.counts, truth.counts)  # made once


def test_data_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no ilinet\.csv\.gz .* --data"):
        Source(real.flu(tmp_path), 50, 3).truth(tmp_path)
    with pytest.raises(ConfigurationError, match="--peer"):
        Source(real.flights(None), 50, 3).truth(tmp_path)
    with pytest.raises(ConfigurationError, match="--peer"):
        Source(real.workers(None), 50, 3).truth(tmp_path)
    with pytest.raises(ConfigurationError, match="--peer"):
        Source(real.riders(None), 50, 3).truth(tmp_path)
    with pytest.raises(ConfigurationError, match="--peer"):
        Source(real.swabs(None), 50, 3).truth(tmp_path)
    with pytest.raises(ConfigurationError, match="--peer"):
        Source(real.stops(None), 50, 3).truth(tmp_path)


def test_a_stop_is_forgotten_after_a_week(tmp_path, monkeypatch):
    rows = ["2017-01-01T06:00:42Z,traffic,Black,1", "2017-01-03T05:59:00Z,suspicious,,5"]
    monkeypatch.setattr(real, "_ask", lambda *_: "\n".join(["date,problem,race,policePrecinct", *rows]))
    truth = Source(real.stops(None), 50, 10).truth(tmp_path)
    assert truth.counts.sum(axis=1).tolist() == [1, 2, 2, 2, 2, 2, 2, 1, 0, 0]
    assert truth.counts[1].reshape(5, 2, 8)[4, 0, 7] == 1  # of no race that was noted


def test_no_trace_is_both_open_and_held_out(tmp_path):
    names = [source.name for source in [*sources(tmp_path, None), *held_out(None)]]
    assert len(names) == len(set(names))


def results(auto, still=1.0):
    def trace(error, moving):
        cells = {"fixed": 10.0, "dsat": 20.0} | ({} if error is None else {"auto": error})
        told = {kind: {"absolute": value, "parameters": {}} for kind, value in cells.items()}
        return {"moving": moving, "digest": "", "settings": {setting.key: told for setting in SETTINGS}}

    moving = {f"t{place}": trace(error, True) for place, error in enumerate(auto)}
    return moving | {"quiet": trace(None if auto[0] is None else 10 * still, False)}


@pytest.mark.parametrize(
    "found, good",
    [
        (results([None, None]), True),
        (results([10.0, 10.0]), True),
        (results([9.0, 12.0]), True),  # the mean is 1.04
        (results([9.0, 13.0]), False),  # 1.08 in the window
        (results([16.0, 6.0]), False),  # one trace above 1.5
        (results([10.0, 10.0], still=2.4), True),
        (results([10.0, 10.0], still=2.6), False),  # in the window
    ],
)
def test_auto_is_held_to_the_limits(found, good):
    assert passed(found, SETTINGS) == good


def test_auto_is_never_the_best_it_is_compared_with():
    assert ratios(results([5.0, 5.0]), SETTINGS[0], "auto", moving=True) == {"t0": 0.5, "t1": 0.5}
    assert ratios(results([5.0, 5.0]), SETTINGS[0], "dsat", moving=True) == {"t0": 2.0, "t1": 2.0}


def test_tables_and_plot_go_into_the_docs_and_can_be_renewed(tmp_path):
    page = tmp_path / "strategies.md"
    begin, end = (f"<!-- benchmarks/strategies.py results: {edge} -->" for edge in ("begin", "end"))
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    for error in (10.0, 20.0):
        found = results([error, error])
        write_docs(tmp_path, "results", tables(found, SETTINGS), plot(found, SETTINGS))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("-->\nafter\n") and "old" not in text
    assert "t0 above 1.5" in text and "| met |" not in text
    assert (tmp_path / "strategies-results.svg").read_text().count("<circle") > 10
    page.write_text("no place")
    with pytest.raises(SystemExit, match="no place"):
        write_docs(tmp_path, "results", "", "")
