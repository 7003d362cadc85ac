"""Independent noise on every cell: the Laplace mechanism, in exact integers."""

from __future__ import annotations

from fractions import Fraction

from streamdp.arrays import Counts
from streamdp.histograms.base import Noisy, Statement
from streamdp.privacy.mechanisms import noisy_sum
from streamdp.privacy.noise import NoiseSource


class Laplace:
    """The discrete Laplace (geometric) mechanism of Ghosh, Roughgarden and Sundararajan (2009), cell by cell.

    Guarantee: `epsilon`-differential privacy. Sensitivity: a user moves the counts by at most `sensitivity` in L1.
    The scale `sensitivity / epsilon` is an exact rational, so it is neither rounded up nor, what would leak, down.
    In the literature this is LPA (Dwork, McSherry, Nissim, Smith 2006) with integer noise.
    """

    name = "laplace"
    statement = Statement(
        lattice="counts, so the integers",
        sensitivity="m: one user's records move the counts by at most m in L1",
        budget="all of epsilon on the one level there is: noise of scale m / epsilon in every cell",
        structure="none depends on the data: the cells are the public domain's",
    )

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """Every count with discrete Laplace noise of scale `sensitivity / epsilon`."""
        scale = sensitivity / epsilon
        return Noisy(noisy_sum(counts, scale, source), scale)
