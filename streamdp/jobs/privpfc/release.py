"""The mechanism: pay for a size, choose a grid in rounds, count its cells with noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Integers
from streamdp.jobs.base import Meter
from streamdp.jobs.privpfc.grids import Grid, around, level_wise
from streamdp.jobs.privpfc.histogram import ClassHistogram, with_total
from streamdp.jobs.privpfc.quality import Quality
from streamdp.jobs.privpfc.records import Records
from streamdp.jobs.privpfc.score import Progress, scores_of
from streamdp.jobs.privpfc.taxonomy import Taxonomy
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.selection import exponential_mechanism, permute_and_flip

Mechanism = Callable[[Integers, Fraction, int, NoiseSource | None], int]

SELECTIONS: dict[str, Mechanism] = {
    "permute_and_flip": lambda scores, epsilon, sensitivity, source: permute_and_flip(
        scores, epsilon, sensitivity, source=source
    ),
    "exponential": lambda scores, epsilon, sensitivity, source: exponential_mechanism(
        scores, epsilon, sensitivity, source=source
    ),
}
# A mean count is at least five times the noise's scale: the seed's rule for the number of cells.
CELL_SHARE = Fraction(1, 5)
# Public limits, so that no noisy size asks for a huge histogram.
LARGEST_SIZE, MAX_COUNTS = 2**40, 2**22
# Records times epsilon that a round must have. Set by trying one to four rounds on UCI Adult: at 1,500 in all a second
# round cost more than it gained on income, at 7,500 and 15,000 more rounds gained. Not tried on other data.
ROUND_WORTH, MAX_ROUNDS = 2_000, 6


@dataclass(frozen=True)
class Plan:
    """What is asked for, all of it public. The epsilons of size, selection and counts add up to the cost."""

    taxonomies: Sequence[Taxonomy]
    classes: npt.NDArray[np.generic]
    pool_size: int
    rounds: int | None
    size: int | None
    selection: Mechanism
    size_epsilon: Fraction
    selection_epsilon: Fraction
    counts_epsilon: Fraction


def release(
    plan: Plan, leaves: Sequence[Integers], labels: Integers, meter: Meter, progress: Progress
) -> ClassHistogram:
    """A noisy histogram of a grid chosen to classify well.

    Guarantee: epsilon-differential privacy for the presence of one record, by composition of three steps. The size has
    sensitivity 1. A grid is chosen `rounds` times, each time for an equal part of the selection's epsilon and from a
    pool that depends on public facts, the paid size and the grid chosen before. The counts of the last grid have L1
    sensitivity 1. Su, Cao, Li, Bertino 2016 (Su 2016, Algorithm 9) with one round; the sign of Algorithm 11
    is corrected, a better grid is likelier. Every input yields an output.
    """
    size = plan.size
    if size is None:
        size = int(meter.noisy(np.array([len(labels)], dtype=np.int64), 1, plan.size_epsilon)[0])
    size = min(max(size, 1), LARGEST_SIZE)
    classes = len(plan.classes)
    max_cells = max(min(int(CELL_SHARE * size * plan.counts_epsilon), MAX_COUNTS // classes), 1)
    records = Records.distinct(plan.taxonomies, leaves, labels, classes, max_cells)
    grid = _choose(plan, records, size, max_cells, meter, progress)
    attributes = np.flatnonzero(grid).tolist()
    levels = grid[attributes].tolist()
    exact = records.histogram(attributes, levels)
    noisy = meter.noisy(exact, 1, plan.counts_epsilon)
    return ClassHistogram(
        tuple(plan.taxonomies[attribute] for attribute in attributes),
        tuple(levels),
        plan.classes,
        with_total(noisy, size),
        size,
    )


def _choose(plan: Plan, records: Records, size: int, max_cells: int, meter: Meter, progress: Progress) -> Grid:
    nodes = [taxonomy.nodes for taxonomy in plan.taxonomies]
    quality = Quality.for_epsilon(plan.counts_epsilon)
    rounds = plan.rounds or rounds_for(size, plan.selection_epsilon)
    pool_size = max(plan.pool_size // rounds, 1)
    pool = level_wise(nodes, max_cells, pool_size, meter.source)
    grid: Grid = pool[0]
    if records.classes == 1:
        # There is nothing to tell apart, so nothing is asked and nothing spent.
        return grid
    for place in range(rounds):
        if place:
            pool = around(grid, nodes, max_cells, pool_size, meter.source)

        def scored(done: int, of: int, place: int = place) -> None:
            progress(place * of + done, rounds * of)

        scores = scores_of(records, pool, quality, scored)
        epsilon = plan.selection_epsilon / rounds
        meter.spend(epsilon)
        grid = pool[plan.selection(scores, epsilon, quality.sensitivity, meter.source)]
    return grid


def rounds_for(size: int, epsilon: Fraction) -> int:
    """How many times to choose, from the paid size and the epsilon of the selection."""
    return min(max(int(size * epsilon / ROUND_WORTH), 1), MAX_ROUNDS)
