import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdp.histograms.bands import bands_of
from streamdp.histograms.halves import _paired, halves_of
from streamdp.histograms.post import consistent_total, nonnegative
from streamdp.replay.queries import RangeQueries

SHAPES = [(1,), (7,), (8, 8), (3, 1, 5), (96, 2, 12), (2, 2, 2, 2, 2), (5, 64)]


def positive(cells: np.ndarray, shape: tuple[int, ...], variance: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    return halves_of(shape).positive(cells, np.full(bands_of(shape).number, variance))


def test_a_half_gets_no_less_than_nothing_and_no_more_than_the_whole() -> None:
    # The whole is 4 and its halves 2 each; in the first, 5 and -3 are 8 apart, of which 2 are possible.
    assert positive(np.array([5.0, -3.0, 1.0, 1.0]), (4,))[0].tolist() == [2, 0, 1, 1]
    # Here the first half is worth -1 to 5: nothing and 4.
    assert positive(np.array([-4.0, 3.0, 2.0, 3.0]), (4,))[0].tolist() == [0, 0, 1.5, 2.5]


def test_the_longest_axis_is_halved_last() -> None:
    # Rows are told apart first, then pairs of columns: 1 and -1 in the second row are next to each other.
    cells = np.array([[2.0, 2.0, 2.0, 2.0], [1.0, -1.0, 0.0, 0.0]])
    assert positive(cells.reshape(-1), (2, 4))[0].tolist() == [2, 2, 2, 2, 0, 0, 0, 0]


@settings(deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1), st.floats(0, 30))
def test_nothing_is_negative_and_the_sum_stays(shape: tuple[int, ...], seed: int, level: float) -> None:
    noisy = level + np.random.default_rng(seed).laplace(0, 10, np.prod(shape))
    cells, left = positive(noisy, shape)
    assert cells.min() >= 0
    assert cells.sum() == pytest.approx(max(noisy.sum(), 0), abs=1e-6)
    assert ((left >= 0) & (left <= 1 + 1e-9)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_counts_that_are_not_negative_stay_as_they_are(shape: tuple[int, ...]) -> None:
    counts = np.random.default_rng(1).poisson(0.5, np.prod(shape)).astype(np.float64)
    np.testing.assert_allclose(positive(counts, shape)[0], counts, atol=1e-9)


@pytest.mark.parametrize("shape", [(7,), (6, 5), (3, 1, 5), (12, 2, 3)])
def test_blocks_are_those_of_the_bands(shape: tuple[int, ...]) -> None:
    """What is in no coefficient of a step is left alone by it, so the two must pair neighbours in the same way."""
    bands, halves = bands_of(shape), halves_of(shape)
    cells = np.random.default_rng(3).normal(size=np.prod(shape))
    sums = cells.reshape(shape)
    for step, axis in enumerate(halves._axes, 1):
        sums = _paired(sums, axis)
        levels = [bands.levels[place] - 1 - halves._axes[:step].count(place) for place in range(len(shape))]
        groups, _ = bands.groups(levels)
        np.testing.assert_allclose(sums.reshape(-1), np.bincount(groups, cells), atol=1e-12)


def test_a_negative_sum_is_an_empty_histogram() -> None:
    assert positive(np.array([-5.0, 1.0, 1.0]), (3,))[0].tolist() == [0, 0, 0]


def hill(shape: tuple[int, int], users: int) -> np.ndarray:
    x, y = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    weights = np.exp(-((x - 20) ** 2 + (y - 40) ** 2) / 50).reshape(-1)
    return np.floor(users * weights / weights.sum())


def test_ranges_of_a_sparse_histogram_are_better_for_it() -> None:
    shape, rng = (64, 64), np.random.default_rng(7)
    truth, queries = hill((64, 64), 50_000).astype(np.int64), RangeQueries((64, 64))
    noisy = truth + np.rint(rng.laplace(0, 20, truth.size)).astype(np.int64)

    def error(counts: np.ndarray) -> float:
        return float(np.abs(queries.answers(counts) - queries.answers(truth)).mean())

    halved = np.rint(np.cumsum(positive(noisy.astype(np.float64), shape)[0]))
    ours = error(np.diff(halved, prepend=0).astype(np.int64))
    assert ours < 0.8 * error(noisy)
    assert ours < 0.25 * min(error(nonnegative(noisy)), error(consistent_total(noisy)))


@pytest.mark.parametrize("users", [5_000, 20_000, 1_000_000])
def test_what_is_left_of_the_variance_is_what_is_measured_or_somewhat_more(users: int) -> None:
    shape, scale = (64, 64), 20.0
    bands, rng = bands_of(shape), np.random.default_rng(11)
    truth = hill(shape, users)
    squares, lefts = [], []
    for _ in range(20):
        cells, left = positive(truth + rng.laplace(0, scale, truth.size), shape, 2 * scale**2)
        squares.append(bands.mean_square(bands.forward(cells - truth)))
        lefts.append(left)
    measured = float(bands.energy @ np.mean(squares, axis=0))
    foretold = float(bands.energy @ np.mean(lefts, axis=0)) * 2 * scale**2
    assert 1 < foretold / measured < 2.2
    assert foretold < 0.9 * 2 * scale**2 * bands.energy.sum()


def test_nothing_is_gained_where_every_cell_is_full() -> None:
    shape, scale = (16, 16), 20.0
    noisy = 1_000 + np.random.default_rng(5).laplace(0, scale, 256)
    cells, left = positive(noisy, shape, 2 * scale**2)
    np.testing.assert_allclose(cells, noisy)
    assert left.min() > 0.99


def test_a_band_belongs_to_the_step_that_tells_it() -> None:
    bands = bands_of((4, 2))
    # Steps from the cells up: the longer axis, then the first of two of two, then the other; the sum above them.
    steps = [np.array([3, 1, 0]), np.array([3, 2])]
    shares = bands.shares(steps, 4)
    assert set(shares.reshape(-1).tolist()) == {0.0, 1.0}
    assert shares.argmax(axis=1).tolist() == [3, 2, 1, 1, 0, 0]
