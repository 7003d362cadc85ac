"""The strategies of histograms and their parameters."""

from __future__ import annotations

import pytest
from config_samples import changed, only_fault

from streamdp.config import parse
from streamdp.strategies import STRATEGIES, make_strategy

DISTANCE = {"releases": 2, "threshold": 5}


class TestStrategies:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_every_strategy_can_be_configured_with_all_its_parameters(self, strategy):
        values = {
            **{
                "interval": 2,
                "releases": 2,
                "threshold_fraction": "0.5",
                "expected_users": 10,
                "decision_ratio": "1/3",
            },
            **{
                "groups": 1,
                "controller": "signed",
                "kp": 1,
                "ki": 0.5,
                "kd": 0,
                "integral_window": 3,
                "set_point": 0.1,
            },
            **{"scale": 2.5, "burn_in": 1, "threshold_low": 1, "threshold_high": 9, "dead_band": 0},
        }
        # The threshold in counts is the other way to say threshold_fraction; the published calibration is refused.
        names = set(STRATEGIES[strategy].parameters_type.model_fields) - {"threshold"}
        guarantee = {"privacy__window": None, "privacy__horizon": 10} if strategy in ("dsft", "dsat") else {}
        parameters = {name: values[name] for name in names}
        config = parse(changed(histogram__0__strategy=strategy, histogram__0__parameters=parameters, **guarantee))
        arguments = config.strategy_arguments(config.histogram[0], config.build_views()[0])
        assert set(arguments["parameters"]) == names
        assert config.build_strategy(config.histogram[0], config.build_views()[0]).time_point == 0

    def test_defaults_are_the_strategies_own(self):
        text = changed(histogram__0__strategy="dsat_w", histogram__0__parameters=DISTANCE)
        config = parse(text)
        view = config.build_views()[0]
        arguments = config.strategy_arguments(config.histogram[0], view)
        bare = arguments | {"parameters": DISTANCE}
        # Equal fingerprints: the configuration's defaults and the strategy's are the same.
        assert make_strategy(**bare).state() == config.build_strategy(config.histogram[0], view).state()

    @pytest.mark.parametrize("strategy", ["dsft", "dsat"])
    def test_finite_strategies_need_a_horizon(self, strategy):
        fault = only_fault(histogram__0__strategy=strategy, histogram__0__parameters=DISTANCE)
        assert fault.startswith(f"histogram[0].strategy: found {strategy!r}, which is for a privacy.horizon")

    @pytest.mark.parametrize("strategy", ["dsat_w", "bd", "ba"])
    def test_w_event_strategies_need_a_window(self, strategy):
        parameters = DISTANCE if strategy == "dsat_w" else {}
        fault = only_fault(
            histogram__0__strategy=strategy,
            histogram__0__parameters=parameters,
            privacy__window=None,
            privacy__horizon=5,
        )
        assert fault.startswith(f"histogram[0].strategy: found {strategy!r}, which is for a privacy.window")

    def test_the_published_calibration_is_refused_with_the_reason(self):
        fault = only_fault(
            histogram__0__strategy="dsat_w", histogram__0__parameters=DISTANCE | {"calibration": "published"}
        )
        assert fault.startswith("histogram[0].parameters.calibration: not for a running stream")
        assert "does not give the privacy it claims" in fault

    @pytest.mark.parametrize(
        ("parameters", "expected"),
        [
            ({"releases": 11, "threshold": 1}, "parameters.releases: found 11; give at most the window, 10"),
            ({"releases": 0, "threshold": 1}, "parameters.releases: found 0; give 1 or more"),
            ({"releases": 1}, "parameters: give either threshold (in counts) or threshold_fraction"),
            ({"releases": 1, "threshold": 1, "threshold_fraction": 1}, "parameters: give either threshold"),
            ({"releases": 1, "threshold_fraction": "0.1"}, "parameters: threshold_fraction is of expected_users"),
            ({"releases": 1, "threshold": -1}, "parameters: threshold is negative"),
            (
                {"releases": 1, "threshold": 1, "groups": 3},
                "parameters: groups must be between 1 and the number of cells",
            ),
            ({"releases": 1, "threshold": 1, "ki": -1}, "parameters.ki: found -1; give 0 or more"),
            ({"releases": 1, "threshold": 1, "kp": float("inf")}, "parameters.kp: found inf; give a finite number"),
            (
                {"releases": 1, "threshold": 1, "threshold_low": 3, "threshold_high": 2},
                "parameters: threshold_low is above threshold_high",
            ),
        ],
    )
    def test_parameters_that_make_no_sense(self, parameters, expected):
        fault = only_fault(histogram__0__strategy="dsat_w", histogram__0__parameters=parameters)
        assert fault.startswith(f"histogram[0].{expected}")

    def test_an_interval_beyond_the_window(self):
        fault = only_fault(histogram__0__strategy="fixed", histogram__0__parameters={"interval": 11})
        assert fault == "histogram[0].parameters.interval: found 11; give at most the window, 10"
