"""The transform is orthonormal, and the energy of ranges is what their sums are made of."""

import numpy as np
import pytest

from streamdp.histograms.bands import MAX_BANDS, bands_of

SHAPES = [(1,), (2,), (7,), (16,), (10, 10), (8, 2, 2, 3), (5, 1, 6), (2,) * 9, (3, 4, 5, 6, 7)]


@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(shape: tuple[int, ...]) -> None:
    cells = np.random.default_rng(1).normal(size=int(np.prod(shape)))
    bands = bands_of(shape)
    coefficients = bands.forward(cells)
    assert bands.inverse(coefficients) == pytest.approx(cells)
    assert coefficients @ coefficients == pytest.approx(cells @ cells)
    assert bands.sizes.sum() == cells.size
    assert bands.sizes @ bands.mean_square(coefficients) == pytest.approx(cells @ cells)
    assert bands.number <= MAX_BANDS


@pytest.mark.parametrize("shape", SHAPES)
def test_the_energy_of_a_range_is_its_number_of_cells_and_lies_where_its_coefficients_do(
    shape: tuple[int, ...],
) -> None:
    generator = np.random.default_rng(2)
    bands = bands_of(shape)
    for _ in range(5):
        chosen = [np.flatnonzero(generator.random(size) < 0.6) for size in shape]
        indicator = np.zeros(shape)
        indicator[np.ix_(*chosen)] = 1.0
        energy = bands.energy_of(chosen)
        assert energy.sum() == pytest.approx(indicator.sum())
        assert energy == pytest.approx(bands.sizes * bands.mean_square(bands.forward(indicator.reshape(-1))))


@pytest.mark.parametrize("size", [513, 1_000, 4_096])
def test_long_axes_are_near_enough(size: int) -> None:
    generator = np.random.default_rng(4)
    bands = bands_of((size,))
    ends = np.sort(generator.integers(size, size=(3_000, 2)), axis=1)
    energies = [bands.energy_of([slice(low, high + 1)]) for low, high in ends]
    assert bands.energy[0] == pytest.approx(np.mean(energies, axis=0)[0], rel=0.1)
    assert bands.energy[5:] == pytest.approx(np.mean(energies, axis=0)[5:], rel=0.1)
    assert (bands.energy > 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 8, 10, 23, 64])
def test_the_mean_energy_is_that_of_all_intervals(size: int) -> None:
    bands = bands_of((size,))
    energies = [
        bands.energy_of([slice(min(one, other), max(one, other) + 1)]) for one in range(size) for other in range(size)
    ]
    assert bands.energy == pytest.approx(np.mean(energies, axis=0))


@pytest.mark.parametrize(("shape", "levels"), [((64,), [3]), ((10, 7), [2, 1]), ((5, 6, 3), [0, 3, 1]), ((9,), [4])])
def test_sums_of_groups_tell_the_coarse_coefficients_and_no_others(shape: tuple[int, ...], levels: list[int]) -> None:
    bands = bands_of(shape)
    group, coarse = bands.groups(levels)
    number, part = bands.coarseness(levels)
    assert number == group.max() + 1 == coarse.sum()
    assert set(group) == set(range(number))
    for place, block in enumerate(bands.blocks(levels)):
        assert (group.reshape(shape)[np.ix_(*block)] == place).all()
        assert np.prod([len(cells) for cells in block]) == (group == place).sum()
    alike = np.random.default_rng(1).normal(size=number)[group]
    assert bands.forward(alike)[~coarse] == pytest.approx(0, abs=1e-9)
    without = np.random.default_rng(2).normal(size=group.size)
    without -= (np.bincount(group, without) / np.bincount(group))[group]
    assert bands.forward(without)[coarse] == pytest.approx(0, abs=1e-9)
    assert part == pytest.approx(bands.energy @ bands.mean(coarse.astype(float)) / bands.energy.sum())
