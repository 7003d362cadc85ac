"""What each method asks of the noise adds up to epsilon, exactly: no chance, any wrong scale or split is found."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from streamdp.histograms import efpa, method_named, php, privelet, psd
from streamdp.histograms.privelet import forward
from streamdp.privacy import mechanisms
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.privacy.selection import permute_and_flip

EPSILON = Fraction(7, 10)
# What one user moves the counts by.
MOVED = 3


class Asked:
    """The scales of all noise, and the epsilon and sensitivity of all choices, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scales: list[Fraction] = []
        self.choices: list[tuple[Fraction, Any]] = []
        monkeypatch.setattr(mechanisms, "discrete_laplace", self._noise)
        for chooser in (efpa, php, psd):
            monkeypatch.setattr(chooser, "permute_and_flip", self._choice)

    def _noise(self, scale: Fraction, *rest: Any) -> Any:
        self.scales.append(Fraction(scale))
        return discrete_laplace(scale, *rest)

    def _choice(self, scores: Any, epsilon: Fraction, sensitivity: Any, **rest: Any) -> int:
        self.choices.append((epsilon, sensitivity))
        return permute_and_flip(scores, epsilon, sensitivity, **rest)

    def of(self, method: str, shape: tuple[int, ...]) -> Asked:
        self.scales, self.choices = [], []
        counts = np.arange(int(np.prod(shape)), dtype=np.int64) ** 2 % 5000
        method_named(method).release(counts, shape, EPSILON, MOVED, InsecureSeededSource(1))
        return self

    @property
    def noise_cost(self) -> Fraction:
        """When one user moves what each noise is added to by `MOVED` in L1."""
        return sum((MOVED / scale for scale in self.scales), Fraction(0))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


SHAPES = [(1,), (2,), (7,), (40,), (128,), (129,), (1000,), (30, 40)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", ["laplace", "hierarchical", "merged"])
def test_sums_over_disjoint_cells_share_epsilon(asked: Asked, method: str, shape: tuple[int, ...]) -> None:
    assert asked.of(method, shape).noise_cost == EPSILON
    assert asked.choices == []


@pytest.mark.parametrize("shape", [*SHAPES, (64, 2), (300, 2, 300)])
def test_privelet_pays_for_every_coefficient_that_a_cell_is_in(asked: Asked, shape: tuple[int, ...]) -> None:
    (scale,) = asked.of("privelet", shape).scales
    axes = [axis for axis, size in enumerate(shape) if size > 1 and (len(shape) == 1 or privelet._gains(size))]
    # The wavelet is a product over the axes, and so is the L1 norm of a cell's coefficients.
    moved = 1
    for axis in axes:
        moved *= int(np.abs(forward(np.eye(shape[axis], dtype=np.int64), 1)).sum(axis=1).max())
    assert scale == moved * MOVED / EPSILON


@pytest.mark.parametrize("shape", SHAPES)
def test_psd_pays_once_a_level_for_a_median_and_for_the_sums(asked: Asked, shape: tuple[int, ...]) -> None:
    asked.of("psd", shape)
    levels_of_medians = len(asked.scales) // 2
    assert {sensitivity for _, sensitivity in asked.choices} <= {MOVED}
    assert len({epsilon for epsilon, _ in asked.choices}) <= 1
    for_medians = levels_of_medians * asked.choices[0][0] if asked.choices else Fraction(0)
    assert asked.noise_cost + for_medians == EPSILON


@pytest.mark.parametrize("shape", SHAPES)
def test_php_pays_once_a_level_for_a_cut_and_once_for_the_sums(asked: Asked, shape: tuple[int, ...]) -> None:
    asked.of("php", shape)
    levels = min((int(np.prod(shape)) - 1).bit_length(), 6)
    assert len(asked.scales) == 1
    assert set(asked.choices) <= {(EPSILON / 2 / levels if levels else None, 2 * MOVED * 64 + 2)}
    assert asked.noise_cost + (EPSILON / 2 if levels else 0) == EPSILON


@pytest.mark.parametrize("shape", [(33,), (101,), (1000,), (30, 40)])
def test_efpa_pays_a_quarter_for_the_choice_and_the_rest_for_the_coefficients(
    asked: Asked, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = int(np.prod(shape))
    for place, frequencies in enumerate(efpa.candidates(cells)[:12]):
        monkeypatch.setattr(efpa, "permute_and_flip", lambda *_, place=place, **__: place)
        (scale,) = asked.of("efpa", shape).scales
        angles = 2 * np.pi * np.arange(cells) / cells
        moved = np.full(cells, round(efpa.UNIT / np.sqrt(2)), dtype=np.int64)
        for frequency in range(1, frequencies + 1):
            turned = angles[np.arange(cells) * frequency % cells]
            for wave in (np.cos, np.sin):
                moved += np.abs(np.rint(efpa.UNIT * wave(turned)).astype(np.int64))
        assert scale == int(moved.max()) * MOVED / (EPSILON * 3 / 4)
        # As in the orthonormal basis, but for rounding: z / sqrt(A).
        assert moved.max() / efpa.UNIT * np.sqrt(2) <= (2 * frequencies + 1) * 1.001


def test_efpa_pays_for_laplace_noise_what_the_choice_left(asked: Asked) -> None:
    asked.of("efpa", (20,))
    assert (asked.noise_cost, asked.choices) == (EPSILON, [])
    asked.of("efpa", (64,))
    assert asked.choices == [(EPSILON / 4, MOVED + Fraction(1, 64))]
