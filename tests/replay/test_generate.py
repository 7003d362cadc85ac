"""Made-up traces: reproducible, of the size asked for, and of the shape they promise."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from streamdp.errors import ConfigurationError, StreamdpError
from streamdp.replay import writer as writer_module
from streamdp.replay.generate import SCENARIOS
from streamdp.replay.play import Player, open_trace
from streamdp.replay.trace import Header
from streamdp.replay.writer import TraceWriter

SMALL = {name: (200 if name == "hostile" else 1_000, 24) for name in SCENARIOS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_seed_makes_the_same_trace(tmp_path, name):
    scenario, (users, points) = SCENARIOS[name], SMALL[name]
    for file, seed in (("a", 1), ("b", 1), ("c", 2)):
        scenario.write(tmp_path / file, users, points, seed)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in (tmp_path / "a").read_bytes().splitlines()]
    assert [line["close"] for line in lines if "close" in line] == list(range(1, points + 1))


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "hostile"])
def test_no_message_is_turned_away(tmp_path, name):
    scenario, (users, points) = SCENARIOS[name], SMALL[name]
    scenario.write(tmp_path / "t.gz", users, points, 3)
    config = scenario.config(users, points)
    with open_trace(tmp_path / "t.gz", config) as trace:
        player = Player(config, trace)
        assert sum(1 for _ in player.play()) == points
    assert not player.tally.by_name() and not player.tally.dropped
    assert 0 < player.pipeline.population.counts(config.histogram[0].name).sum() <= users


def test_the_census_keeps_its_size_while_people_change(tmp_path):
    scenario = SCENARIOS["census"]
    scenario.write(tmp_path / "t", 2_000, 30, 3)
    config = scenario.config(2_000, 30)
    with open_trace(tmp_path / "t", config) as trace:
        player = Player(config, trace)
        counts = [player.pipeline.population.counts("people").copy() for _ in player.play()]
    assert {int(point.sum()) for point in counts} == {2_000}
    moved = [int(np.abs(b - a).sum()) for a, b in pairwise(counts)]
    assert min(moved) >= 0 and max(moved) > 20
    lines = (tmp_path / "t").read_bytes().splitlines()
    assert sum(b'"op":"upsert"' in line for line in lines) == 2_000 + sum(b'"op":"delete"' in line for line in lines)


def test_the_largest_census_has_the_papers_cells():
    (people, _) = SCENARIOS["census"].config(500_000, 500).build_views()
    assert people.shape == (96, 2, 12, 2, 2, 3) and people.cells == 27_648


def test_taxis_are_fewer_by_night(tmp_path):
    scenario = SCENARIOS["taxi"]
    scenario.write(tmp_path / "t", 1_000, 48, 3)
    config = scenario.config(1_000, 48)
    with open_trace(tmp_path / "t", config) as trace:
        player = Player(config, trace)
        driving = [int(player.pipeline.population.counts("grid").sum()) for _ in player.play()]
    assert driving[38] > 1.5 * driving[28]  # afternoon and night of the second day


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "t").write_text("mine")
    with pytest.raises(ConfigurationError, match="exists"):
        SCENARIOS["churn"].write(tmp_path / "t", 100, 5, 1)
    assert (tmp_path / "t").read_text() == "mine"


def test_too_few_users_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="at least 10 users"):
        SCENARIOS["churn"].write(tmp_path / "t", 9, 5, 1)


def test_a_full_disk_is_a_clear_error(tmp_path, monkeypatch):
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(writer_module, "create", lambda path: full)
        with pytest.raises(StreamdpError, match=r"cannot write .*: No space left"):
            TraceWriter(tmp_path / "t", Header())
        assert full.closed
