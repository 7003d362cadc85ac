"""What a release of `auto` measures in a wide histogram: cells and groups, each with the noise it pays for."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streamdp.privacy.mechanisms as mechanisms_module
from streamdp.histograms.bands import bands_of
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.strategies.auto.scales import Scales, cell_share, range_noise

WIDE = [(64, 64), (1024,), (100, 60), (48, 24, 24)]
NARROW = [(4,), (8, 8), (10, 10), (2,) * 6]


@pytest.mark.parametrize("shape", WIDE)
def test_wide_histograms_have_groups(shape: tuple[int, ...]) -> None:
    scales = Scales(bands_of(shape))
    assert 0 < scales.share == 1 - cell_share(shape) <= Fraction(3, 10)
    assert 1 < scales.groups < np.prod(shape) / 4
    energy = bands_of(shape).energy
    assert energy @ scales.factors() < 0.95 * energy.sum()


@pytest.mark.parametrize("shape", [*WIDE, *NARROW])
def test_the_noise_of_a_range_is_that_of_a_release(shape: tuple[int, ...]) -> None:
    bands, epsilon = bands_of(shape), Fraction(1, 50)
    scales = Scales(bands)
    noise = scales.noise(1 / (epsilon * (1 - scales.share)))
    assert range_noise(shape, epsilon) == pytest.approx(np.sqrt(bands.energy @ noise), rel=0.01)


@pytest.mark.parametrize("shape", NARROW)
def test_narrow_ones_have_none(shape: tuple[int, ...]) -> None:
    scales = Scales(bands_of(shape))
    assert scales.share == 0
    assert scales.factors() == pytest.approx(np.ones(bands_of(shape).number))
    counts = np.arange(np.prod(shape))
    released = scales.release(counts, shape, Fraction(1, 2), 3, InsecureSeededSource(1))
    assert released.scale == 6
    assert np.array_equal(released.counts - counts, discrete_laplace(Fraction(6), counts.size, InsecureSeededSource(1)))


@pytest.mark.parametrize("shape", WIDE)
def test_the_two_noises_cost_epsilon_together(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Fraction] = []

    def recorded(scale: Fraction, size: int, *rest: Any) -> Any:
        drawn.append(scale)
        return discrete_laplace(scale, size, *rest)

    monkeypatch.setattr(mechanisms_module, "discrete_laplace", recorded)
    released = Scales(bands_of(shape)).release(np.zeros(int(np.prod(shape)), np.int64), shape, Fraction(2, 3), 2)
    cells, groups = drawn
    assert 2 / cells + 2 / groups == Fraction(2, 3)
    assert released.scale == cells


def check_noise(shape: tuple[int, ...], halved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variance in every band is the one that the estimate reckons with."""
    if halved:
        monkeypatch.setattr(
            mechanisms_module, "discrete_laplace", lambda scale, *rest: discrete_laplace(scale / 2, *rest)
        )
    bands = bands_of(shape)
    scales, source = Scales(bands), InsecureSeededSource(4)
    counts = np.arange(int(np.prod(shape))) % 90
    runs, found = 300, np.zeros(bands.number)
    for _ in range(runs):
        released = scales.release(counts, shape, Fraction(1, 4), 1, source)
        found += bands.mean_square(bands.forward((released.counts - counts).astype(np.float64))) / runs
    assert released.scale is not None
    expected = scales.noise(released.scale)
    # Six deviations of a mean of squares, half as much again for tails heavier than the normal.
    room = 9 * np.sqrt(2 / (runs * bands.sizes))
    assert np.all(np.abs(found / expected - 1) < room)
    loss = found @ bands.energy / (expected @ bands.energy)
    assert loss == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("shape", [(64, 64), (1024,)])
def test_every_band_has_the_noise_that_is_reckoned_with(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_noise(shape, False, monkeypatch)


@pytest.mark.parametrize("shape", [(64, 64), (1024,)])
def test_half_the_noise_is_noticed(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_noise(shape, True, monkeypatch)


def test_a_large_epsilon_gives_the_counts_themselves() -> None:
    counts = np.arange(4096) * 3
    released = Scales(bands_of((64, 64))).release(counts, (64, 64), Fraction(10_000), 1, InsecureSeededSource(2))
    assert np.array_equal(released.counts, counts)
