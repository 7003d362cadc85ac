"""The printed forms run, for comparison, and promise nothing."""

from typing import Any

import numpy as np
import pytest

import streamdp.strategies.published as published_module
from streamdp.errors import ConfigurationError
from streamdp.histograms import method_names
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.strategies import StreamStrategy, make_strategy
from streamdp.strategies.published import leaky_float_laplace

USERS = 200_000


def printed(kind: str, epsilon: str = "100", span: int = 10, **parameters: Any) -> StreamStrategy:
    guarantee = {"window": span} if kind == "dsat_w" else {"horizon": span}
    given = {"releases": 3, "threshold_fraction": "1/2", "expected_users": USERS, "calibration": "published"}
    return make_strategy(
        kind,
        epsilon=epsilon,
        cells=2,
        parameters=given | parameters,
        source=InsecureSeededSource(6),
        **guarantee,  # type: ignore[arg-type]
    )


def at(share: float) -> np.ndarray:
    return np.array([share * USERS, (1 - share) * USERS]).astype(np.int64)


@pytest.mark.parametrize("kind", ["dsft", "dsat", "dsat_w"])
def test_the_printed_forms_say_that_they_guarantee_nothing(kind: str) -> None:
    assert printed(kind).guarantee == "none"


@pytest.mark.parametrize("kind", ["baseline", "fixed", "bd", "ba"])
def test_the_others_have_no_printed_form(kind: str) -> None:
    parameters = {"interval": 1} if kind == "fixed" else {}
    with pytest.raises(ConfigurationError, match="no parameter calibration"):
        make_strategy(kind, epsilon=1, cells=2, window=9, parameters=parameters | {"calibration": "published"})


def test_the_exact_forms_say_what_they_guarantee() -> None:
    exact = make_strategy("dsft", epsilon=1, cells=2, horizon=9, parameters={"releases": 2, "threshold": 5})
    assert exact.guarantee == "epsilon = 1 for a user's presence in all 9 time points together"


def test_threshold_and_distance_get_the_printed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both Lap(2C * 2 / (n - 1) / e1), with e1 = k * epsilon = 1; the release gets Lap(C / e2)."""
    scales: list[float] = []

    def recorded(scale: float, *rest: Any) -> Any:
        scales.append(scale)
        return leaky_float_laplace(scale, *rest)

    monkeypatch.setattr(published_module, "leaky_float_laplace", recorded)
    strategy = printed("dsft", epsilon="10")
    for _ in range(2):
        strategy.step(at(0.5))
    decision = 2 * 3 * 2 / (USERS - 1) / 1
    assert scales == pytest.approx([decision, 3 / 9, decision])


def test_printed_dsft_stops_at_its_cut_off() -> None:
    strategy = printed("dsft")
    assert [strategy.step(at(share)).reason for share in (0.1, 0.1, 0.9, 0.1, 0.9)] == [
        "first",
        "below",
        "above",
        "above",
        "cut_off",
    ]


def test_printed_dsat_has_no_cut_off() -> None:
    strategy = printed("dsat", scale=0)
    fresh = [strategy.step(at(0.1 + 0.8 * (point % 2))).fresh for point in range(10)]
    assert sum(fresh) > 3


def test_printed_dsft_ends_with_what_is_left() -> None:
    strategy = printed("dsft")
    decisions = [strategy.step(at(0.5)) for _ in range(10)]
    assert [decision.reason for decision in decisions[1:]] == ["below"] * 8 + ["final"]
    assert decisions[-1].epsilon == 2 * decisions[0].epsilon


def test_printed_dsat_w_cuts_off_after_the_first_window_and_never_publishes_raw_data() -> None:
    strategy = printed("dsat_w", epsilon="1", span=4, threshold_fraction="1/100", scale=0)
    series = [at(0.1 + 0.8 * (point % 2)) for point in range(30)]
    decisions = [strategy.step(counts) for counts in series]
    assert "cut_off" in {decision.reason for decision in decisions[4:]}
    for decision, counts in zip(decisions, series, strict=True):
        assert decision.counts is not None
        assert not np.array_equal(decision.counts, counts)


def test_printed_noise_is_a_float_laplace_and_cannot_be_chosen_for_a_release() -> None:
    noise = leaky_float_laplace(7.0, 200_000, InsecureSeededSource(1))
    assert np.mean(np.abs(noise)) == pytest.approx(7.0, rel=0.02)
    assert np.mean(noise**2) == pytest.approx(98.0, rel=0.04)
    assert np.all(np.isfinite(noise))
    assert "printed" not in method_names()


@pytest.mark.parametrize(
    "wrong", [{"expected_users": None, "threshold": 4}, {"decision_ratio": 1}, {"calibration": "other"}]
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        printed("dsft", **wrong)


def test_the_printed_form_has_the_printed_controller() -> None:
    with pytest.raises(ConfigurationError, match="controller"):
        printed("dsat", controller="signed")
