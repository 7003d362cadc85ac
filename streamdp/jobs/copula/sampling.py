"""Rows of a Gaussian copula. Nothing here looks at data; the randomness comes through the one door all the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from streamdp.arrays import Codes, Floats
from streamdp.jobs.copula.margins import Margin
from streamdp.privacy.noise import NoiseSource, SystemSource


def uniform(shape: tuple[int, ...], source: NoiseSource | None) -> Floats:
    """Uniform on the open unit interval: the middles of 2**53 equal parts."""
    count = int(np.prod(shape))
    words = np.frombuffer((source or SystemSource()).random_bytes(8 * count), dtype="<u8") >> np.uint64(11)
    values = words.astype(np.float64)
    values += 0.5
    values *= 2.0**-53
    # The last middle rounds to one, whose normal quantile is infinite.
    return np.minimum(values, 1 - 2.0**-53, out=values).reshape(shape)


def sample_codes(rows: int, correlation: Floats, margins: Sequence[Margin], source: NoiseSource | None) -> list[Codes]:
    """A column of codes for each margin."""
    normal = ndtri(uniform((len(margins), rows), source))
    factor = np.linalg.cholesky(correlation)
    normal = factor @ normal
    return [margin.codes(values) for margin, values in zip(margins, normal, strict=True)]


def shuffled(rows: int, source: NoiseSource | None) -> npt.NDArray[np.intp]:
    """A random order; of rows that are independent anyway, so equal keys do no harm."""
    return np.argsort(uniform((rows,), source))
