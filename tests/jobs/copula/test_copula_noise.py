"""All noise of a fit adds up to epsilon, exactly, and what is counted gets the noise it was asked for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streamdp.privacy.mechanisms as mechanisms_module
from streamdp.domain import Attribute
from streamdp.jobs import Copula
from streamdp.jobs.copula import kendall, mle
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace

EPSILON = Fraction(9, 10)
AGE, WEIGHT = Attribute.integer("age", 0, 19), Attribute.integer("weight", 0, 39)
WARD, SEX = Attribute.categorical("ward", "abc"), Attribute.categorical("sex", "fm")


class Asked:
    """The scale of all noise, in order, and the sizes of the samples that taus were computed of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scales: list[Fraction] = []
        self.samples: list[int] = []
        drawn = kendall.sampled

        def noise(scale: Fraction, *rest: Any) -> Any:
            self.scales.append(Fraction(scale))
            return discrete_laplace(scale, *rest)

        def sampled(columns: Any, sizes: Any, sample: int, source: Any) -> Any:
            self.samples.append(sample)
            return drawn(columns, sizes, sample, source)

        monkeypatch.setattr(mechanisms_module, "discrete_laplace", noise)
        monkeypatch.setattr(kendall, "sampled", sampled)

    def of(self, domain: list[Attribute], method: str, nullable: tuple[str, ...] = ()) -> list[Fraction]:
        generator = np.random.default_rng(1)
        columns = {each.name: generator.integers(0, each.size, 3000) for each in domain}
        model = Copula(EPSILON, domain, method, "laplace", nullable=nullable, source=InsecureSeededSource(1))
        model.fit_codes(columns)
        assert model.epsilon_spent_ == EPSILON
        return self.scales


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def test_kendall_pays_for_the_rows_each_margin_and_all_taus_together(asked: Asked) -> None:
    rows, *of_margins, taus = asked.of([AGE, WEIGHT, WARD], "kendall")
    assert (1 / rows, len(of_margins)) == (EPSILON * 3 / 100, 3)
    (sample,) = asked.samples
    # floor(m^2 / 4) of three attributes is 2.
    assert 1 / rows + sum(1 / scale for scale in of_margins) + 2 * (sample - 1) * 2 / taus == EPSILON


def test_mle_pays_for_every_pair(asked: Asked) -> None:
    rows, *of_margins, correlations = asked.of([AGE, WEIGHT, WARD], "mle")
    assert 1 / rows + sum(1 / scale for scale in of_margins) + 3 * 2 * mle.LATTICE / correlations == EPSILON


def test_a_margin_and_its_nulls_cost_what_one_of_them_does(asked: Asked) -> None:
    rows, values, nulls = asked.of([AGE], "kendall", nullable=("age",))
    assert values == nulls
    assert 1 / rows + 1 / values == EPSILON


def test_the_parts_of_a_hybrid_cost_what_one_of_them_does(asked: Asked) -> None:
    rows, counts, *rest = asked.of([SEX, AGE, WEIGHT], "hybrid")
    assert len(rest) == 6, "two parts with two margins each, and a dependence each"
    ages, weights, taus = rest[0:4:2], rest[1:4:2], rest[4:]
    for age, weight, tau, sample in zip(ages, weights, taus, asked.samples, strict=True):
        assert 1 / rows + 1 / counts + 1 / age + 1 / weight + 2 * (sample - 1) / tau == EPSILON


def assert_scale(noise: np.ndarray, scale: float, variables: int = 1) -> None:
    """Within ten standard errors, of the variance of a sum of independent Laplace variables."""
    variance = 2 * scale**2 * variables
    error = 10 * variance * np.sqrt(5 / noise.size)
    assert abs(np.square(noise.astype(float)).mean() - variance) < error < 0.75 * variance


def fits(domain: list[Attribute], method: str, rows: int) -> list[Copula]:
    source = InsecureSeededSource(2)
    columns = {each.name: np.arange(rows) % each.size for each in domain}
    return [Copula(1, domain, method, nullable=(), source=source).fit_codes(columns) for _ in range(1000)]


def test_the_number_of_rows_gets_the_noise_of_its_share() -> None:
    models = fits([Attribute.categorical("planet", ["earth"])], "kendall", 5000)
    assert_scale(np.array([model.n_rows_ for model in models]) - 5000, 100 / 3)


@pytest.mark.slow
def test_the_counts_of_a_hybrids_parts_get_the_noise_of_their_share() -> None:
    """Their difference is left as it is when they are moved to the paid total."""
    models = fits([SEX], "hybrid", 5000)
    gaps = np.array([model.parts_[0]["rows"] - model.parts_[1]["rows"] for model in models])
    assert_scale(gaps, 1 / 0.97, variables=2)
