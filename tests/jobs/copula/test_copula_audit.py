"""Monte-Carlo audits on neighbours chosen to hurt. What they do not find they do not disprove."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streamdp.audit.monte_carlo import monte_carlo_lower_bound
from streamdp.domain import Attribute
from streamdp.jobs import Copula
from streamdp.jobs.base import Meter
from streamdp.jobs.copula.kendall import noisy_taus
from streamdp.jobs.copula.mle import noisy_correlations
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource

SAMPLE = 4
# All rows on the diagonal, and one more that turns every sign of one attribute: it replaces a sampled row.
DIAGONAL = np.array([[0, 0], [1, 1], [2, 2], [3, 3]])
WITH_STRANGER = np.array([[0, 9], [1, 1], [2, 2], [3, 3], [0, 0]])


def taus(epsilon: int):
    def mechanism(rows: np.ndarray, source: NoiseSource | None) -> float:
        meter = Meter(Fraction(epsilon), source)
        return round(float(noisy_taus(list(rows.T), [10, 10], SAMPLE, Fraction(epsilon), meter)[0]), 6)

    return mechanism


@pytest.mark.slow
def test_tau_loses_no_more_than_it_claims() -> None:
    bound = monte_carlo_lower_bound(taus(1), DIAGONAL, WITH_STRANGER, trials=6000, source=InsecureSeededSource(1))
    assert bound.epsilon <= 1


@pytest.mark.slow
def test_the_audit_of_tau_refutes_a_claim_that_is_too_low() -> None:
    bound = monte_carlo_lower_bound(taus(20), DIAGONAL, WITH_STRANGER, trials=3000, source=InsecureSeededSource(1))
    assert bound.epsilon > 0.3


@pytest.mark.slow
def test_mle_loses_no_more_than_it_claims() -> None:
    def mechanism(rows: np.ndarray, source: NoiseSource | None) -> float:
        return round(float(noisy_correlations(list(rows.T), 2, Fraction(1), Meter(Fraction(1), source))[0]), 1)

    bound = monte_carlo_lower_bound(mechanism, DIAGONAL, WITH_STRANGER[:4], trials=1500, source=InsecureSeededSource(1))
    assert bound.epsilon <= 2  # one row replaced by another: two steps


EMPTY = {"a": np.zeros(0, dtype=np.int64), "b": np.zeros(0, dtype=np.int64)}
ONE = {"a": np.array([3]), "b": np.array([1])}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kendall", "mle", "hybrid"])
def test_a_whole_fit_loses_no_more_than_it_claims(method: str) -> None:
    domain = [Attribute.integer("a", 0, 9), Attribute.integer("b", 0, 1)]

    def mechanism(rows: dict[str, np.ndarray], source: NoiseSource | None) -> tuple[int, ...]:
        model = Copula(2, domain, method, nullable=(), source=source).fit_codes(rows)
        return min(model.n_rows_, 3), round(4 * model.margins_["a"][3]), round(2 * model.margins_["b"][1])

    bound = monte_carlo_lower_bound(mechanism, EMPTY, ONE, trials=600, source=InsecureSeededSource(1))
    assert bound.epsilon <= 2
