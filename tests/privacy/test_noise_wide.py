"""Scales whose samples no int64 is sure to hold: exact all the same, in integers of any length."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

import streamdp.privacy.noise as noise_module
from streamdp.histograms import method_named, method_names
from streamdp.privacy.noise import LARGEST_SCALE, InsecureSeededSource, discrete_laplace, saturated
from streamdp.privacy.sparse_vector import SparseVector

DRAWS = 20_000


def exponential_p_value(samples: Any, scale: Fraction) -> float:
    """|x| / scale of so large a scale is exponential but for one part in 2**53; the seeded draws pass for ever."""
    return float(stats.kstest([float(abs(sample) / scale) for sample in samples], "expon").pvalue)


@pytest.mark.parametrize("scale", [Fraction(2**53 + 1), Fraction(2**70, 3), Fraction(10) ** 40], ids=str)
def test_the_distribution_beyond_64_bits(scale: Fraction) -> None:
    samples = discrete_laplace(scale, DRAWS, InsecureSeededSource(1))
    assert all(type(sample) is int for sample in samples)
    assert exponential_p_value(samples, scale) > 1e-3
    positive = int(np.count_nonzero(samples > 0))
    assert stats.binomtest(positive, DRAWS).pvalue > 1e-3
    for factor in (Fraction(1, 2), Fraction(9, 10), Fraction(11, 10)):
        assert exponential_p_value(discrete_laplace(scale * factor, DRAWS, InsecureSeededSource(2)), scale) < 1e-10


def test_every_bit_of_a_wide_sample_is_random() -> None:
    """The low bits of so wide a sample are fair coins; one stuck or lost would be seen in every draw."""
    samples = discrete_laplace(2**80, DRAWS, InsecureSeededSource(3))
    for bit in range(70):
        ones = sum((abs(sample) - 1) >> bit & 1 for sample in samples)
        assert abs(ones - DRAWS / 2) < 6 * math.sqrt(DRAWS / 4)


@pytest.mark.parametrize("scale", [Fraction(1, 50), Fraction(5), Fraction(12345, 7), Fraction(2**53)], ids=str)
def test_both_ways_draw_the_same_from_the_same_bytes(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = discrete_laplace(scale, (10, 100), InsecureSeededSource(4))
    monkeypatch.setattr(noise_module, "LARGEST_SCALE", 0)
    wide = discrete_laplace(scale, (10, 100), InsecureSeededSource(4))
    assert (narrow.dtype, wide.dtype) == (np.int64, object)
    assert narrow.tolist() == wide.tolist()


def test_sums_are_saturated_after_the_noise() -> None:
    assert saturated(np.array([2**63 - 1, -5])).tolist() == [2**63 - 1, -5]
    wide = saturated(np.array([2**200, 7, -(2**200)], dtype=object))
    assert wide.dtype == np.int64
    assert wide[0] == -wide[2] > 2**40
    assert wide[1] == 7


@pytest.mark.parametrize("method", method_names())
@pytest.mark.parametrize("shape", [(1,), (64,), (30, 40)], ids=str)
def test_every_histogram_method_is_total_at_a_tiny_epsilon(method: str, shape: tuple[int, ...]) -> None:
    counts = np.arange(math.prod(shape), dtype=np.int64)
    released = method_named(method).release(counts, shape, Fraction(1, 10**20), 1, InsecureSeededSource(5))
    assert released.counts.dtype == np.int64
    assert released.counts.size == counts.size


def test_a_sparse_vector_compares_integers_of_any_length() -> None:
    epsilon = Fraction(1, 2 * LARGEST_SCALE)
    far = 10**6 * LARGEST_SCALE
    sparse_vector = SparseVector(epsilon, 1, 1, source=InsecureSeededSource(6))
    assert sparse_vector.query_scale > LARGEST_SCALE
    restored = SparseVector.from_state(sparse_vector.state(), InsecureSeededSource(7))
    assert not restored.above(0, far)
    assert restored.above(2 * far, far)
