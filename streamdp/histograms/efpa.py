"""Noise on the lowest frequencies, for smooth histograms; the number kept is chosen privately."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from streamdp.arrays import Counts, Floats
from streamdp.histograms.base import Noisy, Statement
from streamdp.histograms.laplace import Laplace
from streamdp.histograms.post import integer_sums
from streamdp.privacy.mechanisms import noisy_sum
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.selection import permute_and_flip

# Below this many values the choice costs more than smoothing gains.
MIN_VALUES = 32
SELECTION_SHARE = Fraction(1, 4)
# Cosines are rounded to multiples of 1 / UNIT, per cell, so that the noisy coefficients are integers.
UNIT = 2**16
# Cells times coefficients; keeps the exact sums quick. A histogram that needs more is not smooth.
LARGEST_PRODUCT = 2**24
SCORE_LATTICE = 64
# Counts are cut here for the choice only, so that the error of a floating-point transform stays far below its slack.
LARGEST_SCORED = 2**26
SCORE_SLACK = Fraction(1, 64)


class Efpa:
    """Acs, Castelluccia, Chen (2012), with plain Laplace noise as one more candidate.

    Guarantee: `epsilon`-differential privacy, a quarter of it for the choice and the rest for the noise. The choice, by
    permute-and-flip, minimises the root of the squared norm of what is cut off plus the expected squared norm of the
    noise; one user moves the norm of what is cut off by at most `sensitivity`. The z real coefficients kept have L1
    sensitivity z / sqrt(A) in the orthonormal basis over A cells, since |cos| + |sin| is at most sqrt(2), and not the
    sqrt(z) of the paper; the scale used is that of the rounded basis, exactly. Spiky histograms ring when smoothed, and
    choose Laplace; those below 32 values get it outright. Cells of several axes are taken in row-major order.
    """

    name = "efpa"
    statement = Statement(
        lattice="sums of cosines and sines rounded per cell to multiples of 2^-16; then rounded to integers",
        sensitivity="m times the largest absolute sum over one cell of the kept, rounded basis: about m z / sqrt(A)",
        budget="1/4 for the number of coefficients, 3/4 for the noise on them; below 32 cells all for Laplace noise",
        structure="the number of coefficients, or none and plain Laplace, is chosen by permute-and-flip with the 1/4; "
        "its score has sensitivity m, and 1/64 more for each of rounding and floating point",
    )

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """Every count, smoothed as much as was chosen."""
        if counts.size < MIN_VALUES:
            return Laplace().release(counts, shape, epsilon, sensitivity, source)
        for_choice = epsilon * SELECTION_SHARE
        for_noise = epsilon - for_choice
        frequencies = candidates(counts.size)
        scores = -expected_errors(counts, frequencies, sensitivity / for_noise)
        chosen = permute_and_flip(scores, for_choice, sensitivity + SCORE_SLACK, source=source, lattice=SCORE_LATTICE)
        if chosen == len(frequencies):
            return Laplace().release(counts, shape, for_noise, sensitivity, source)
        return Noisy(integer_sums(smoothed(counts, frequencies[chosen], for_noise, sensitivity, source)), None)


def candidates(cells: int) -> list[int]:
    """Numbers of frequencies beside the constant: all the small ones, then a fifth more each time."""
    most = min((cells - 1) // 2, LARGEST_PRODUCT // cells)
    frequencies = [0]
    while (following := max(frequencies[-1] + 1, frequencies[-1] * 6 // 5)) <= most:
        frequencies.append(following)
    return frequencies


def expected_errors(counts: Counts, frequencies: list[int], scale: Fraction) -> Floats:
    """The expected L2 error of each candidate, and last that of Laplace noise of `scale` in every cell."""
    cells = counts.size
    energies = np.square(np.abs(np.fft.rfft(np.clip(counts, -LARGEST_SCORED, LARGEST_SCORED)))) / cells
    energies[1:] *= 2
    if cells % 2 == 0:
        energies[-1] /= 2
    # Summed from the end: as a difference from the whole, a small rest would drown in rounding errors.
    rest = np.append(np.cumsum(energies[::-1])[::-1], 0.0)
    kept = 2 * np.array(frequencies) + 1
    noise = 2 * kept * (kept / math.sqrt(cells) * float(scale)) ** 2
    errors = np.sqrt(rest[np.array(frequencies) + 1] + noise)
    return np.append(errors, math.sqrt(2 * cells) * float(scale))


def smoothed(
    counts: Counts, frequencies: int, epsilon: Fraction, sensitivity: int, source: NoiseSource | None
) -> Floats:
    """The histogram of the constant and that many frequencies, with noise on each coefficient."""
    cells = counts.size
    angles = 2 * np.pi * np.arange(cells) / cells
    cosines, sines = (np.rint(UNIT * wave(angles)).astype(np.int64) for wave in (np.cos, np.sin))
    constant = round(UNIT / math.sqrt(2))
    sums = np.empty(2 * frequencies + 1, dtype=np.int64)
    sums[0] = constant * counts.sum()
    moved = np.full(cells, constant)
    place = np.zeros(cells, dtype=np.intp)
    for frequency in range(1, frequencies + 1):
        place += np.arange(cells)
        place[place >= cells] -= cells
        for index, waves in ((2 * frequency - 1, cosines[place]), (2 * frequency, sines[place])):
            sums[index] = np.dot(waves, counts)
            moved += np.abs(waves)
    # What one user can move is a fact of the rounded basis: the largest absolute sum over a cell.
    scale = sensitivity * int(moved.max()) / epsilon
    sums = noisy_sum(sums, scale, source)
    spectrum = np.zeros(cells // 2 + 1, dtype=np.complex128)
    spectrum[0] = sums[0] / constant
    spectrum[1 : frequencies + 1] = (sums[1::2] - 1j * sums[2::2]) / UNIT
    return np.fft.irfft(spectrum, cells)
