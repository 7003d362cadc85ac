"""What a method is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.jobs.base import Meter
from streamdp.jobs.kmeans.bounds import Bounds
from streamdp.jobs.kmeans.rows import Rows
from streamdp.jobs.kmeans.synopsis import Synopsis

# As PrivPfC does (Su, Cao, Li, Bertino 2016).
SIZE_SHARE = Fraction(3, 100)
# A public range for the noisy size, so that no formula divides by zero or asks for a huge grid.
LARGEST_SIZE = 2**40


@dataclass(frozen=True)
class Task:
    """`clusters` holds the numbers of clusters to choose from: one, unless the caller left it open."""

    rows: Rows
    bounds: Bounds
    clusters: range
    meter: Meter
    size: int | None

    @property
    def attributes(self) -> int:
        return self.rows.attributes

    def paid_size(self) -> int:
        """The public size, or a noisy count of rows for 3 % of epsilon (sensitivity 1), clamped to a public range."""
        size = self.size
        if size is None:
            exact = np.array([self.rows.count()], dtype=np.int64)
            size = int(self.meter.noisy(exact, 1, SIZE_SHARE * self.meter.total)[0])
        return min(max(size, 1), LARGEST_SIZE)


@dataclass(frozen=True)
class Outcome:
    """Centres over the varying attributes in [-1, 1]; noisy sizes, negative ones included."""

    centres: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.int64]
    synopsis: Synopsis | None
    method: str
    reason: str
