"""What is publicly known of the error of a published histogram, in a form small enough to travel with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10, prod, sqrt
from typing import Any

import numpy as np

from streamdp.arrays import Floats
from streamdp.histograms.bands import Selection, bands_of

_DIGITS = 4


def laplace_variance(scale: Fraction | float) -> float:
    """Of discrete Laplace noise."""
    return float(laplace_variances(np.array(1 / float(scale))))


def laplace_variances(rates: Floats) -> Floats:
    """The same for many scales at once, given their inverses: epsilons over a sensitivity."""
    variances: Floats = 2 * np.exp(-rates) / np.expm1(-rates) ** 2
    return variances


@dataclass(frozen=True, eq=False)
class Variance:
    """The variance of the error of a range: that of the estimate when it was made, and what drift adds every point.

    Both are given per coefficient in each band (`streamdp.histograms.bands`), or as one number for all of them where
    the error is independent noise of the same variance in every cell. `drift` is None where nobody estimated it.
    """

    shape: tuple[int, ...]
    noise: Floats
    drift: Floats | None = None

    @classmethod
    def of_laplace(cls, shape: tuple[int, ...], scale: Fraction) -> Variance:
        """Of a histogram with independent noise of that scale in every cell, when it was made."""
        return cls(shape, np.array([laplace_variance(scale)]))

    def standard_error(self, selection: Selection, age: int = 0) -> float:
        """The standard deviation of the error of a range (per axis: the indices in it), `age` points after the release.

        Where drift is unknown it is left out.
        """
        if self.noise.size == 1 and (self.drift is None or self.drift.size == 1):
            chosen = (np.zeros(size)[part].size for size, part in zip(self.shape, selection, strict=True))
            energy = np.array([float(prod(chosen))])
        else:
            energy = bands_of(self.shape).energy_of(selection)
        variance = self.noise if self.drift is None else self.noise + age * self.drift
        return sqrt(float((energy * variance).sum()))

    def to_json(self) -> dict[str, Any]:
        """Rounded up to a few digits."""
        return {"noise": _rounded(self.noise), "drift": None if self.drift is None else _rounded(self.drift)}

    @classmethod
    def from_json(cls, shape: tuple[int, ...], fields: Mapping[str, Any]) -> Variance:
        drift = fields["drift"]
        return cls(
            shape,
            np.asarray(fields["noise"], np.float64),
            None if drift is None else np.asarray(drift, np.float64),
        )


def _rounded(values: Floats) -> list[float]:
    def rounded(value: float) -> float:
        if value <= 0:
            return 0.0
        step = 10.0 ** (floor(log10(value)) - _DIGITS + 1)
        return float(f"{ceil(value / step) * step:.{_DIGITS}g}")

    return [rounded(float(value)) for value in values]
