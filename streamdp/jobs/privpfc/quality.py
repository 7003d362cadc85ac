"""How good a grid is: the expected number of records that its noisy histogram classifies correctly.

For one cell with the two largest class counts `n1 >= n2` and `d = n1 - n2`, the noisy histogram votes for the first
with probability `p(d) = 1 - exp(-e d) (1 + e d / 2) / 2` (Su, Cao, Li, Bertino 2016, Lemma 1), so it is right
about `n1 p(d) + n2 (1 - p(d)) = (n1 + n2) / 2 + d (p(d) - 1/2)` records. With two classes that is the expectation
itself, with more it is the seed's top-two form.

Half a record for each of the N records is the same for every grid, and a selection looks at differences alone. What is
left, `sum of d (p(d) - 1/2) - (records outside the two largest classes) / 2`, moves by at most `D - 1/2` when a record
comes or goes, where `D <= 1.1` is Lemma 1's sensitivity: `d` moves by one, which moves `d (p(d) - 1/2)` by at most
`D - 1/2`, or a record comes outside, which moves it by 1/2. So the selection needs noise for 0.6 where 1.1 would do as
well: it is the same selection from the same differences.

All of it is in whole units of `1 / LATTICE`, from an integer table. The sensitivity is computed from that table, so
rounding is part of it, and no float decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from streamdp.arrays import Integers

LATTICE = 1024
# From this many noise scales on, every loss of a table rounds to zero.
_SCALES = 40
# Below, counts are all noise and no quality helps; the table stays small.
_SMALLEST_RATE = 2**-17


@dataclass(frozen=True)
class Quality:
    """The integer table of one epsilon: `gain(d) = LATTICE * d / 2 - loss[d]`, and `loss` is zero from its end on."""

    loss: Integers
    sensitivity: int

    @classmethod
    def for_epsilon(cls, epsilon: Fraction) -> Quality:
        """The table for counts that get noise of scale `1 / epsilon`."""
        rate = max(float(epsilon), _SMALLEST_RATE)
        gaps = np.arange(int(_SCALES / rate) + 2, dtype=np.float64)
        wrong = np.exp(-rate * gaps) / 2 * (1 + rate * gaps / 2)
        loss = np.rint(LATTICE * gaps * wrong).astype(np.int64)
        loss = np.append(loss[: np.flatnonzero(loss).max(initial=0) + 1], 0)
        steps = LATTICE // 2 - np.diff(loss)
        return cls(loss, max(int(np.abs(steps).max()), LATTICE // 2))

    def gains(self, gaps: Integers) -> Integers:
        """`LATTICE * d (p(d) - 1/2)` for each gap `d >= 0` between a cell's two largest class counts."""
        return LATTICE // 2 * gaps - self.loss.take(np.minimum(gaps, len(self.loss) - 1))
