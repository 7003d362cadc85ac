from fractions import Fraction
from typing import Any

import pytest
from strategy_settings import arguments, walk

from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import Dsat, DsatW, make_strategy
from streamdp.strategies.controller import Controller


def signed(**more: Any) -> Controller:
    return Controller("signed", **{"threshold": 100, "target": "1/10", "scale": 10, **more})


def test_the_threshold_rises_when_releases_come_too_often_and_falls_when_too_seldom() -> None:
    assert signed().advance(5, rate=0.2) == 110
    assert signed().advance(5, rate=0.15) == 105
    assert signed().advance(5, rate=0.05) == 95
    assert signed().advance(5, rate=0.0) == 90


def test_the_error_is_cut_so_that_one_early_release_does_not_slam_the_threshold() -> None:
    assert signed().advance(1, rate=1.0) == 110


def test_the_dead_band_rests_on_target() -> None:
    controller = signed(dead_band=0.1, ki=1.0)
    assert [controller.advance(point, rate=0.109) for point in range(1, 50)] == [100] * 49


def test_thresholds_are_rounded_up_to_whole_counts() -> None:
    assert signed(scale="0.25").advance(5, rate=0.2) == 101


def test_the_threshold_stays_in_its_public_range() -> None:
    controller = signed(low=80, high=125)
    assert [controller.advance(point, rate=1.0) for point in range(4)] == [110, 120, 125, 125]
    assert [controller.advance(point, rate=0.0) for point in range(4, 10)] == [115, 105, 95, 85, 80, 80]


def test_the_integral_sums_the_last_errors_only() -> None:
    controller = signed(kp=0, ki=1, integral_window=2)
    assert [controller.advance(point, rate=0.2) for point in range(1, 4)] == [110, 130, 150]


def test_errors_against_a_bound_do_not_wind_up() -> None:
    controller = signed(kp=0, ki=1, integral_window=100, high=120)
    for point in range(1, 60):
        controller.advance(point, rate=1.0)
    # Two errors were summed on the way up. Were all 59, the threshold would stay at its bound for another 50 points.
    assert [controller.advance(point, rate=0.0) for point in range(60, 65)] == [120, 120, 110, 90, 60]


def test_the_derivative_is_the_slope_since_the_last_release() -> None:
    controller = signed(kp=0, kd=1)
    assert controller.advance(3, rate=0.0) == 100
    controller.released(3)
    assert controller.advance(5, rate=0.2) == 110  # (1 - (-1)) / 2 * 10


def test_the_printed_controller_by_hand() -> None:
    """Equations 1 to 4 with delta = 0.05: E = 0.15 gives e = 2; E = 0.1 gives 1; and on target e is 1, not 0."""
    printed = {"threshold": 100, "target": "1/10", "scale": 10, "high": 200}
    assert Controller("published", **printed).advance(4, rate=0.25) == 120
    assert Controller("published", **printed).advance(4, rate=0.0) == 90
    assert Controller("published", **printed).advance(10, rate=0.1) == 90


def test_the_printed_default_scale_is_a_quarter_of_the_range() -> None:
    assert Controller("published", threshold=1, target="1/10", low=0, high=2).scale == 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"set_point": 0},
        {"scale": -1},
        {"kp": -1},
        {"ki": float("nan")},
        {"low": 5, "high": 4},
        {"integral_window": 0},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        signed(**wrong)


def test_an_unknown_controller_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="signed, published"):
        Controller("pi", threshold=1, target=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["dsat", "dsat-printed-controller", "dsat_w"])
@pytest.mark.parametrize("seed", range(6))
def test_thresholds_are_a_function_of_time_and_of_which_points_were_releases(name: str, seed: int) -> None:
    """Rebuilt from the published messages alone, whatever the data and the noise were."""
    strategy = make_strategy(**arguments(name), source=InsecureSeededSource(seed))
    assert isinstance(strategy, Dsat | DsatW)
    decisions = [strategy.step(counts) for counts in walk(seed, 20)]
    assert sum(decision.threshold is not None for decision in decisions) >= 3

    parameters = dict(arguments(name)["parameters"])
    releases = parameters.pop("releases")
    parameters.pop("burn_in", None)
    span = strategy.span
    public = Controller(parameters.pop("controller", "signed"), target=Fraction(releases, span), **parameters)
    released: list[int] = []
    for decision in decisions:
        point = decision.time_point
        if decision.threshold is not None:
            recent = [r for r in released if r > point - span] if strategy.window else released
            rate = len(recent) / min(point, span)
            assert decision.threshold == public.advance(point, rate)
        if decision.fresh:
            released.append(point)
            public.released(point)
