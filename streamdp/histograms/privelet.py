"""Noise on wavelet coefficients, for range counts over many cells and axes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts, Floats
from streamdp.histograms.base import Noisy, Statement
from streamdp.histograms.post import integer_sums
from streamdp.privacy.mechanisms import noisy_sum
from streamdp.privacy.noise import NoiseSource


class Privelet:
    """Xiao, Wang, Gehrke (2010): noise on the Haar wavelet of the histogram, axis by axis.

    Guarantee: `epsilon`-differential privacy. A coefficient is kept as the sum of one half of its interval less that of
    the other, an integer; the paper's weights turn its averages into exactly this. Each cell is in 1 + log2(size)
    coefficients of an axis with weight 1 or -1, so a user moves the coefficients by at most `sensitivity` times the
    product of that over the axes, in L1. With several axes, one too short to gain is left as it is (Privelet+).
    """

    name = "privelet"
    statement = Statement(
        lattice="differences of sums, so the integers; the counts are rounded to integers, which is post-processing",
        sensitivity="m times the product over the transformed axes of 1 + log2(their size, padded to a power of two)",
        budget="all of epsilon on all coefficients together",
        structure="none depends on the data: the wavelet is a function of the shape",
    )

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """Every count, put together from its noisy coefficients."""
        axes = [axis for axis, size in enumerate(shape) if size > 1 and (len(shape) == 1 or _gains(size))]
        coefficients: Counts = counts.reshape(shape)
        for axis in axes:
            coefficients = forward(coefficients, axis)
            sensitivity *= 1 + _height(shape[axis])
        scale = sensitivity / epsilon
        noisy = noisy_sum(coefficients, scale, source)
        if not axes:
            return Noisy(noisy.reshape(-1), scale)
        values: Floats = noisy.astype(np.float64)
        for axis in axes:
            values = inverse(values, axis, shape[axis])
        return Noisy(integer_sums(values.reshape(-1)), None)


def _height(size: int) -> int:
    return (size - 1).bit_length()


def _gains(size: int) -> bool:
    """Whether the worst range has less variance with the wavelet than without (their section 6.3)."""
    return size > (1 + _height(size)) ** 2 * (2 + _height(size)) / 2


def forward(values: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """The sum over the axis, then, from the widest interval to the narrowest, left half less right half."""
    rest = np.moveaxis(values, axis, -1)
    width = [(0, 0)] * (rest.ndim - 1) + [(0, (1 << _height(rest.shape[-1])) - rest.shape[-1])]
    rest = np.pad(rest, width)
    parts = []
    while rest.shape[-1] > 1:
        parts.append(rest[..., ::2] - rest[..., 1::2])
        rest = rest[..., ::2] + rest[..., 1::2]
    return np.moveaxis(np.concatenate([rest, *reversed(parts)], axis=-1), -1, axis)


def inverse(coefficients: Floats, axis: int, size: int) -> Floats:
    """The first `size` values whose `forward` these are."""
    rest = np.moveaxis(coefficients, axis, -1)
    values = rest[..., :1]
    while (width := values.shape[-1]) < rest.shape[-1]:
        differences = rest[..., width : 2 * width]
        values = np.stack([values + differences, values - differences], axis=-1).reshape(*values.shape[:-1], -1) / 2
    return np.moveaxis(values[..., :size], -1, axis)
