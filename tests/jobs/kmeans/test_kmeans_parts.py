"""The parts: rows, packings, weighted Lloyd, grid sizes, rounds, the split, the validity index, the default."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from streamdp.jobs import KMeans, ParameterError
from streamdp.jobs.kmeans.bounds import MAX_ATTRIBUTES, checked_bounds
from streamdp.jobs.kmeans.choose import grid_is_out_of_reach
from streamdp.jobs.kmeans.dplloyd import count_weight, rounds_for, smallest_round
from streamdp.jobs.kmeans.hybrid import best_share, eugkm_variance, round_error
from streamdp.jobs.kmeans.lloyd import best_centres, cluster_weights, nearest_points, seeded_starts, signed_starts
from streamdp.jobs.kmeans.packing import packed_centres, packings
from streamdp.jobs.kmeans.product import product, product_over_rows
from streamdp.jobs.kmeans.refined import round_helps
from streamdp.jobs.kmeans.rows import BLOCK, LATTICE, Rows, members, nearest
from streamdp.jobs.kmeans.synopsis import MAX_CELLS, Synopsis, eugkm_cells, mkm_cells, side_for, ugkm_cells
from streamdp.jobs.kmeans.validity import ray_turi
from streamdp.privacy.noise import InsecureSeededSource

ADULT, S1 = (48_841, 6, 5), (5_000, 2, 15)


# Rows


def test_rows_lie_on_the_lattice_within_the_bounds() -> None:
    table = np.random.default_rng(1).normal(size=(2 * BLOCK + 5, 3)) * [1, 100, 0.01]
    rows = Rows(table, checked_bounds(([-1, -100, 0], [1, 100, 0.02]), 3))
    scaled = np.concatenate(list(rows.blocks()), axis=1)
    assert scaled.shape == (3, len(table)) and rows.count() == len(table)
    assert np.abs(scaled).max() == 1
    assert np.array_equal(scaled * LATTICE, np.rint(scaled * LATTICE))
    expected = np.clip(table[:, 1] / 100, -1, 1)
    assert np.abs(scaled[1] - expected).max() <= 0.5000001 / LATTICE


def test_a_table_is_read_in_slices_of_a_block_in_every_pass() -> None:
    """Nothing is kept between passes, so memory does not depend on the number of rows."""
    values, seen = np.random.default_rng(1).uniform(-1, 1, (2 * BLOCK + 5, 2)), []

    class Recorded:
        shape = values.shape

        def __getitem__(self, rows: slice, /) -> np.ndarray:
            seen.append(len(values[rows]))
            return values[rows]

    rows = Rows(Recorded(), checked_bounds((-1, 1), 2))
    for _ in range(2):
        assert rows.count() == len(values)
    assert seen == 2 * [BLOCK, BLOCK, 5]


def test_the_cluster_of_a_row_does_not_depend_on_its_company() -> None:
    """Rows on the border of two clusters, where a product rounded another way would tip them over."""
    generator = np.random.default_rng(2)
    centres = generator.uniform(-1, 1, (7, 6))
    middles = (centres[generator.integers(7, size=3000)] + centres[generator.integers(7, size=3000)]) / 2
    block = np.rint(middles.T * LATTICE) / LATTICE
    together = nearest(block, centres)
    for company in (1, 2, 3, 5, 17):
        alone = [nearest(block[:, at : at + company], centres) for at in range(0, 3000, company)]
        assert np.array_equal(np.concatenate(alone), together)


def test_a_row_on_a_border_is_in_one_cluster_only() -> None:
    """In two it would weigh twice, and the noise is for once."""
    centres = np.array([[0.5, 0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]])
    block = np.array([[0.0, 0.0, 0.75], [0.0, -0.5, 0.75]])
    closest = members(block, centres)
    assert closest.sum(axis=0).tolist() == [1, 1, 1]
    assert nearest(block, centres).tolist() == [0, 2, 0]


def test_products_in_parts_are_the_product() -> None:
    generator = np.random.default_rng(3)
    centres = generator.integers(-9, 9, (700, 11)).astype(float)
    columns = generator.integers(-9, 9, (11, 500)).astype(float)
    assert np.array_equal(product(centres, columns), centres @ columns)
    assert np.array_equal(product_over_rows(centres.T, centres[:, :4].T), centres.T @ centres[:, :4])


# Packings


@pytest.mark.parametrize(("clusters", "attributes"), [(1, 1), (3, 2), (15, 2), (5, 6), (40, 3)])
def test_packed_centres_keep_apart(clusters: int, attributes: int) -> None:
    packed = packed_centres(clusters, attributes, 0)
    assert packed.shape == (clusters, attributes) and np.abs(packed).max() <= 1
    assert packed_centres(clusters, attributes, 0) is packed, "packings are public and cached"

    def apart(centres: np.ndarray) -> float:
        squared = np.square(centres[:, None] - centres[None]).sum(axis=2)
        return float(squared[np.triu_indices(len(centres), 1)].min(initial=np.inf))

    generator = np.random.default_rng(4)
    at_random = [apart(generator.uniform(-1, 1, (clusters, attributes))) for _ in range(200)]
    assert clusters == 1 or np.mean(np.less(at_random, apart(packed))) > 0.9


def test_starts_differ_and_very_many_centres_are_no_burden() -> None:
    starts = packings(4, 3)
    assert starts.shape == (30, 4, 3)
    assert len({start.tobytes() for start in starts}) == 30
    assert packed_centres(5000, 2, 0).shape == (5000, 2)


# Weighted Lloyd


def test_weighted_lloyd_is_lloyd_on_repeated_points() -> None:
    generator = np.random.default_rng(5)
    points, weights = generator.uniform(-1, 1, (60, 2)), generator.integers(1, 5, 60)
    start = points[None, :4]
    once, inertia = best_centres(points, weights.astype(float), start, 50)
    repeated, same = best_centres(np.repeat(points, weights, axis=0), np.ones(weights.sum()), start, 50)
    assert np.allclose(once, repeated) and np.isclose(inertia, same)
    labels = nearest_points(points, once)
    assert np.array_equal(labels, np.square(points[:, None] - once[None]).sum(axis=2).argmin(axis=1))
    assert np.allclose(cluster_weights(points, weights.astype(float), once), np.bincount(labels, weights, 4))
    for cluster in range(4):
        mine = labels == cluster
        assert np.allclose(once[cluster], np.average(points[mine], axis=0, weights=weights[mine]))


def test_the_best_of_many_starts_wins_however_they_are_grouped() -> None:
    generator = np.random.default_rng(6)
    points = generator.uniform(-1, 1, (3000, 3))
    weights = generator.integers(1, 9, 3000).astype(float)
    starts = seeded_starts(points, weights, 9)
    best, inertia = best_centres(points, weights, starts, 30)
    each = [best_centres(points, weights, start[None], 30) for start in starts]
    assert np.isclose(inertia, min(value for _, value in each))
    assert np.allclose(best, min(each, key=lambda found: found[1])[0])


def test_signed_weights_end_within_the_domain() -> None:
    generator = np.random.default_rng(7)
    points, weights = generator.uniform(-1, 1, (500, 2)), generator.normal(size=500)
    centres, _ = best_centres(points, weights, packings(5, 2), 15)
    assert np.abs(centres).max() <= 1


def test_a_large_grid_has_fewer_starts() -> None:
    assert [signed_starts(points, 54) for points in (0, 1_000, 100_000, 10**6)] == [30, 30, 3, 1]


def test_no_points_leave_the_centres_at_their_start() -> None:
    start = packings(3, 2)[:1]
    assert np.array_equal(best_centres(np.zeros((0, 2)), np.zeros(0), start, 5)[0], start[0])


def test_seeds_are_points_and_reach_every_far_cluster() -> None:
    points = np.array([[-1.0, -1], [-1, 1], [1, -1], [1, 1], [0.99, 1]])
    starts = seeded_starts(points, np.array([1000.0, 1, 1, 500, 500]), 4)
    assert starts.shape == (30, 4, 2)
    for start in starts:
        assert len({tuple(np.sign(centre)) for centre in start}) == 4


# Grids


def test_grid_sizes_are_the_seeds() -> None:
    assert ugkm_cells(1000, 0.5, 2) == eugkm_cells(1000, 0.5, 2) == 50
    assert eugkm_cells(48_841, 0.05, 6) == pytest.approx(244.205**1.5)
    assert mkm_cells(48_841, 0.05, 6) == mkm_cells(48_841, 1, 6) == pytest.approx((48_841 / 10.79632**0.5) ** 1.5)


def test_the_side_is_the_nearest_and_within_limits() -> None:
    assert side_for(eugkm_cells(48_841, 0.05, 6), 6, 5) == 4, "3.95 is four: rounding down costs much"
    assert side_for(0.5, 2, 1) == 1
    assert side_for(1, 2, 4) == 2 and side_for(1, 2, 5) == 3
    assert side_for(1e30, 3, 5) == 101 and 101**3 <= MAX_CELLS < 102**3
    assert side_for(1e30, 20, 5) == 2


def test_insignificant_cells_are_dropped_but_never_below_the_number_of_clusters() -> None:
    bounds = checked_bounds((-1, 1), 2)
    counts = np.zeros((10, 10), dtype=np.int64)
    counts[0, 0], counts[9, 9], counts[0, 9], counts[5, 5] = 100, 4, 3, -50
    points, weights = Synopsis(counts, Fraction(1), bounds).significant(1)
    assert np.allclose(points, [[-0.9, -0.9], [0.9, 0.9]]) and weights.tolist() == [100, 4]
    assert len(Synopsis(counts, Fraction(1), bounds).significant(5)[0]) == 5
    assert Synopsis(-np.abs(counts), Fraction(1), bounds).significant(3)[1].tolist() == [1, 1, 1]


# Rounds and splits


def test_the_smallest_useful_round_is_the_seeds() -> None:
    assert smallest_round(107_091, 2, 5) == pytest.approx(0.011, abs=0.0005)
    assert smallest_round(*ADULT) == pytest.approx(0.096, abs=0.0005)
    assert float(count_weight(6)) == pytest.approx((24 * 0.225**2) ** (1 / 3), abs=0.0005)


def test_rounds_lie_between_two_and_seven() -> None:
    assert [rounds_for(48_841, Fraction(e), 6, 5) for e in ("0.05", "0.2", "0.5", "5")] == [2, 2, 5, 7]


def test_the_hybrid_splits_where_a_round_pays_and_else_falls_back() -> None:
    assert best_share(S1[0], 0.1, *S1[1:]) is None
    share = best_share(ADULT[0], 0.5, *ADULT[1:])
    assert share is not None and 0.5 < share < 0.7
    model = KMeans(15, "0.1", (-1, 1), "hybrid", size=5000).fit(np.zeros((5000, 2)))
    assert model.method_used_ == "eugkm" and "Algorithm 16" in model.reason_


def test_errors_fall_as_the_analysis_says() -> None:
    assert round_error(1000, 2, 3, 4) == pytest.approx(round_error(1000, 1, 3, 4) / 4)
    assert eugkm_variance(1000, 2, 6, 4) == pytest.approx(eugkm_variance(1000, 1, 6, 4) / 2**0.5)


# The number of clusters, and the default


def test_the_validity_index_prefers_tight_and_separate() -> None:
    near, far = np.array([[0.0, 0], [0.1, 0]]), np.array([[0.0, 0], [1, 0]])
    assert ray_turi(far, 5, 100) == pytest.approx(0.05)
    assert ray_turi(far, 5, 100) < ray_turi(near, 5, 100)
    assert ray_turi(np.zeros((2, 2)), 5, 100) == ray_turi(far[:1], 5, 100) == ray_turi(far, 5, -3) == float("inf")


@pytest.mark.parametrize(
    ("attributes", "clusters", "size", "epsilon", "method"),
    [(2, 15, 5000, "0.05", "pruned"), (2, 15, 5000, "1", "refined"), (6, 5, 50_000, "0.05", "refined"),
     (8, 20, 2000, "0.05", "pruned"), (21, 2, 1000, "1", "dplloyd_impr")],
)  # fmt: skip
def test_the_default_is_chosen_by_public_facts(
    attributes: int, clusters: int, size: int, epsilon: str, method: str
) -> None:
    """Not by the rows: no rows and some rows give the same choice."""
    for rows in (np.zeros((0, attributes)), np.full((300, attributes), 0.5)):
        model = KMeans(clusters, epsilon, (-1, 1), size=size, source=InsecureSeededSource(1)).fit(rows)
        assert model.method_used_ == method
        assert str(size) in model.reason_
        assert model.epsilon_spent_ == Fraction(epsilon)


def test_a_grid_is_out_of_reach_when_its_coarsest_form_is() -> None:
    assert [grid_is_out_of_reach(20, 2), grid_is_out_of_reach(21, 2), grid_is_out_of_reach(21, 1)] == [
        False,
        True,
        True,
    ]
    assert [grid_is_out_of_reach(2, 2**20), grid_is_out_of_reach(2, 2**20 + 1)] == [False, True]
    assert [grid_is_out_of_reach(15, 2**15), grid_is_out_of_reach(15, 2**15 + 1)] == [False, True]


def test_a_round_helps_from_some_epsilon_on() -> None:
    helps = [round_helps(10_000, epsilon, 3, 8) for epsilon in (0.001, 0.01, 0.1, 1, 10)]
    assert helps == sorted(helps) and set(helps) == {False, True}


def test_refinement_improves_on_its_own_grid(mixture: Callable[..., np.ndarray]) -> None:
    """In six attributes cells are coarse: the same epsilon is better spent on a grid and a round than on the grid."""
    rows = mixture(6, 4, 40_000, 3)

    def inertia(method: str) -> float:
        model = KMeans(4, "0.2", (-1, 1), method, source=InsecureSeededSource(1)).fit(rows)
        return float(np.square(rows - model.cluster_centers_[model.predict(rows)]).sum())

    assert inertia("refined") < 0.95 * inertia("pruned") < 0.95 * inertia("eugkm")


def test_the_most_attributes_are_still_exact_and_more_are_refused() -> None:
    """The largest squared distances there are, in any order, to the last bit."""
    generator = np.random.default_rng(9)
    signs = generator.choice([-1.0, 1.0], (MAX_ATTRIBUTES, 50))
    block = np.rint(signs * generator.uniform(0.99, 1, signs.shape) * LATTICE) / LATTICE
    centres = np.rint(generator.uniform(-1, 1, (3, MAX_ATTRIBUTES)) * LATTICE) / LATTICE
    exact = [
        [sum(int(c * LATTICE) * int(x * LATTICE) for c, x in zip(centre, column, strict=True)) for column in block.T]
        for centre in centres
    ]
    assert (product(centres, block) * LATTICE**2).astype(object).tolist() == exact
    with pytest.raises(ParameterError, match="at most 1000 attributes"):
        KMeans(2, 1, (0, 1)).fit(np.zeros((3, MAX_ATTRIBUTES + 1)))
