from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import STRATEGIES, make_strategy
from streamdp.strategies.base import Reason


def parameter_names(kind: str) -> set[str]:
    return set(STRATEGIES[kind].parameters_type.model_fields)


def test_every_kind_is_known_by_name() -> None:
    assert set(STRATEGIES) == {"auto", "baseline", "fixed", "dsft", "dsat", "dsat_w", "bd", "ba"}


def test_parameter_names() -> None:
    assert parameter_names("bd") == set()
    assert parameter_names("fixed") == {"interval"}
    distance = {"releases", "threshold", "threshold_fraction", "expected_users", "decision_ratio", "groups"}
    assert parameter_names("dsft") == distance
    controller = {"controller", "kp", "ki", "kd", "integral_window", "set_point", "scale", "burn_in"}
    bounds = {"threshold_low", "threshold_high", "dead_band"}
    assert parameter_names("dsat") == parameter_names("dsat_w") == distance | controller | bounds


def test_every_kind_and_parameter_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()
    for kind in STRATEGIES:
        assert f"`{kind}`" in page
        for name in parameter_names(kind):
            assert f"`{name}`" in page


def test_every_reason_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()
    for reason in get_args(Reason):
        assert f"`{reason}`" in page


def test_unknown_and_missing_names_are_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match="there are auto, baseline, fixed"):
        make_strategy("dsax", epsilon=1, cells=2, horizon=3)
    with pytest.raises(ConfigurationError, match="no parameter period; it has interval"):
        make_strategy("fixed", epsilon=1, cells=2, horizon=3, parameters={"interval": 2, "period": 1})
    with pytest.raises(ConfigurationError, match="needs releases"):
        make_strategy("dsft", epsilon=1, cells=2, horizon=3, parameters={"threshold": 2})
    with pytest.raises(ConfigurationError, match="method"):
        make_strategy("baseline", epsilon=1, cells=2, horizon=3, method="magic")


def test_the_guarantee_is_said_in_words() -> None:
    w_event = make_strategy("bd", epsilon="1/10", cells=2, window=12)
    assert w_event.guarantee == "epsilon = 0.1 for a user's presence in any 12 consecutive time points (w-event)"


def test_post_processing_applies_to_what_is_published() -> None:
    strategy = make_strategy(
        "baseline", epsilon=1, cells=400, horizon=10, post=["nonnegative"], source=InsecureSeededSource(1)
    )
    counts = strategy.step(np.zeros(400, dtype=np.int64)).counts
    assert counts is not None
    assert counts.min() == 0
    assert counts.max() > 0
