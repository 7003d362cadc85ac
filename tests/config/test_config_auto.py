"""The default strategy of a histogram, and what `check` says of it."""

import re

import numpy as np
import pytest

from streamdp.config import parse
from streamdp.config.plan import plan
from streamdp.config.report import as_json, as_text
from streamdp.errors import ConfigurationError

STREAM = """
[stream]
name = "clinic"
[domain.ward]
type = "categorical"
values = ["a", "b", "c", "d"]
[time]
length = "1m"
[privacy]
epsilon = "1"
{span}
[[histogram]]
name = "wards"
attributes = ["ward"]
{more}
[input]
topics = ["visits"]
"""


@pytest.mark.parametrize("span", ["horizon = 100", "window = 20"])
def test_a_histogram_that_names_no_strategy_has_auto(span: str) -> None:
    config = parse(STREAM.format(span=span, more=""))
    histogram = config.histogram[0]
    assert histogram.strategy == "auto"
    assert config.build_strategy(histogram, config.build_views()[0]).guarantee.startswith("epsilon = 1 for a user's")
    assert config == parse(STREAM.format(span=span, more='strategy = "auto"'))


@pytest.mark.parametrize("span", ["horizon = 100", "window = 20", "horizon = 2"])
def test_check_says_what_it_will_do(span: str) -> None:
    planned = plan(parse(STREAM.format(span=span, more="")))
    text = " ".join(as_text(planned).split())
    assert "strategy auto" in text
    assert "learns from its own releases how fast the counts move" in text
    assert "deciding costs" not in text
    assert "a change detector looks between releases for jumps, and costs epsilon 0.015625 at most, once" in text
    histogram = planned.histograms[0]
    assert histogram.outline.decisions == 0
    assert histogram.worst.epsilon <= histogram.best.epsilon <= histogram.epsilon
    assert as_json(planned)["histograms"][0]["strategy"] == "auto"


@pytest.mark.parametrize("span", ["horizon = 100", "window = 20"])
def test_it_does_what_check_says(span: str) -> None:
    config = parse(STREAM.format(span=span, more=""))
    text = " ".join(as_text(plan(config)).split())
    first = re.search(r"The first point is released with epsilon ([\d.]+), the second release follows within", text)
    longest = re.search(r"no gap is planned to be longer than (\d+) points", text)
    assert first and longest
    strategy = config.build_strategy(config.histogram[0], config.build_views()[0])
    released = {}
    for point in range(1, 100):
        decision = strategy.step(np.full(4, 1_000))
        if decision.fresh:
            released[point] = float(decision.epsilon)
    points = list(released)
    assert f"{released[1]:.3g}" == first[1]
    assert 2 <= points[1] <= 4
    assert 5 <= np.diff(points).max() <= int(longest[1])


def test_it_has_no_parameters_and_one_method() -> None:
    with pytest.raises(ConfigurationError, match="unknown key"):
        parse(STREAM.format(span="horizon = 100", more="[histogram.parameters]\nreleases = 3"))
    with pytest.raises(ConfigurationError, match="method laplace"):
        parse(STREAM.format(span="horizon = 100", more='method = "efpa"'))
