"""Each method's noise has the scale it claims, found from outside; the same checks fail when a scale is halved."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import streamdp.histograms.efpa as efpa_module
import streamdp.histograms.php as php_module
import streamdp.histograms.psd as psd_module
import streamdp.privacy.mechanisms as mechanisms_module
from streamdp.histograms import Efpa, Hierarchical, Merged, Php, Privelet, Psd
from streamdp.histograms.efpa import smoothed
from streamdp.histograms.hierarchical import best_fan_out
from streamdp.histograms.tree import Level, consistent_leaves
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.privacy.selection import permute_and_flip

EPSILON = Fraction(1, 10)


def root_mean_square(draws: list[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(np.array(draws, dtype=np.float64)))))


def check_privelet() -> None:
    """The sum over the cells is the first coefficient: noise of scale (1 + 10) / epsilon, and its deviation."""
    source = InsecureSeededSource(1)
    zeros = np.zeros(1024, dtype=np.int64)
    totals = [Privelet().release(zeros, (1024,), EPSILON, 1, source).counts.sum() for _ in range(2000)]
    # Rounding 1024 counts adds less than 1 % here.
    assert root_mean_square(totals) == pytest.approx(np.sqrt(2) * 110, rel=0.15)


def check_privelet_in_two_dimensions() -> None:
    source = InsecureSeededSource(1)
    zeros = np.zeros(1024 * 2, dtype=np.int64)
    totals = [
        Privelet().release(zeros, (1024, 2), EPSILON, 1, source).counts.reshape(1024, 2)[:, 0].sum()
        for _ in range(1000)
    ]
    assert root_mean_square(totals) == pytest.approx(np.sqrt(2) * 110, rel=0.2)


def check_efpa() -> None:
    """Two frequencies kept of 101 cells: five coefficients whose absolute sum over a cell is that of the basis."""
    cells = 101
    angles = 2 * np.pi * np.arange(cells) / cells
    moved = sum(np.abs(wave(k * angles)) for k in (1, 2) for wave in (np.cos, np.sin)) + np.sqrt(0.5)
    scale = moved.max() / float(EPSILON)
    source = InsecureSeededSource(2)
    zeros = np.zeros(cells, dtype=np.int64)
    totals = [smoothed(zeros, 2, EPSILON, 1, source).sum() for _ in range(2000)]
    assert root_mean_square(totals) == pytest.approx(np.sqrt(2) * scale * np.sqrt(2), rel=0.15)
    assert moved.max() / np.sqrt(cells / 2) < 5 / np.sqrt(cells) * 1.001


def check_php() -> None:
    """The total has the noise of as many parts as there are, at half of epsilon; a plateau has few parts."""
    source = InsecureSeededSource(3)
    zeros = np.zeros(2, dtype=np.int64)
    totals = [
        release.counts[0]
        for release in (Php().release(zeros, (2,), EPSILON, 1, source) for _ in range(3000))
        if release.scale is not None
    ]
    assert len(totals) > 300
    assert root_mean_square(totals) == pytest.approx(np.sqrt(2) * 20, rel=0.2)


def check_psd() -> None:
    """Two cells: one level without a median, so all of epsilon in each."""
    source = InsecureSeededSource(4)
    draws = [Psd().release(np.zeros(2, dtype=np.int64), (2,), EPSILON, 1, source).counts for _ in range(1000)]
    assert root_mean_square(draws) == pytest.approx(np.sqrt(2) * 10, rel=0.15)


def check_hierarchical() -> None:
    """A thousand cells: 32 nodes above, so two levels of epsilon / 2. The variance of least squares, by hand."""
    source = InsecureSeededSource(5)
    assert best_fan_out(1000) == 32
    draws = [Hierarchical().release(np.zeros(1000, dtype=np.int64), (1000,), EPSILON, 1, source) for _ in range(50)]
    unit = 2 * 20.0**2
    families = [draw.counts[:32].sum() for draw in draws] + [draw.counts[32:64].sum() for draw in draws]
    assert root_mean_square(families) == pytest.approx(np.sqrt(unit * 32 / 33), rel=0.3)
    cells = np.concatenate([draw.counts for draw in draws])
    assert root_mean_square([cells]) == pytest.approx(np.sqrt(unit * (1 - 1 / 33)), rel=0.05)


def check_merged() -> None:
    """What a single cell, and the sum over groups, gets of epsilon: all, and three quarters."""
    source = InsecureSeededSource(8)
    one = np.zeros(1, dtype=np.int64)
    draws = [Merged().release(one, (1,), EPSILON, 1, source).counts[0] for _ in range(1000)]
    assert root_mean_square(draws) == pytest.approx(np.sqrt(2) * 10, rel=0.15)
    many = np.zeros(640, dtype=np.int64)
    totals = [Merged().release(many, (640,), EPSILON, 1, source).counts.sum() for _ in range(300)]
    assert root_mean_square(totals) == pytest.approx(np.sqrt(2 * 64) * 10 / 0.75, rel=0.2)


CHECKS: list[Callable[[], None]] = [
    check_privelet,
    check_privelet_in_two_dimensions,
    check_efpa,
    check_merged,
    check_php,
    check_psd,
    check_hierarchical,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_noise_has_the_scale_that_epsilon_buys(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("check", CHECKS)
def test_the_checks_notice_half_the_noise(check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms_module, "discrete_laplace", lambda scale, *rest: discrete_laplace(scale / 2, *rest))
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize(
    ("method", "module", "cells", "asked"),
    [
        (Efpa(), efpa_module, 64, [(Fraction(1, 40), Fraction(65, 64))]),
        (Php(), php_module, 2, [(Fraction(1, 20), 2 * 64 + 2)]),
        (Psd(), psd_module, 16, [(Fraction(3, 200), 1)] * 3),
    ],
)
def test_choices_that_follow_the_data_cost_their_share(
    method: Any, module: ModuleType, cells: int, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two levels of medians in psd: one choice above, two side by side below."""
    seen = []

    def watched(scores: Any, epsilon: Fraction, sensitivity: Any, **more: Any) -> int:
        seen.append((epsilon, sensitivity))
        return permute_and_flip(scores, epsilon, sensitivity, **more)

    monkeypatch.setattr(module, "permute_and_flip", watched)
    method.release(1000 * np.arange(cells), (cells,), EPSILON, 1, InsecureSeededSource(6))
    assert seen == asked


def test_least_squares_over_an_uneven_tree_is_what_linear_algebra_says() -> None:
    """Against the weighted normal equations, for a tree whose families differ in size and levels in noise."""
    generator = np.random.default_rng(7)
    parents = [np.array([0, 0]), np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 2, 3, 3, 3, 4])]
    scales = [Fraction(3), Fraction(5), Fraction(2)]
    levels = [
        Level(parent, generator.integers(-50, 50, parent.size), scale)
        for parent, scale in zip(parents, scales, strict=True)
    ]
    leaves = np.eye(8)
    above = np.zeros((5, 8))
    above[parents[2], np.arange(8)] = 1
    top = np.zeros((2, 5))
    top[parents[1], np.arange(5)] = 1
    design = np.vstack([top @ above, above, leaves])
    weights = np.repeat([1 / float(scale) for scale in scales], [2, 5, 8])
    observed = np.concatenate([level.noisy for level in levels])
    expected = np.linalg.lstsq(design * weights[:, None], observed * weights, rcond=None)[0]
    np.testing.assert_allclose(consistent_leaves(levels), expected)
