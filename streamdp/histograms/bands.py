"""Histograms by scale: an orthonormal Haar transform along every axis, and its coefficients in bands of like scale.

Independent noise in the cells is noise of the same variance in every coefficient, while the data is strong in few of
them: that is what makes filtering band by band worth while. It is public arithmetic and knows nothing of privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats

Selection = Sequence[slice | npt.NDArray[np.int64]]

# With more combinations of levels than this, those of the same total level share a band.
MAX_BANDS = 256
_MAX_EXACT = 512


class _Axis:
    """One axis of `size` cells.

    A pair of neighbours becomes its sum and its difference, each scaled to unit length; the sums pair up again, and an
    odd one out moves up alone. Level 0 is the total, the highest level single cells.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.steps: list[tuple[int, Floats, Floats]] = []
        sizes = np.ones(size)
        while sizes.size > 1:
            pairs = sizes.size // 2
            left, right = sizes[: 2 * pairs : 2], sizes[1 : 2 * pairs : 2]
            both = left + right
            self.steps.append((pairs, np.sqrt(left / both), np.sqrt(right / both)))
            sizes = np.concatenate([both, sizes[2 * pairs :]])
        levels = [np.zeros(1, np.int64)]
        levels += [np.full(pairs, level) for level, (pairs, _, _) in enumerate(reversed(self.steps), start=1)]
        self.level_of = np.concatenate(levels)
        self.levels = len(self.steps) + 1

    def forward(self, values: Floats) -> Floats:
        """Along the first axis."""
        details = []
        for pairs, left, right in self.steps:
            along = (-1, *(1,) * (values.ndim - 1))
            first, second = values[: 2 * pairs : 2], values[1 : 2 * pairs : 2]
            weight, other = left.reshape(along), right.reshape(along)
            details.append(other * first - weight * second)
            values = np.concatenate([weight * first + other * second, values[2 * pairs :]])
        return np.concatenate([values, *reversed(details)])

    def inverse(self, coefficients: Floats) -> Floats:
        """Along the first axis."""
        values, at = coefficients[:1], 1
        for pairs, left, right in reversed(self.steps):
            along = (-1, *(1,) * (coefficients.ndim - 1))
            weight, other = left.reshape(along), right.reshape(along)
            sums, details = values[:pairs], coefficients[at : at + pairs]
            at += pairs
            wider = np.empty((pairs + values.shape[0], *coefficients.shape[1:]))
            wider[: 2 * pairs : 2] = weight * sums + other * details
            wider[1 : 2 * pairs : 2] = other * sums - weight * details
            wider[2 * pairs :] = values[pairs:]
            values = wider
        return values

    def nodes(self, level: int) -> npt.NDArray[np.intp]:
        """Of each cell, in which sum it is when only coefficients up to that level are told apart."""
        node = np.arange(self.size)
        for pairs, _, _ in self.steps[: len(self.steps) - level]:
            node = np.where(node < 2 * pairs, node // 2, node - pairs)
        return node

    def energy(self, indicator: Floats) -> Floats:
        """How much of the squared length of an indicator lies in each level."""
        energy: Floats = np.bincount(self.level_of, self.forward(indicator) ** 2, self.levels).astype(np.float64)
        return energy

    def mean_energy(self) -> Floats:
        """The same for an interval with both ends uniform, on average.

        It follows from the sums, and the sums of squares, of each basis vector's running sums. Long axes have too many
        of those; there they are taken as if the axis were a power of two.
        """
        size = self.size
        if size <= _MAX_EXACT:
            upto = np.cumsum(self.inverse(np.eye(size)), axis=0)
            squares, sums = (upto**2).sum(axis=0), upto.sum(axis=0)
            each = (2 * ((size + 1) * squares - sums**2) - 1) / size**2
            return np.bincount(self.level_of, each, self.levels).astype(np.float64)
        apart, squared = (size**2 - 1) / (3 * size), (size**2 - 1) / 6
        half = 2.0 ** np.arange(self.levels - 2, -1, -1)
        details = ((size + 1) * (2 * half**2 + 1) / 3 - half**3 - 1) / (2 * half * size)
        return np.concatenate([[(squared + 2 * apart + 1) / size], np.maximum(details, half / 24)])


class Bands:
    """The bands of a histogram of `shape`; `bands_of` makes them once for each shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._axes = [_Axis(size) for size in shape]
        levels = self.levels = [axis.levels for axis in self._axes]
        apart = prod(levels) <= MAX_BANDS
        self._strides = [prod(levels[place + 1 :]) if apart else 1 for place in range(len(levels))]
        self.number = 1 + sum((count - 1) * stride for count, stride in zip(levels, self._strides, strict=True))
        band = np.zeros(shape, np.intp)
        for place, (axis, stride) in enumerate(zip(self._axes, self._strides, strict=True)):
            along = [-1 if other == place else 1 for other in range(len(shape))]
            band += (axis.level_of * stride).reshape(along)
        self._band = band.reshape(-1)
        self.sizes: Floats = np.bincount(self._band, minlength=self.number).astype(np.float64)
        """Coefficients in each band."""
        self._mean_energies = [axis.mean_energy() for axis in self._axes]
        self.energy: Floats = self._combine(self._mean_energies)
        """Of the squared length of a random range, what lies in each band on average."""

    def forward(self, cells: npt.NDArray[np.float64]) -> Floats:
        """The coefficients, flat."""
        return self._along(cells, inverse=False)

    def inverse(self, coefficients: Floats) -> Floats:
        """The cells, flat."""
        return self._along(coefficients, inverse=True)

    def mean_square(self, coefficients: Floats) -> Floats:
        """The mean of the squared coefficients of each band."""
        return self.mean(coefficients**2)

    def mean(self, of_coefficient: Floats) -> Floats:
        """The mean over the coefficients of each band."""
        return np.bincount(self._band, of_coefficient, self.number) / self.sizes

    def groups(self, levels: Sequence[int]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Blocks of cells, cut at these levels of the axes: the block of each cell, and which coefficients are theirs.

        The sums of the blocks tell those coefficients, and no others.
        """
        group, coarse = np.zeros(self.shape, np.intp), np.ones(self.shape, np.bool_)
        for place, (axis, level) in enumerate(zip(self._axes, levels, strict=True)):
            along = [-1 if other == place else 1 for other in range(len(self.shape))]
            nodes = axis.nodes(level)
            group = group * (int(nodes.max()) + 1) + nodes.reshape(along)
            coarse &= (axis.level_of <= level).reshape(along)
        return group.reshape(-1), coarse.reshape(-1)

    def blocks(self, levels: Sequence[int]) -> Iterator[Selection]:
        """The same blocks, one after the other: of each axis, the cells in it."""
        nodes = [axis.nodes(level) for axis, level in zip(self._axes, levels, strict=True)]
        for place in np.ndindex(*(int(along.max()) + 1 for along in nodes)):
            yield [np.flatnonzero(along == node) for along, node in zip(nodes, place, strict=True)]

    def coarseness(self, levels: Sequence[int]) -> tuple[int, float]:
        """How many such blocks there are, and what part of the squared length of a random range is theirs."""
        groups, part = 1, 1.0
        for axis, energy, level in zip(self._axes, self._mean_energies, levels, strict=True):
            groups *= int((axis.level_of <= level).sum())
            part *= float(energy[: level + 1].sum() / energy.sum())
        return groups, part

    def shares(self, steps: Sequence[npt.NDArray[np.intp]], number: int) -> Floats:
        """Of the coefficients of each band, what part belongs to each of so many steps (columns).

        `steps` has, for every axis, a step for every level; a coefficient belongs to the least of those of its levels.
        """
        least = np.full(self.shape, number - 1, np.intp)
        for place, (axis, step_of) in enumerate(zip(self._axes, steps, strict=True)):
            along = [-1 if other == place else 1 for other in range(len(self.shape))]
            np.minimum(least, step_of[axis.level_of].reshape(along), out=least)
        counted = np.bincount(self._band * number + least.reshape(-1), minlength=self.number * number)
        shares: Floats = counted.reshape(self.number, number) / self.sizes[:, None]
        return shares

    def spread(self, of_band: Floats) -> Floats:
        """One number a band, as one number a coefficient."""
        return of_band[self._band]

    def coarsest(self, number: int) -> npt.NDArray[np.intp]:
        """The coefficients of the smallest bands, as many whole bands as have `number` coefficients together."""
        order = np.argsort(self.sizes, kind="stable")
        is_chosen = np.zeros(self.number, np.bool_)
        is_chosen[order[np.cumsum(self.sizes[order]) <= number]] = True
        return np.flatnonzero(is_chosen[self._band])

    def band_of(self, coefficients: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The band of each of these coefficients."""
        return self._band[coefficients]

    def energy_of(self, selection: Selection) -> Floats:
        """Of the squared length of a range (per axis: the indices in it), what lies in each band."""
        energies = []
        for axis, chosen in zip(self._axes, selection, strict=True):
            indicator = np.zeros(axis.size)
            indicator[chosen] = 1.0
            energies.append(axis.energy(indicator))
        return self._combine(energies)

    def _combine(self, energies: Sequence[Floats]) -> Floats:
        # A range's indicator is a product over the axes and a band a sum of strides: products of energies, convolved.
        combined = np.ones(1)
        for energy, stride in zip(energies, self._strides, strict=True):
            spaced = np.zeros((energy.size - 1) * stride + 1)
            spaced[::stride] = energy
            combined = np.convolve(combined, spaced)
        return combined

    def _along(self, values: Floats, *, inverse: bool) -> Floats:
        values = values.reshape(self.shape)
        for place, axis in enumerate(self._axes):
            if axis.size > 1:
                turned = np.moveaxis(values, place, 0)
                values = np.moveaxis(axis.inverse(turned) if inverse else axis.forward(turned), 0, place)
        return values.reshape(-1)


@lru_cache(maxsize=16)
def bands_of(shape: tuple[int, ...]) -> Bands:
    """The bands of that shape; not to be written to."""
    return Bands(shape)
