import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from streamdp.errors import ConfigurationError
from streamdp.histograms import post_process
from streamdp.histograms.post import consistent_total, integer

noisy_counts = st.lists(st.integers(-60, 60), min_size=1, max_size=30).map(lambda x: np.array(x, dtype=np.int64))


def test_without_options_the_integers_are_published_as_they_are() -> None:
    noisy = np.array([-3, 0, 9], dtype=np.int64)
    assert post_process(noisy).tolist() == [-3, 0, 9]


def test_nonnegative_cuts_at_zero() -> None:
    assert post_process(np.array([-3, 0, 9], dtype=np.int64), ["nonnegative"]).tolist() == [0, 0, 9]


def test_real_values_are_rounded() -> None:
    rounded = post_process(np.array([-0.7, 1.4, 2.6]), ["integer"])
    assert rounded.dtype == np.int64
    assert rounded.tolist() == [-1, 1, 3]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="rounder"):
        post_process(np.zeros(1, dtype=np.int64), ["rounder"])


@settings(deadline=None)
@given(noisy_counts)
def test_consistent_total_is_nonnegative_and_keeps_the_noisy_total(noisy: np.ndarray) -> None:
    projected = consistent_total(noisy)
    assert projected.dtype == np.int64
    assert projected.min() >= 0
    assert projected.sum() == max(noisy.sum(), 0)
    assert np.array_equal(consistent_total(projected), projected)


@settings(deadline=None)
@given(noisy_counts.filter(lambda noisy: noisy.sum() > 0))
def test_consistent_total_is_the_projection_but_for_rounding(noisy: np.ndarray) -> None:
    total = noisy.sum()
    tau = brentq(lambda t: np.maximum(noisy - t, 0).sum() - total, -1.0, float(noisy.max()), xtol=1e-12)
    assert np.abs(consistent_total(noisy) - np.maximum(noisy - tau, 0)).max() < 1 + 1e-6


def test_consistent_total_by_hand() -> None:
    # The total is 5. Taking 2.5 from each of the two large cells and cutting the rest leaves 3.5 and 1.5.
    assert consistent_total(np.array([6, -5, 4], dtype=np.int64)).tolist() == [4, 0, 1]


def test_values_beyond_the_public_range_are_clipped_so_that_distances_cannot_overflow() -> None:
    extreme = np.array([2**62, -(2**62), 5], dtype=np.int64)
    assert integer(extreme).tolist() == [2**40, -(2**40), 5]
    assert np.abs(integer(np.full(2**22, 2**62))).astype(object).max() * 2**23 < 2**63
