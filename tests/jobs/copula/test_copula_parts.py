"""Kendall's tau, margins, repair and sampling, each against a plain computation; noise that fails when halved."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from streamdp.histograms import Laplace
from streamdp.jobs.base import Meter
from streamdp.jobs.copula.correlation import as_matrix, eigenvalue_repair, from_taus, nearest_repair
from streamdp.jobs.copula.kendall import joint_sensitivity, noisy_taus, sampled, sign_sum, subset
from streamdp.jobs.copula.margins import Margin, project, release_margin
from streamdp.jobs.copula.mle import LATTICE, block_estimates, blocks_for, noisy_correlations
from streamdp.jobs.copula.sampling import sample_codes, uniform
from streamdp.privacy.noise import InsecureSeededSource

HALF = Fraction(1, 2)


def plain_sign_sum(left: np.ndarray, right: np.ndarray) -> int:
    return sum(
        int(np.sign(left[i] - left[j]) * np.sign(right[i] - right[j])) for i, j in combinations(range(len(left)), 2)
    )


@pytest.mark.parametrize("sizes", [(2, 2), (1, 5), (7, 3), (50, 40)])
def test_the_sum_of_sign_products_is_that_of_all_pairs_of_rows(sizes: tuple[int, int]) -> None:
    generator = np.random.default_rng(1)
    left, right = (generator.integers(0, size, 60) for size in sizes)
    assert sign_sum(left, right, *sizes) == plain_sign_sum(left, right)


def test_without_ties_it_is_the_tau_of_scipy() -> None:
    generator = np.random.default_rng(2)
    left = generator.permutation(500)
    right = np.argsort(np.argsort(left + generator.normal(0, 200, 500)))
    tau = sign_sum(left, right, 500, 500) / (500 * 499 / 2)
    assert tau == pytest.approx(stats.kendalltau(left, right).statistic)


@pytest.mark.parametrize("attributes", [2, 3, 4, 5])
def test_no_replaced_row_moves_the_taus_by_more_than_the_joint_sensitivity(attributes: int) -> None:
    """All signs before and after, for one other row: the bound is met and never passed."""
    signs = list(product((-1, 0, 1), repeat=attributes))
    pairs = list(combinations(range(attributes), 2))
    most = max(sum(abs(t[i] * t[j] - u[i] * u[j]) for i, j in pairs) for t in signs for u in signs)
    assert most == joint_sensitivity(attributes, 2)


def mean_absolute(scale: float) -> float:
    q = np.exp(-1 / scale)
    return float(2 * q / (1 - q * q))


def assert_scale(noise: np.ndarray, scale: float) -> None:
    expected, error = mean_absolute(scale), 10 * scale / np.sqrt(noise.size)
    assert abs(np.abs(noise).mean() - expected) < error
    assert error < expected / 3, "too few draws to tell a scale from its half"


def test_the_noise_of_the_taus_is_that_of_their_joint_sensitivity() -> None:
    """Constant columns: every sum is zero, so noise is all there is."""
    sample, attributes = 100, 4
    source = InsecureSeededSource(1)
    columns = [np.zeros(sample, dtype=np.int64)] * attributes
    drawn = []
    for _ in range(300):
        meter = Meter(Fraction(50), source)
        drawn.append(noisy_taus(columns, [2] * attributes, sample, Fraction(50), meter))
        assert meter.left == 0
    sums = np.concatenate(drawn) * (sample * (sample - 1) / 2)
    assert_scale(sums, 2 * (sample - 1) * 4 / 50)


def test_the_noise_of_mle_is_that_of_all_its_pairs() -> None:
    source = InsecureSeededSource(2)
    columns = [np.zeros(10, dtype=np.int64)] * 3
    drawn = [noisy_correlations(columns, 1000, HALF, Meter(HALF, source)) for _ in range(400)]
    assert_scale(np.concatenate(drawn) * LATTICE * 1000, 2 * LATTICE * 3 * 2)


def test_the_noise_of_a_margin_and_its_nulls_is_that_of_epsilon() -> None:
    source = InsecureSeededSource(3)
    counts = np.full(2001, 10_000, dtype=np.int64)
    meter = Meter(HALF, source)
    margin = release_margin(counts, True, 2001 * 10_000, HALF, Laplace(), meter)
    assert meter.left == 0
    noise = margin.probabilities[:-1] * 2001 * 10_000 - 10_000
    assert_scale(noise - np.median(noise), 2.0)
    nulls = [
        release_margin(counts[:2], True, 20_000, HALF, Laplace(), Meter(HALF, source)).probabilities[-1] * 20_000
        for _ in range(1000)
    ]
    assert_scale(np.array(nulls) - 10_000, 2.0)


def test_few_nulls_are_none() -> None:
    counts = np.array([500, 500, 0])
    margin = release_margin(counts, True, 1000, Fraction(1), Laplace(), Meter(Fraction(1), InsecureSeededSource(1)))
    assert margin.probabilities[-1] == 0


@pytest.mark.parametrize("total", [0.0, 1.0, 30.0])
def test_projection_is_the_nearest_with_that_sum(total: float) -> None:
    values = np.random.default_rng(1).normal(0, 5, 6)
    projected = project(values, total)
    assert projected.sum() == pytest.approx(total)
    assert projected.min() >= 0
    others = np.random.default_rng(2).dirichlet(np.ones(6), 5000) * total
    assert np.linalg.norm(projected - values) <= np.linalg.norm(others - values, axis=1).min() + 1e-9


@pytest.mark.parametrize(("rows", "chosen"), [(10, 0), (10, 3), (10, 9), (10, 10), (1000, 500)])
def test_subsets_have_their_size(rows: int, chosen: int) -> None:
    assert subset(rows, chosen, InsecureSeededSource(1)).sum() == chosen


def test_subsets_are_uniform() -> None:
    source = InsecureSeededSource(1)
    chosen = np.mean([subset(10, 7, source) for _ in range(4000)], axis=0)
    assert chosen == pytest.approx(0.7, abs=0.06)


def test_a_sample_is_filled_up_with_rows_of_the_domain() -> None:
    columns = [np.zeros(5, dtype=np.int64)] * 2
    filled = sampled(columns, [10, 1000], 2005, InsecureSeededSource(1))
    assert [len(column) for column in filled] == [2005, 2005]
    assert filled[0].max() == 9
    assert filled[1].mean() == pytest.approx(500, abs=60)


def test_ties_shrink_tau_and_that_is_undone() -> None:
    generator = np.random.default_rng(3)
    normal = generator.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 20_000)
    left, right = (normal[:, 0] > 0.3).astype(int), np.digitize(normal[:, 1], [-0.5, 0.5])
    tau = sign_sum(left, right, 2, 3) / (20_000 * 19_999 / 2)
    distinct = [Margin(np.bincount(column) / 20_000).distinct for column in (left, right)]
    assert np.sin(np.pi / 2 * tau) < 0.45
    assert from_taus(np.array([tau]), distinct, 0.0)[0] == pytest.approx(0.6, abs=0.06)


def test_the_divisor_is_bounded_and_noise_alone_is_shrunk_to_nothing() -> None:
    assert abs(from_taus(np.array([0.01]), [1e-9, 1e-9], 0.0)[0]) < 0.07
    assert from_taus(np.array([0.1, -0.1, 0.1]), [1.0] * 3, 0.2).tolist() == [0.0, 0.0, 0.0]


INDEFINITE = as_matrix(np.array([0.9, -0.9, 0.9]), 3)


@pytest.mark.parametrize("repair", [eigenvalue_repair, nearest_repair])
def test_a_matrix_that_noise_made_indefinite_is_repaired(repair: object) -> None:
    assert np.linalg.eigvalsh(INDEFINITE).min() < 0
    repaired = repair(INDEFINITE)  # type: ignore[operator]
    assert np.diag(repaired).tolist() == [1.0] * 3
    np.linalg.cholesky(repaired)
    good = as_matrix(np.array([0.5, 0.2, 0.1]), 3)
    np.testing.assert_allclose(repair(good), good, atol=1e-12)  # type: ignore[operator]


def test_the_nearest_matrix_is_nearer() -> None:
    matrix = as_matrix(np.random.default_rng(1).uniform(-1, 1, 28), 8)
    nearest, simple = (np.linalg.norm(repair(matrix) - matrix) for repair in (nearest_repair, eigenvalue_repair))
    assert nearest < simple


def test_a_block_estimates_the_correlation_of_normal_scores() -> None:
    generator = np.random.default_rng(4)
    block = generator.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], 400).T
    scores = ndtri((stats.rankdata(block, axis=1) - 0.5) / 400)
    expected = float((scores[0] * scores[1]).sum() / np.square(scores).sum(axis=1)[0])
    assert block_estimates(block, [(0, 1)])[0] / LATTICE == pytest.approx(expected, abs=1e-3)
    assert block_estimates(np.zeros((2, 10)), [(0, 1)]).tolist() == [0]


def test_blocks_follow_the_seed_while_rows_suffice() -> None:
    assert blocks_for(2, 10**6, Fraction(1, 10)) == 400
    assert blocks_for(2, 1000, Fraction(1, 10)) == 50
    assert blocks_for(8, 1, Fraction(1, 10)) == 1


def test_uniform_values_are_uniform_and_inside() -> None:
    values = uniform((100_000,), InsecureSeededSource(1))
    assert 0 < values.min() < values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-6


def test_sampled_rows_have_the_margins_and_the_dependence() -> None:
    margins = [Margin(np.array([0.2, 0.5, 0.3])), Margin(np.full(1000, 1 / 1000))]
    correlation = np.array([[1, 0.8], [0.8, 1]])
    first, second = sample_codes(50_000, correlation, margins, InsecureSeededSource(1))
    assert np.bincount(first) / 50_000 == pytest.approx([0.2, 0.5, 0.3], abs=0.02)
    assert stats.kstest(second / 1000, "uniform").pvalue > 1e-6
    assert from_taus(
        np.array([sign_sum(first, second, 3, 1000) / (50_000 * 49_999 / 2)]), [m.distinct for m in margins], 0.0
    )[0] == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("size", [1, 2, 5, 3000])
def test_codes_are_found_where_the_distribution_function_says(size: int) -> None:
    generator = np.random.default_rng(size)
    probabilities = generator.dirichlet(np.full(size, 0.3))
    probabilities[generator.integers(0, size, size // 3)] = 0.0
    margin = Margin(probabilities / probabilities.sum())
    normal = np.concatenate([generator.normal(0, 2, 20_000), margin.thresholds[np.isfinite(margin.thresholds)]])
    expected = np.searchsorted(np.cumsum(margin.probabilities)[:-1], stats.norm.cdf(normal), side="left")
    assert (margin.codes(normal) == expected).mean() > 0.9
    assert (margin.codes(normal[:20_000]) == expected[:20_000]).mean() > 0.9999
