"""What every method owes: an answer for every histogram, integers, a statement, and a guarantee no audit refutes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streamdp.audit.monte_carlo import monte_carlo_lower_bound
from streamdp.histograms import method_named, method_names
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource

SHAPES = [(1,), (2,), (3,), (31,), (33,), (100,), (1, 1), (7, 5), (16, 3, 2), (600, 2)]


@pytest.mark.parametrize("name", method_names())
@pytest.mark.parametrize("shape", SHAPES)
def test_every_histogram_has_an_answer_in_integers(name: str, shape: tuple[int, ...]) -> None:
    counts = np.arange(np.prod(shape), dtype=np.int64)
    kept = counts.copy()
    for epsilon in (Fraction(1, 1000), Fraction(1), Fraction(50)):
        noisy = method_named(name).release(counts, shape, epsilon, 2, InsecureSeededSource(1))
        assert noisy.counts.dtype == np.int64
        assert noisy.counts.shape == counts.shape
    assert (counts == kept).all()


@pytest.mark.parametrize("name", method_names())
def test_an_empty_population_and_a_huge_one_have_an_answer(name: str) -> None:
    for value in (0, 2**40):
        counts = np.full(64, value, dtype=np.int64)
        noisy = method_named(name).release(counts, (64,), Fraction(1), 1, InsecureSeededSource(1)).counts
        assert np.abs(noisy - value).max() < 2**20


@pytest.mark.parametrize("name", [name for name in method_names() if name not in ("efpa", "php", "psd")])
@pytest.mark.parametrize("shape", [(40,), (9, 5)])
def test_with_all_the_epsilon_there_is_the_counts_come_back(name: str, shape: tuple[int, ...]) -> None:
    """Of the methods that never merge cells for good."""
    counts = np.arange(np.prod(shape), dtype=np.int64) ** 2
    noisy = method_named(name).release(counts, shape, Fraction(10_000), 1, InsecureSeededSource(1)).counts
    assert np.abs(noisy - counts).max() <= 1


@pytest.mark.parametrize("name", method_names())
def test_every_step_of_the_statement_is_filled_in(name: str) -> None:
    statement = method_named(name).statement
    assert statement.sensitivity.startswith("m")
    assert "epsilon" in statement.budget or "/" in statement.budget


# A crowd in one corner; one user more there, or alone far away.
CROWD = np.zeros(34, dtype=np.int64)
CROWD[3] = 6
BESIDE, ALONE = CROWD.copy(), CROWD.copy()
BESIDE[3] += 1
ALONE[30] += 1


def coarse(counts: np.ndarray) -> tuple[int, ...]:
    """Few enough outcomes to count: the two places where the neighbours differ, and the total."""
    return tuple(
        int(np.clip(value, low, low + 3)) for value, low in ((counts[3], 5), (counts[30], -1), (counts.sum(), 5))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", method_names())
def test_no_audit_refutes_the_claim(name: str) -> None:
    """What it does not find it does not disprove."""

    def mechanism(counts: np.ndarray, source: NoiseSource | None) -> tuple[int, ...]:
        return coarse(method_named(name).release(counts, counts.shape, Fraction(1), 1, source).counts)

    for neighbour in (BESIDE, ALONE):
        bound = monte_carlo_lower_bound(mechanism, CROWD, neighbour, trials=300, source=InsecureSeededSource(2))
        assert bound.epsilon <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", method_names())
def test_the_audit_refutes_a_claim_that_is_too_low(name: str) -> None:
    def mechanism(counts: np.ndarray, source: NoiseSource | None) -> tuple[int, ...]:
        return coarse(method_named(name).release(counts, counts.shape, Fraction(24), 1, source).counts)

    bounds = [
        monte_carlo_lower_bound(mechanism, CROWD, neighbour, trials=200, source=InsecureSeededSource(3)).epsilon
        for neighbour in (BESIDE, ALONE)
    ]
    assert max(bounds) > 1.5
