"""Qualities against the seed's formulas, and the selection's loss on every small dataset, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from streamdp.domain import Attribute
from streamdp.jobs.privpfc import Taxonomy
from streamdp.jobs.privpfc.grids import level_wise
from streamdp.jobs.privpfc.quality import LATTICE, Quality
from streamdp.jobs.privpfc.records import Records
from streamdp.jobs.privpfc.score import scores_of

QUALITY = Quality.for_epsilon(Fraction(1, 10))
EPSILONS = [Fraction(1, 1000), Fraction(3, 100), Fraction(6, 10), Fraction(4), Fraction(10**6)]


def vote(gap: float, epsilon: float) -> float:
    return 1 - math.exp(-epsilon * gap) / 2 * (1 + epsilon * gap / 2)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_table_is_lemma_1(epsilon: Fraction) -> None:
    quality = Quality.for_epsilon(epsilon)
    gaps = np.unique(np.geomspace(1, 10**6, 200).astype(np.int64))
    exact = [LATTICE * gap * (vote(gap, float(epsilon)) - 0.5) for gap in gaps.tolist()]
    assert np.abs(quality.gains(gaps) - exact).max() <= 0.5 + 1e-6
    assert quality.gains(np.array([0])).tolist() == [0]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_sensitivity_is_lemma_1_without_the_half_that_all_grids_share(epsilon: Fraction) -> None:
    e = float(epsilon)
    gaps = range(1, min(int(40 / e), 50_000) + 2)
    lemma = max(abs((x - 1) * (vote(x, e) - vote(x - 1, e)) + vote(x, e)) for x in gaps)
    sensitivity = Quality.for_epsilon(epsilon).sensitivity / LATTICE
    assert lemma - 0.5 - 2 / LATTICE <= sensitivity <= lemma - 0.5 + 2 / LATTICE
    assert sensitivity <= 0.6


def table(rows: int, seed: int, classes: int) -> tuple[list[Taxonomy], list[np.ndarray], np.ndarray]:
    generator = np.random.default_rng(seed)
    taxonomies = [
        Taxonomy(Attribute.integer("age", 0, 9)),
        Taxonomy(Attribute.categorical("colour", "abcde"), {"x": ["a", "d"], "y": ["b", "c", "e"]}),
        Taxonomy(Attribute.categorical("one", ["only"])),
        Taxonomy(Attribute.real("height", 0, 1, bins=7)),
    ]
    leaves = [generator.integers(taxonomy.attribute.size, size=rows) for taxonomy in taxonomies]
    return taxonomies, leaves, (leaves[0] // 4 + generator.integers(2, size=rows)) % classes


def counted_alone(
    taxonomies: list[Taxonomy], leaves: list[np.ndarray], labels: np.ndarray, grid: np.ndarray, classes: int
) -> tuple[float, int]:
    """The quality less half of the rows, record by record, and the number of cells that hold any."""
    counts: dict[tuple[int, ...], list[int]] = {}
    nodes = [t.nodes_of_leaves(level)[column] for t, level, column in zip(taxonomies, grid, leaves, strict=True)]
    for *cell, label in zip(*(column.tolist() for column in nodes), labels.tolist(), strict=True):
        counts.setdefault(tuple(cell), [0] * classes)[label] += 1
    expected = -len(labels) / 2
    for cell in counts.values():
        second, first = sorted(cell)[-2:]
        p = vote(first - second, 0.1)
        expected += first * p + second * (1 - p)
    return expected, len(counts)


@pytest.mark.parametrize(("rows", "classes"), [(0, 2), (1, 3), (700, 2), (700, 3), (700, 5)])
def test_scores_are_those_of_counting_each_grid_by_itself(rows: int, classes: int) -> None:
    taxonomies, leaves, labels = table(rows, 1, classes)
    grids = level_wise([taxonomy.nodes for taxonomy in taxonomies], 200, 10**4, None)
    records = Records.distinct(taxonomies, leaves, labels, classes, 200)
    heard: list[tuple[int, int]] = []
    scores = scores_of(records, grids, QUALITY, lambda done, of: heard.append((done, of)))
    for grid, score in zip(grids, scores, strict=True):
        expected, cells = counted_alone(taxonomies, leaves, labels, grid, classes)
        assert score / LATTICE == pytest.approx(expected, abs=0.5 * cells / LATTICE + 1e-6)
    assert heard == [(mark, 20) for mark in range(1, 21)]


def test_grids_whose_common_histogram_would_be_too_large_are_scored_in_parts() -> None:
    generator = np.random.default_rng(4)
    taxonomies = [Taxonomy(Attribute.integer(f"a{place}", 0, 63)) for place in range(4)]
    leaves = list(generator.integers(64, size=(4, 500)))
    labels = (leaves[0] + leaves[1] > 64).astype(np.int64)
    grids = level_wise([taxonomy.nodes for taxonomy in taxonomies], 4096, 10**4, None)
    scores = scores_of(Records.distinct(taxonomies, leaves, labels, 2, 4096), grids, QUALITY, lambda *_: None)
    for place in generator.choice(len(grids), 150, replace=False):
        expected, cells = counted_alone(taxonomies, leaves, labels, grids[place], 2)
        assert scores[place] / LATTICE == pytest.approx(expected, abs=0.5 * cells / LATTICE + 1e-6)


def test_rows_that_no_grid_tells_apart_are_one() -> None:
    taxonomies, leaves, labels = table(50_000, 2, 2)
    records = Records.distinct(taxonomies, leaves, labels, 2, 2)
    assert records.counts.sum() == 50_000
    assert len(records.labels) <= 2 * 2 * 2 * 1 * 2


def test_more_attributes_than_a_key_holds_are_still_told_apart() -> None:
    generator = np.random.default_rng(3)
    taxonomies = [Taxonomy(Attribute.integer(f"a{place}", 0, 999)) for place in range(9)]
    rows = generator.integers(1000, size=(9, 300))
    rows[:, 150:] = rows[:, :150]
    records = Records.distinct(taxonomies, list(rows), np.zeros(300, dtype=np.int64), 2, 10**4)
    assert len(records.labels) == 150
    assert set(records.counts.tolist()) == {2}
    assert {tuple(row) for row in np.array(records.nodes).T.tolist()} == {tuple(row) for row in rows.T.tolist()}


def exponential(scores: np.ndarray, rate: float) -> np.ndarray:
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


def permute_and_flip(scores: np.ndarray, rate: float) -> np.ndarray:
    """Each is accepted by itself; a uniform one of the accepted is chosen. A best one is sure to be accepted."""
    accepted = np.exp(rate * (scores - scores.max()))
    chances = np.zeros(len(scores))
    for outcome in product((0, 1), repeat=len(scores)):
        chances += np.prod(np.where(outcome, accepted, 1 - accepted)) * np.array(outcome) / max(sum(outcome), 1)
    return chances


@pytest.mark.parametrize("chances", [exponential, permute_and_flip])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("counts_epsilon", [Fraction(1, 10), Fraction(6, 10), Fraction(3)])
def test_one_record_moves_no_selection_by_more_than_epsilon(
    chances: Callable[[np.ndarray, float], np.ndarray], classes: int, counts_epsilon: Fraction
) -> None:
    """Every dataset of up to five records over two binary attributes, with every neighbour, without chance."""
    taxonomies = [Taxonomy(Attribute.categorical(name, "ab")) for name in ("one", "two")]
    quality = Quality.for_epsilon(counts_epsilon)
    grids = level_wise([(1, 2), (1, 2)], 4, 100, None)
    kinds = list(product(range(2), range(2), range(classes)))

    def scores(rows: tuple[tuple[int, int, int], ...]) -> np.ndarray:
        one, two, labels = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return scores_of(Records.distinct(taxonomies, [one, two], labels, classes, 4), grids, quality, lambda *_: None)

    sizes = range(5 if classes == 2 else 3)
    known = {rows: scores(rows) for size in (*sizes, len(sizes)) for rows in combinations_with_replacement(kinds, size)}
    rate = 1 / (2 * quality.sensitivity)
    chance_of = {rows: chances(found, rate) for rows, found in known.items()}
    worst = 0.0
    for rows in [rows for rows in known if len(rows) < len(sizes)]:
        for record in kinds:
            neighbour = tuple(sorted((*rows, record)))
            assert np.abs(known[neighbour] - known[rows]).max() <= quality.sensitivity
            worst = max(worst, float(np.abs(np.log(chance_of[rows] / chance_of[neighbour])).max()))
    assert worst <= 1 + 1e-9
    # A selection with half the sensitivity would lose twice that, more than it claims, on some of these.
    assert worst > 0.5 or counts_epsilon < 1
    if chances is permute_and_flip and counts_epsilon == 3 and classes == 2:
        assert worst > 1 - 1e-9, "the sensitivity is exact: some neighbours lose all of epsilon"
