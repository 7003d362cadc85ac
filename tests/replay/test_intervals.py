"""What subscribers of `auto` are told about its errors is true of the fixtures, drift included."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from streamdp import messages
from streamdp.client import Release
from streamdp.config import parse
from streamdp.engine import Publish
from streamdp.privacy import InsecureSeededSource
from streamdp.replay.fixtures import CONFIG, FIXTURES, TRACE
from streamdp.replay.play import Player, open_trace

FOLDER = Path(__file__).parents[2] / "replay_fixtures"
SEEDS = range(3)
RANGES = 60


def without_strategies(text: str) -> str:
    """The configuration of a fixture with the default strategy in every histogram."""
    text = re.sub(r"^strategy = .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^\[histogram\.parameters\]\n(?:.+\n)*", "", text, flags=re.MULTILINE)


def covered(name: str, seed: int) -> list[bool]:
    config = parse(without_strategies((FOLDER / name / CONFIG).read_text()))
    assert {histogram.strategy for histogram in config.histogram} == {"auto"}
    generator = np.random.default_rng(17)
    inside: list[bool] = []
    with open_trace(FOLDER / name / TRACE, config) as trace:
        player = Player(config, trace, source=InsecureSeededSource(seed))
        held: dict[str, Release] = {}
        for event, actions in player.play():
            for action in actions:
                if isinstance(action, Publish) and action.topic.endswith(".latest"):
                    message = messages.decode(action.value)
                    assert message.counts is not None
                    held[str(message.header["histogram"])] = Release(message.header, message.counts)
            for view in player.pipeline.views:
                release = held[view.name]
                assert release.variance is not None
                wrong = (release.counts - player.pipeline.population.counts(view.name)).reshape(view.shape)
                age = event.time_point - release.time_point
                for _ in range(RANGES):
                    ends = [np.sort(generator.integers(size, size=2)) for size in view.shape]
                    selection = [slice(int(low), int(high) + 1) for low, high in ends]
                    error = abs(int(wrong[tuple(selection)].sum()))
                    inside.append(error <= 1.96 * release.variance.standard_error(selection, age))
    return inside


@pytest.mark.slow
@pytest.mark.parametrize("name", [fixture.name for fixture in FIXTURES])
def test_the_95_percent_interval_covers_the_truth(name: str) -> None:
    share = np.mean([covered(name, seed) for seed in SEEDS])
    assert 0.90 <= share <= 0.99, share
