"""Each mechanism's noise has the scale it claims: these tests fail when a scale is halved."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

import streamdp.privacy.mechanisms as mechanisms_module
from streamdp.jobs import KMeans
from streamdp.jobs.base import Meter
from streamdp.jobs.kmeans import METHODS
from streamdp.jobs.kmeans.bounds import checked_bounds
from streamdp.jobs.kmeans.dplloyd import add_to, count_weight, noisy_round, noisy_tallies
from streamdp.jobs.kmeans.refined import _offset_tallies, offset_round
from streamdp.jobs.kmeans.rows import LATTICE, Rows, members
from streamdp.jobs.kmeans.synopsis import release_synopsis
from streamdp.jobs.kmeans.task import Task
from streamdp.privacy.noise import InsecureSeededSource, NoiseSource, discrete_laplace

HALF = Fraction(1, 2)


def mean_absolute(scale: float) -> float:
    """Of the discrete Laplace distribution."""
    q = np.exp(-1 / scale)
    return 2 * q / (1 - q * q)


def assert_scale(noise: np.ndarray, scale: float) -> None:
    """Within ten standard errors (the mean of n absolute values has one of about scale / sqrt(n))."""
    expected = mean_absolute(scale)
    assert abs(np.abs(noise).mean() - expected) < 10 * scale / np.sqrt(noise.size)
    assert 10 * scale / np.sqrt(noise.size) < expected / 3, "too few draws to tell a scale from its half"


def test_cells_of_a_synopsis_get_noise_of_one_over_epsilon() -> None:
    bounds = checked_bounds((-1, 1), 2)
    rows = Rows(np.zeros((100, 2)), bounds)
    meter = Meter(HALF, InsecureSeededSource(1))
    synopsis = release_synopsis(rows, bounds, 60, HALF, meter)
    exact = np.zeros((60, 60), dtype=np.int64)
    exact[30, 30] = 100
    assert_scale(synopsis.counts - exact, 2.0)
    assert meter.spent == HALF


def test_sums_and_counts_of_a_round_get_the_noise_of_their_shares() -> None:
    clusters, attributes = 2000, 3
    weight = count_weight(attributes)
    meter = Meter(HALF, InsecureSeededSource(2))
    counts, sums = noisy_tallies(np.zeros(clusters), np.zeros((clusters, attributes)), HALF, weight, meter)
    per_sum = float(HALF / (attributes + weight))
    assert_scale(counts, 1 / float(HALF - attributes * HALF / (attributes + weight)))
    assert_scale(sums * LATTICE, LATTICE / per_sum)
    assert meter.spent == HALF


def test_one_round_of_dplloyd_moves_a_centre_by_the_noise_of_its_sum() -> None:
    """On one round: over several, bad starts hide the scale."""
    bounds = checked_bounds((0, 10), 2)
    rows = Rows(np.full((100_000, 2), 5.0), bounds)
    source = InsecureSeededSource(3)
    epsilon, weight = Fraction(1, 10), Fraction(1)
    centres = [noisy_round(rows, np.zeros((1, 2)), epsilon, weight, Meter(epsilon, source))[0] for _ in range(500)]
    assert_scale(np.concatenate(centres) * 100_000, 30.0)


def test_an_offset_round_scales_its_noise_with_the_cluster() -> None:
    bounds = checked_bounds((-1, 1), 1)
    table = np.zeros((10_000, 1))
    synopsis = release_synopsis(Rows(table, bounds), bounds, 2, Fraction(1), Meter(Fraction(1)))
    width = 1 / 8
    source, rows = InsecureSeededSource(4), Rows(table, bounds)
    moved = []
    for _ in range(1000):
        task = Task(rows, bounds, range(1, 2), Meter(HALF, source), None)
        centres, _ = offset_round(task, synopsis, np.zeros((1, 1)), np.full((1, 1), width))
        moved.append(centres[0, 0])
    per_sum = float(HALF / (1 + count_weight(1, 0.1)))
    trust = 1 / (1 + 2 * (width / (per_sum * 10_000)) ** 2 * 12)
    assert_scale(np.array(moved) / trust / width * 10_000, 1 / per_sum)


def test_a_size_that_is_paid_for_gets_the_noise_of_three_per_cent() -> None:
    bounds = checked_bounds((-1, 1), 1)
    rows, source = Rows(np.zeros((5000, 1)), bounds), InsecureSeededSource(5)
    sizes = [Task(rows, bounds, range(1, 2), Meter(Fraction(1), source), None).paid_size() for _ in range(1500)]
    assert_scale(np.array(sizes) - 5000, 100 / 3)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("attributes", [1, 3])
def test_all_noise_of_a_fit_adds_up_to_epsilon(method: str, attributes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly: counts of rows, cells and clusters move by 1, sums of all attributes together by one lattice each."""
    cost = Fraction(0)

    def noise(scale: Fraction, shape: tuple[int, ...], source: NoiseSource | None) -> npt.NDArray[np.int64]:
        nonlocal cost
        cost += (attributes * LATTICE if len(shape) == 2 else 1) / Fraction(scale)
        return discrete_laplace(scale, shape, source)

    monkeypatch.setattr(mechanisms_module, "discrete_laplace", noise)
    rows = np.random.default_rng(1).uniform(-1, 1, (3000, attributes))
    model = KMeans(3, HALF, (-1, 1), method, source=InsecureSeededSource(6)).fit(rows)
    assert cost == model.epsilon_spent_ == HALF


@pytest.mark.parametrize("attributes", [1, 4])
def test_one_row_moves_the_tallies_by_no_more_than_the_noise_is_for(attributes: int) -> None:
    """Of a plain round and of one on offsets, wherever the row is and however narrow a cluster was thought to be."""
    generator = np.random.default_rng(attributes)
    bounds = checked_bounds((-1, 1), attributes)
    centres = generator.uniform(-1, 1, (3, attributes))
    widths = generator.uniform(0.01, 2, (3, attributes))

    def plain(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        counts, sums = np.zeros(3), np.zeros((3, attributes))
        for block in rows.blocks():
            add_to(counts, sums, members(block, centres), block)
        return counts, sums

    crowd = generator.uniform(-2, 2, (200, attributes))
    for tallies in (plain, lambda rows: _offset_tallies(rows, centres, widths)):
        counts, sums = tallies(Rows(crowd, bounds))
        for row in (*generator.uniform(-1, 1, (100, attributes)), np.full(attributes, 1e300), np.ones(attributes)):
            more_counts, more_sums = tallies(Rows(np.vstack([row, crowd]), bounds))
            assert np.abs(more_counts - counts).sum() == 1
            assert np.abs(more_sums - sums).max() <= 1
            assert np.count_nonzero(np.abs(more_sums - sums).sum(axis=1)) <= 1
            assert np.array_equal(np.rint(more_sums * LATTICE), more_sums * LATTICE)


@pytest.mark.parametrize("asked", [Fraction(2), Fraction(0), Fraction(-1)])
def test_a_meter_gives_no_more_than_it_has(asked: Fraction) -> None:
    meter = Meter(Fraction(1))
    with pytest.raises(RuntimeError, match="more than its epsilon"):
        meter.noisy(np.zeros(1, dtype=np.int64), 1, asked)
    assert meter.spent == 0
