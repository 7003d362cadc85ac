"""The methods: where each spends, and on what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import isqrt, prod
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats
from streamdp.histograms import method_named
from streamdp.histograms.merged import MAX_CELLS
from streamdp.jobs.base import Meter
from streamdp.jobs.copula import kendall, mle
from streamdp.jobs.copula.correlation import as_matrix, from_taus, nearest_repair
from streamdp.jobs.copula.margins import Margin, project, release_margin
from streamdp.jobs.copula.model import Model, Part

Codes = npt.NDArray[np.integer]
Members: TypeAlias = npt.NDArray[np.intp]
Rows: TypeAlias = npt.NDArray[np.intp]
Found = TypeVar("Found")

# Fewer values have nothing to merge; in more, what stands out from the noise of so many cells is noise.
MIN_MERGED, MAX_MERGED = 32, 4096
# Attributes with fewer values than this may split the data.
SMALL_DOMAIN = 10
MAX_PARTS = 4096
# Pairs are counted in a grid of at most this many codes a side, which a processor's cache holds. A finer attribute is
# cut at quantiles of its margin, and the few ties that makes are undone like others.
MAX_CODES = 512
# A sampled row that is missing is replaced by a random one, which dilutes the dependence; a row left out costs nothing.
# So the sample is smaller than the noisy count by this many scales of its noise.
CAUTION = 3
# A part has margins of its own from this many scales of their noise on, and a dependence of its own where the noise in
# a tau is at most this.
MIN_SCALES = 20
MAX_TAU_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class Task:
    """Columns of codes, each below its size; which last codes are nulls; the paid number of rows and its noise."""

    columns: Sequence[Codes]
    sizes: tuple[int, ...]
    nullable: tuple[bool, ...]
    rows: float
    rows_scale: Fraction
    ratio: Fraction
    margin: str
    meter: Meter

    @property
    def active(self) -> tuple[int, ...]:
        """Attributes of more than one value; the others are public constants and cost nothing."""
        return tuple(place for place, size in enumerate(self.sizes) if size > 1)

    def shares(self, sizes: Sequence[int], pairs: bool) -> tuple[list[Fraction], Fraction]:
        """Of what is left: epsilon for margins of those sizes, and for the dependence.

        The squared error of a margin's ranges grows with its cells over epsilon squared, so the sum over margins is
        least with shares like the cube root of the cells (as far as cells are not grouped). Equal sizes, equal shares.
        """
        left = self.meter.left
        for_margins = left * self.ratio / (self.ratio + 1) if pairs else left
        weights = [Fraction(round(1000 * min(size, MAX_CELLS) ** (1 / 3)), 1000) for size in sizes]
        return [for_margins * weight / sum(weights) for weight in weights], left - for_margins


def plain(task: Task, dependence: str) -> Model:
    """One copula of all attributes: DPCopula-Kendall or DPCopula-MLE."""
    active = task.active
    constants = {place: 0 for place, size in enumerate(task.sizes) if size == 1}
    if not active:
        task.meter.spend(task.meter.left)
        return Model(task.sizes, [Part(constants, task.rows, (), (), np.eye(0))])
    pairs = len(active) > 1
    per_margin, for_dependence = task.shares([task.sizes[place] for place in active], pairs)
    margins = [
        _margin(task, place, None, task.rows, share, task.meter)
        for place, share in zip(active, per_margin, strict=True)
    ]
    correlation = np.eye(1)
    if pairs:
        columns = [task.columns[place] for place in active]
        correlation = _dependence(dependence, columns, margins, task.rows, task.rows_scale, for_dependence, task.meter)
    return Model(task.sizes, [Part(constants, task.rows, active, margins, correlation)])


def hybrid(task: Task, splitting: Sequence[int]) -> Model:
    """Algorithm 6 of DPCopula: a copula for each combination of the splitting attributes' values.

    Every row is in one part, so margins and dependence of all parts together cost what those of one do. The counts of
    the parts are one margin more. Parts too small for margins, or for a dependence, of their own share those of
    all such parts together, which is one part more in the same composition.
    """
    rest = tuple(place for place in task.active if place not in splitting)
    constants = {place: 0 for place, size in enumerate(task.sizes) if size == 1}
    sizes = tuple(task.sizes[place] for place in splitting)
    (for_counts, *per_margin), for_dependence = task.shares(
        [prod(sizes), *(task.sizes[place] for place in rest)], len(rest) > 1
    )
    part_of = np.ravel_multi_index([task.columns[place] for place in splitting], sizes)
    exact = np.bincount(part_of, minlength=prod(sizes)).astype(np.int64)
    counts = project(task.meter.noisy(exact, 1, for_counts).astype(np.float64), task.rows)
    parts = [
        Part(dict(zip(splitting, codes, strict=True)) | constants, float(rows), rest, (), np.eye(len(rest)))
        for codes, rows in zip(product(*(range(size) for size in sizes)), counts, strict=True)
    ]
    if not rest:
        if task.meter.left:
            task.meter.spend(task.meter.left)
        return Model(task.sizes, parts)
    own_margins = counts * float(min(per_margin)) >= MIN_SCALES
    own_dependence = np.zeros(counts.size, dtype=np.bool_)
    if len(rest) > 1:
        noise = 4 * (len(rest) ** 2 // 4) / float(for_dependence)
        own_dependence = counts * MAX_TAU_NOISE >= noise
    groups = _Groups(part_of, counts.size)

    def margins_of(members: Members, rows: Rows, meter: Meter) -> list[Margin]:
        total = float(counts[members].sum())
        shares = zip(rest, per_margin, strict=True)
        return [_margin(task, place, rows, total, share, meter) for place, share in shares]

    margins = groups.each(own_margins, sum(per_margin, Fraction(0)), margins_of, task.meter)
    parts = [
        replace(part, margins=found, shares_margins=not own)
        for part, found, own in zip(parts, margins, own_margins.tolist(), strict=True)
    ]
    if len(rest) < 2:
        return Model(task.sizes, parts)

    def dependence_of(members: Members, rows: Rows, meter: Meter) -> Floats:
        together = Model(task.sizes, [parts[member] for member in members])
        averages = [Margin(together.margin(place)) for place in rest]
        columns = [task.columns[place][rows] for place in rest]
        total, scale = float(counts[members].sum()), isqrt(len(members)) / for_counts
        return _dependence("kendall", columns, averages, total, scale, for_dependence, meter)

    correlations = groups.each(own_dependence, for_dependence, dependence_of, task.meter)
    return Model(
        task.sizes,
        [
            replace(part, correlation=found, shares_dependence=not own)
            for part, found, own in zip(parts, correlations, own_dependence.tolist(), strict=True)
        ],
    )


class _Groups:
    """The rows of every part, for work that costs the same in each and, over disjoint rows, no more in all."""

    def __init__(self, part_of: npt.NDArray[np.intp], parts: int) -> None:
        self._order = np.argsort(part_of, kind="stable")
        self._edges = np.searchsorted(part_of[self._order], np.arange(parts + 1))

    def each(
        self,
        own: npt.NDArray[np.bool_],
        epsilon: Fraction,
        work: Callable[[Members, Rows, Meter], Found],
        meter: Meter,
    ) -> list[Found]:
        """What `work` finds in each part that has its own, and once in all the others together, for them."""
        meter.spend(epsilon)
        found: dict[int, Found] = {}
        shared = np.flatnonzero(~own)
        for members in [*np.flatnonzero(own)[:, np.newaxis], *([shared] if shared.size else [])]:
            rows = np.concatenate([self._order[self._edges[part] : self._edges[part + 1]] for part in members])
            outcome = work(members, rows, Meter(epsilon, meter.source))
            found |= dict.fromkeys(members.tolist(), outcome)
        return [found[part] for part in range(own.size)]


def _margin(task: Task, place: int, rows: Rows | None, total: float, epsilon: Fraction, meter: Meter) -> Margin:
    column = task.columns[place] if rows is None else task.columns[place][rows]
    counts = np.bincount(column, minlength=task.sizes[place]).astype(np.int64)
    method = method_named(best_method(counts.size) if task.margin == "auto" else task.margin)
    return release_margin(counts, task.nullable[place], total, epsilon, method, meter)


def best_method(size: int) -> str:
    """What measures best for a margin of that many values (docs/histograms.md)."""
    if size < MIN_MERGED:
        return "laplace"
    return "merged" if size <= MAX_MERGED else "psd"


def _dependence(
    kind: str,
    columns: Sequence[Codes],
    margins: Sequence[Margin],
    rows: float,
    rows_scale: Fraction,
    epsilon: Fraction,
    meter: Meter,
) -> Floats:
    """The correlation matrix, repaired. `rows` is public or paid for."""
    attributes = len(columns)
    if kind == "mle":
        blocks = mle.blocks_for(attributes, int(rows), epsilon)
        return nearest_repair(as_matrix(mle.noisy_correlations(columns, blocks, epsilon, meter), attributes))
    cut = [_cut(column, margin) for column, margin in zip(columns, margins, strict=True)]
    sample = int(min(max(rows - CAUTION * float(rows_scale), 2), kendall.largest_sample(attributes, epsilon)))
    sizes = [margin.probabilities.size for _, margin in cut]
    taus = kendall.noisy_taus([column for column, _ in cut], sizes, sample, epsilon, meter)
    noise = kendall.joint_sensitivity(attributes, sample) / float(epsilon) / (sample * (sample - 1) / 2)
    return nearest_repair(as_matrix(from_taus(taus, [margin.distinct for _, margin in cut], noise), attributes))


def _cut(column: Codes, margin: Margin) -> tuple[Codes, Margin]:
    """A fine attribute in even quantiles of its margin, which is noisy already; codes keep their order."""
    probabilities = margin.probabilities
    if probabilities.size <= MAX_CODES:
        return column, margin
    middles = np.cumsum(probabilities) - probabilities / 2
    group = np.clip((middles * MAX_CODES).astype(np.int64), 0, MAX_CODES - 1)
    shares = np.zeros(MAX_CODES)
    np.add.at(shares, group, probabilities)
    return group[column], Margin(shares)
