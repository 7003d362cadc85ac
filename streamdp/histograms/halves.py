"""Counts that are not negative, near noisy ones: a histogram halved again and again, from the whole to the cells.

Cutting every negative cell at zero makes a range of many cells far too heavy, and so does taking from all others what
that adds. Here a block of cells keeps its sum and only its two halves are told apart anew: a half is never less than
nothing and never more than the block. What was wrong by a lot in one cell is wrong by a little in its neighbours, and
ranges hardly notice. Public arithmetic on what is noisy already: it costs nothing.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from streamdp.arrays import Floats
from streamdp.histograms.bands import Bands, Selection, bands_of

_TINY = 1e-9
_UNKNOWN = 4 / 3
"""How far a difference of which only its bound is known is from a bound, in mean square, in squares of the bound."""


class Halves:
    """The blocks of a histogram: at every step down, all of them are halved along the axis that is the longest."""

    def __init__(self, bands: Bands) -> None:
        sizes, lengths = list(bands.shape), [1] * len(bands.shape)
        # From the cells up.
        self._axes: list[int] = []
        blocks = [_first_block(bands.shape, lengths)]
        while max(sizes) > 1:
            axis = int(np.argmax(sizes))
            sizes[axis] = -(-sizes[axis] // 2)
            lengths[axis] *= 2
            self._axes.append(axis)
            blocks.append(_first_block(bands.shape, lengths))
        self._shape = bands.shape
        self._energies = [bands.energy_of(block) for block in blocks]
        # The sum of all cells is above the last step.
        whole = len(self._axes)
        finest = [np.full(levels, whole) for levels in bands.levels]
        for step, axis in enumerate(self._axes):
            halved = self._axes[: step + 1].count(axis)
            finest[axis][bands.levels[axis] - halved] = step
        self._shares = bands.shares(finest, whole + 1)

    def positive(self, cells: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Cells none of which is negative, near these, which have errors of the given variances in their bands.

        And of each band, about what part of its variance is left: where blocks hold less than the noise, errors are no
        larger than what they hold.
        """
        sums = [cells.reshape(self._shape)]
        for axis in self._axes:
            sums.append(_paired(sums[-1], axis))
        of_block = [float(energy @ variances) for energy in self._energies]
        total, variance = np.maximum(sums[-1], 0), np.full(sums[-1].shape, of_block[-1])
        left = np.ones(len(sums))
        for step in reversed(range(len(self._axes))):
            axis = self._axes[step]
            noise = max(4 * of_block[step] - of_block[step + 1], _TINY)
            halves = np.moveaxis(sums[step], axis, 0)
            pairs, wholes, unsure = len(halves) // 2, np.moveaxis(total, axis, 0), np.moveaxis(variance, axis, 0)
            first, second, whole = halves[: 2 * pairs : 2], halves[1 : 2 * pairs : 2], wholes[:pairs]
            differ = np.clip(first - second, -whole, whole)
            most = _UNKNOWN * (whole**2 + unsure[:pairs])
            of_difference = noise * most / (noise + most)
            left[step] = of_difference.mean() / noise
            total = _parted(wholes, (whole + differ) / 2, (whole - differ) / 2, axis)
            each = (unsure[:pairs] + of_difference) / 4
            variance = _parted(unsure, each, each, axis)
        return total.reshape(-1), self._shares @ left


@lru_cache(maxsize=16)
def halves_of(shape: tuple[int, ...]) -> Halves:
    """The halves of that shape."""
    return Halves(bands_of(shape))


def _first_block(shape: tuple[int, ...], lengths: list[int]) -> Selection:
    return [slice(0, min(length, size)) for length, size in zip(lengths, shape, strict=True)]


def _paired(values: Floats, axis: int) -> Floats:
    """Sums of neighbours along an axis; an odd one out is alone."""
    along = np.moveaxis(values, axis, 0)
    pairs = len(along) // 2
    paired = np.concatenate([along[: 2 * pairs : 2] + along[1 : 2 * pairs : 2], along[2 * pairs :]])
    return np.moveaxis(paired, 0, axis)


def _parted(wholes: Floats, first: Floats, second: Floats, axis: int) -> Floats:
    """The reverse: each of `wholes` in two, but one that was alone."""
    pairs = len(first)
    parted = np.empty((pairs + len(wholes), *wholes.shape[1:]))
    parted[: 2 * pairs : 2], parted[1 : 2 * pairs : 2], parted[2 * pairs :] = first, second, wholes[pairs:]
    return np.moveaxis(parted, 0, axis)
