"""Lloyd's rounds with noise on the sums and counts of every cluster (Blum, Dwork, McSherry, Nissim 2005).

Guarantee of a round: a row is in one cluster, which depends on that row and the public centres only. It moves one count
by 1 and one sum of each of the `d` attributes by at most 1 (`LATTICE` in lattice units), so noise of scale `1 / e_0` on
the counts and `1 / e_i` on the sums costs `e_0 + d * e_i`. Rounds add up. An empty cluster gets its noisy mean like any
other.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts, Floats
from streamdp.jobs.base import Meter
from streamdp.jobs.kmeans.packing import STARTS, packed_centres
from streamdp.jobs.kmeans.product import product_over_rows
from streamdp.jobs.kmeans.rows import LATTICE, Rows, members
from streamdp.jobs.kmeans.task import Outcome, Task
from streamdp.privacy.noise import uniform_below

# The rounds of McSherry's implementation in PINQ.
PLAIN_ROUNDS = 5
MIN_ROUNDS, MAX_ROUNDS = 2, 7
# The seed's estimate of a centre's distance from the middle, as a part of the range.
RHO = 0.225


def dplloyd(task: Task) -> Outcome:
    """Five rounds of equal budget from random centres, counts and sums alike: the form most libraries have."""
    clusters = task.clusters[-1]
    drawn = uniform_below(2 * LATTICE + 1, (clusters, task.attributes), task.meter.source)
    reason = f"{PLAIN_ROUNDS} rounds from random centres"
    return _rounds(task, drawn / LATTICE - 1, PLAIN_ROUNDS, Fraction(1), "dplloyd", reason)


def dplloyd_impr(task: Task) -> Outcome:
    """Packed initial centres, and as many rounds as leave each the smallest useful budget (Su 2016, Alg. 14)."""
    clusters = task.clusters[-1]
    size = task.paid_size()
    start = int(uniform_below(STARTS, 1, task.meter.source)[0])
    rounds = rounds_for(size, task.meter.left, task.attributes, clusters)
    reason = f"{rounds} rounds from packed centres, for about {size} rows"
    packed = packed_centres(clusters, task.attributes, start)
    return _rounds(task, packed, rounds, count_weight(task.attributes), "dplloyd_impr", reason)


def count_weight(attributes: int, rho: float = RHO) -> Fraction:
    """`e_0 / e_i` of least error, the cube root of `4 d rho^2` (Eq. 4.7), as a rational."""
    return Fraction(round(1000 * float(np.cbrt(4 * attributes * rho**2))), 1000)


def smallest_round(size: int, attributes: int, clusters: int) -> float:
    """The least budget with which a round improves the centres (Eq. 4.9)."""
    return math.sqrt(500 * clusters**3 * float(attributes + count_weight(attributes)) ** 3) / size


def rounds_for(size: int, epsilon: Fraction, attributes: int, clusters: int) -> int:
    affordable = int(min(float(epsilon) / smallest_round(size, attributes, clusters), MAX_ROUNDS))
    return max(affordable, MIN_ROUNDS)


def _rounds(task: Task, centres: Floats, rounds: int, weight: Fraction, method: str, reason: str) -> Outcome:
    budget = task.meter.left / rounds
    for _ in range(rounds):
        centres, sizes = noisy_round(task.rows, centres, budget, weight, task.meter)
    return Outcome(centres, sizes, None, method, reason)


def noisy_round(
    rows: Rows, centres: Floats, epsilon: Fraction, weight: Fraction, meter: Meter
) -> tuple[Floats, Counts]:
    """The noisy means and counts of the clusters around `centres`; `weight` is `e_0 / e_i`."""
    clusters, attributes = centres.shape
    counts = np.zeros(clusters)
    sums = np.zeros((clusters, attributes))
    for block in rows.blocks():
        add_to(counts, sums, members(block, centres), block)
    noisy_counts, noisy_sums = noisy_tallies(counts, sums, epsilon, weight, meter)
    return np.clip(noisy_sums / np.maximum(noisy_counts, 1)[:, np.newaxis], -1, 1), noisy_counts


def add_to(counts: Floats, sums: Floats, closest: npt.NDArray[np.bool_], block: Floats) -> None:
    """Exact: counts are whole numbers and sums multiples of the lattice, both far below 2^53 of their units."""
    counts += np.count_nonzero(closest, axis=1)
    sums += product_over_rows(closest.astype(np.float64), block)


def noisy_tallies(
    counts: Floats, sums: Floats, epsilon: Fraction, weight: Fraction, meter: Meter
) -> tuple[Counts, Floats]:
    """Noise on the counts and on the sums of values in [-1, 1], for `epsilon` together."""
    attributes = sums.shape[1]
    for_sums = epsilon * attributes / (attributes + weight)
    noisy_counts = meter.noisy(counts.astype(np.int64), 1, epsilon - for_sums)
    noisy_sums = meter.noisy((sums * LATTICE).astype(np.int64), attributes * LATTICE, for_sums)
    return noisy_counts, noisy_sums / LATTICE
