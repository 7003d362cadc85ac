"""Each method is good at what it is for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streamdp.histograms import method_named
from streamdp.histograms.efpa import MIN_VALUES, candidates, expected_errors, smoothed
from streamdp.histograms.hierarchical import best_fan_out
from streamdp.histograms.merged import merge
from streamdp.histograms.post import integer_sums
from streamdp.histograms.privelet import forward, inverse
from streamdp.privacy.noise import InsecureSeededSource

CELLS = 1000
PLACES = np.arange(CELLS)
SMOOTH = np.rint(130 * np.exp(-(((PLACES - 500) / 150) ** 2) / 2)).astype(np.int64)
STEPS = np.where(PLACES < 240, 200, np.where(PLACES < 700, 0, 40)).astype(np.int64)
SPIKES = np.zeros(CELLS, dtype=np.int64)
SPIKES[::53] = 3000


def cell_error(name: str, counts: np.ndarray, epsilon: str) -> float:
    source = InsecureSeededSource(1)
    method = method_named(name)
    draws = [method.release(counts, counts.shape, Fraction(epsilon), 1, source).counts for _ in range(5)]
    return float(np.mean([np.abs(draw - counts).sum() for draw in draws]))


def range_error(name: str, counts: np.ndarray, epsilon: str) -> float:
    ends = np.sort(np.random.default_rng(1).integers(0, counts.size + 1, (500, 2)), axis=1)
    source = InsecureSeededSource(2)
    errors = []
    for _ in range(5):
        noisy = method_named(name).release(counts, counts.shape, Fraction(epsilon), 1, source).counts
        upto = np.concatenate([[0], np.cumsum(noisy - counts)])
        errors.append(np.abs(upto[ends[:, 1]] - upto[ends[:, 0]]).mean())
    return float(np.mean(errors))


def test_efpa_is_best_on_a_smooth_histogram() -> None:
    assert cell_error("efpa", SMOOTH, "1/20") < cell_error("laplace", SMOOTH, "1/20") / 3
    assert range_error("efpa", SMOOTH, "1/20") < range_error("laplace", SMOOTH, "1/20")


def test_efpa_falls_back_to_laplace_on_spikes_and_short_histograms() -> None:
    assert cell_error("efpa", SPIKES, "1") < 1.6 * cell_error("laplace", SPIKES, "1")
    short = method_named("efpa").release(np.zeros(MIN_VALUES - 1, dtype=np.int64), (31,), Fraction(1, 3), 1)
    assert short.scale == 3


def test_efpa_without_noise_is_a_projection_and_its_errors_are_true() -> None:
    frequencies = candidates(CELLS)
    errors = expected_errors(SMOOTH, frequencies, Fraction(1, 10**6))
    for place in (0, 1, 2, 5):
        kept = smoothed(SMOOTH, frequencies[place], Fraction(10**6), 1, InsecureSeededSource(1))
        assert np.linalg.norm(kept - SMOOTH) == pytest.approx(errors[place], rel=0.01, abs=0.1)


def test_every_frequency_may_be_kept_where_that_is_quick() -> None:
    assert candidates(33)[-1] <= 16
    assert candidates(2**20)[-1] <= 16
    assert candidates(CELLS)[:4] == [0, 1, 2, 3]


def test_php_is_best_on_steps() -> None:
    assert cell_error("php", STEPS, "1/50") < cell_error("laplace", STEPS, "1/50") / 3


@pytest.mark.parametrize("name", ["hierarchical", "privelet", "psd"])
def test_trees_and_wavelets_are_better_on_ranges_of_many_cells(name: str) -> None:
    spikes = np.zeros(16_384, dtype=np.int64)
    spikes[::531] = 3000
    assert range_error(name, spikes, "1/10") < range_error("laplace", spikes, "1/10")


def test_psd_follows_the_data_in_two_dimensions() -> None:
    counts = np.zeros((64, 64), dtype=np.int64)
    counts[10:20, 40:50] = 50
    flat = counts.reshape(-1)
    noisy = method_named("psd").release(flat, (64, 64), Fraction(1, 20), 1, InsecureSeededSource(1)).counts
    laplace = method_named("laplace").release(flat, (64, 64), Fraction(1, 20), 1, InsecureSeededSource(1)).counts
    assert np.abs(noisy - flat).sum() < np.abs(laplace - flat).sum() / 3


@pytest.mark.parametrize("size", [2, 5, 16, 100])
def test_the_wavelet_turns_back(size: int) -> None:
    values = np.random.default_rng(1).integers(0, 100, (3, size, 2))
    coefficients = forward(values, 1)
    assert (coefficients.take(0, axis=1) == values.sum(axis=1)).all()
    np.testing.assert_allclose(inverse(coefficients.astype(float), 1, size), values)


@pytest.mark.parametrize("shape", [(8,), (1024,)])
def test_a_cell_moves_the_wavelet_by_one_in_each_height(shape: tuple[int, ...]) -> None:
    unit = np.zeros(shape, dtype=np.int64)
    unit[5] = 1
    assert np.abs(forward(unit, 0)).sum() == 1 + np.log2(shape[0])


@pytest.mark.parametrize(("cells", "fan_out"), [(1, 2), (2, 2), (16, 16), (1000, 32), (1 << 20, 16)])
def test_the_fan_out_fits_the_domain(cells: int, fan_out: int) -> None:
    assert best_fan_out(cells) == fan_out


def test_merged_follows_smooth_stretches_and_cells_that_stand_out() -> None:
    assert range_error("merged", SMOOTH, "1/20") < range_error("laplace", SMOOTH, "1/20") / 1.5
    assert cell_error("merged", STEPS, "1/20") < cell_error("laplace", STEPS, "1/20") / 3
    noisy = method_named("merged").release(SPIKES, (CELLS,), Fraction(1), 1, InsecureSeededSource(1)).counts
    assert np.abs(noisy[::53] - 3000).max() < 100
    assert np.median(np.abs(np.delete(noisy, np.arange(0, CELLS, 53)))) <= 3


def test_merging_keeps_what_differs_and_averages_what_does_not() -> None:
    row = np.array([[10.0, 12, 8, 10, 500, 502, 499, 501, 500, 11]])
    merged = merge(row, variance=4.0)
    np.testing.assert_allclose(merged, [[10.0] * 4 + [500.4] * 5 + [11.0]])


@pytest.mark.parametrize("cells", [129, 1000, 1001, 4099])
def test_groups_that_end_beyond_the_cells_lose_nothing(cells: int) -> None:
    counts = np.full(cells, 50, dtype=np.int64)
    noisy = method_named("merged").release(counts, (cells,), Fraction(20), 1, InsecureSeededSource(1)).counts
    assert abs(int(noisy.sum()) - 50 * cells) < 60
    assert np.abs(noisy - 50).max() <= 3


def test_rounding_keeps_the_sums_over_cells_of_less_than_one_row() -> None:
    values = np.full(1000, 0.3)
    assert integer_sums(values).sum() == 300
    rough = np.random.default_rng(1).normal(0, 3, 500)
    upto = np.cumsum(integer_sums(rough))
    assert np.abs(upto - np.cumsum(rough)).max() <= 0.5 + 1e-9
