"""The noise every strategy adds, measured or read off where it is drawn. Each check fails when the noise is halved."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streamdp.privacy.mechanisms as mechanisms_module
import streamdp.privacy.sparse_vector as sparse_vector_module
from streamdp.privacy.mechanisms import noisy_at_least
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.strategies import StreamStrategy, make_strategy

MANY = 50_000
DSFT = {"releases": 4, "threshold": 60, "decision_ratio": "1/4"}

# kind, horizon or window, parameters, and what the first release costs of epsilon = 1 by section 4 of the design
FIRST_RELEASE = [
    ("baseline", {"horizon": 20}, {}, Fraction(1, 20)),
    ("baseline", {"window": 5}, {}, Fraction(1, 5)),
    ("fixed", {"horizon": 20}, {"interval": 3}, Fraction(1, 7)),
    ("fixed", {"window": 7}, {"interval": 3}, Fraction(1, 3)),
    ("dsft", {"horizon": 20}, DSFT, Fraction(4, 5) / 4),
    ("dsft", {"horizon": 20}, {**DSFT, "releases": 1}, Fraction(1)),
    ("dsat", {"horizon": 20}, DSFT, Fraction(4, 5) / 4),
    ("dsat_w", {"window": 20}, DSFT, Fraction(4, 5) / 4),
    ("bd", {"window": 5}, {}, Fraction(1, 4)),
    ("ba", {"window": 5}, {}, Fraction(1, 10)),
]


def build(kind: str, guarantee: dict[str, int], parameters: dict[str, Any], cells: int = MANY) -> StreamStrategy:
    return make_strategy(
        kind,
        epsilon=1,
        cells=cells,
        sensitivity=2,
        parameters=parameters,
        source=InsecureSeededSource(11),
        **guarantee,
    )


def check_release(strategy: StreamStrategy, share: Fraction) -> None:
    decision = strategy.step(np.full(MANY, 1_000, dtype=np.int64))
    assert decision.fresh
    assert decision.epsilon == share
    assert decision.scale == 2 / share
    assert decision.counts is not None
    q = np.exp(-float(share) / 2)
    variance = np.mean((decision.counts - 1_000.0) ** 2)
    assert variance == pytest.approx(2 * q / (1 - q) ** 2, rel=0.08)


@pytest.mark.parametrize(("kind", "guarantee", "parameters", "share"), FIRST_RELEASE)
def test_a_release_carries_the_noise_of_its_charge(
    kind: str, guarantee: dict[str, int], parameters: dict[str, Any], share: Fraction
) -> None:
    check_release(build(kind, guarantee, parameters), share)


@pytest.mark.parametrize(("kind", "guarantee", "parameters", "share"), FIRST_RELEASE)
def test_half_the_release_noise_is_noticed(
    kind: str,
    guarantee: dict[str, int],
    parameters: dict[str, Any],
    share: Fraction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mechanisms_module, "discrete_laplace", lambda scale, *rest: discrete_laplace(scale / 2, *rest))
    with pytest.raises(AssertionError):
        check_release(build(kind, guarantee, parameters), share)


Drawn = list[Fraction]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """The scales of all noise drawn for decisions, in order; the noise itself is the real one."""
    scales: Drawn = []

    def recorded(scale: Fraction, *rest: Any) -> Any:
        if rest[0] == 1:  # Not an array of counts.
            scales.append(scale)
        return discrete_laplace(scale, *rest)

    monkeypatch.setattr(sparse_vector_module, "discrete_laplace", recorded)
    monkeypatch.setattr(mechanisms_module, "discrete_laplace", recorded)
    return scales


def sparse_vector_cost(threshold_scale: Fraction, query_scale: Fraction, sensitivity: int, positives: int) -> Fraction:
    """What the two noises cost together, by the theorem and not by the code: D / rho's scale + 2cD / nu's scale."""
    return sensitivity / threshold_scale + 2 * positives * sensitivity / query_scale


@pytest.mark.parametrize("kind", ["dsft", "dsat"])
def test_one_sparse_vector_decides_for_the_whole_horizon(kind: str, drawn: Drawn) -> None:
    strategy = build(kind, {"horizon": 20}, DSFT, cells=3)
    still = np.array([5, 5, 5], dtype=np.int64)
    decisions = [strategy.step(still) for _ in range(19)]
    asked = [decision for decision in decisions if decision.threshold is not None]
    assert len(drawn) == len(asked) + 1
    assert set(drawn[1:]) == {drawn[1]}
    assert sparse_vector_cost(drawn[0], drawn[1], 2, 3) == Fraction(1, 5)
    assert [charge for decision in decisions for charge in decision.costs if charge.purpose == "decisions"] == [
        (Fraction(1, 5), "decisions")
    ]


def test_every_stretch_of_dsat_w_has_its_own_sparse_vector(drawn: Drawn) -> None:
    strategy = build("dsat_w", {"window": 6}, {**DSFT, "threshold": 1_000, "scale": 0}, cells=3)
    near, far = np.array([5, 5, 5], dtype=np.int64), np.array([90_000, 5, 5], dtype=np.int64)
    decisions = [strategy.step(counts) for counts in (near, near, far, far, far, near)]
    assert [decision.reason for decision in decisions] == ["first", "below", "above", "below", "below", "above"]
    rho, nu = drawn[0], drawn[1]
    assert drawn == [rho, nu, nu, rho, nu, nu, nu]
    assert sparse_vector_cost(rho, nu, 2, 1) == Fraction(1, 5) / 4
    assert [len(decision.costs) for decision in decisions] == [1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize("kind", ["bd", "ba"])
def test_dissimilarity_gets_the_noise_of_half_a_points_share(kind: str, drawn: Drawn) -> None:
    strategy = build(kind, {"window": 5}, {}, cells=3)
    decisions = [strategy.step(np.array([5, 5, 5], dtype=np.int64)) for _ in range(8)]
    asked = [decision for decision in decisions if decision.threshold is not None]
    assert drawn == [2 / Fraction(1, 10)] * len(asked)
    assert len(asked) >= 5
    assert all((Fraction(1, 10), "dissimilarity") in decision.costs for decision in asked)


def check_comparison(compare: Callable[..., bool]) -> None:
    """P(noise >= 40) for scale 40 is close to exp(-1) / 2 = 0.18; 6 sigma are 0.037. Half the scale gives 0.07."""
    source = InsecureSeededSource(5)
    above = sum(compare(100, 140, Fraction(1, 20), 2, source) for _ in range(4_000))
    assert above / 4_000 == pytest.approx(np.exp(-1) / 2, abs=0.037)


def test_the_noisy_comparison_has_the_noise_it_pays_for(monkeypatch: pytest.MonkeyPatch) -> None:
    check_comparison(noisy_at_least)
    monkeypatch.setattr(mechanisms_module, "discrete_laplace", lambda scale, *rest: discrete_laplace(scale / 2, *rest))
    with pytest.raises(AssertionError):
        check_comparison(noisy_at_least)


def test_skipping_looks_at_nothing_and_draws_nothing(drawn: Drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms_module, "discrete_laplace", None)
    for kind, guarantee, parameters, _ in FIRST_RELEASE:
        strategy = build(kind, guarantee, parameters, cells=3)
        decision = strategy.skip()
        assert (decision.fresh, decision.counts, decision.costs) == (False, None, ())
    assert drawn == []
