"""The samplers against exact probabilities and OpenDP, with proof that the checks see a wrong scale."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from streamdp.privacy.noise import (
    InsecureSeededSource,
    NoiseSource,
    SystemSource,
    bernoulli_exp,
    bernoulli_exp_multiples,
    discrete_laplace,
    uniform_below,
)
from streamdp.privacy.thresholds import Probability

# Seeded checks pass for ever or fail for ever; a right sampler had this chance of refusal when the seed was chosen.
SUSPICIOUS = 1e-4
# Unseeded checks, and the refusal of wrong samplers, leave no more than this to chance.
IMPOSSIBLE = 1e-10

DRAWS = 400_000
SCALES = [Fraction(1, 2), Fraction(5), Fraction(500), Fraction(12345, 7)]
Samples = npt.NDArray[np.int64]


class ScriptedSource(NoiseSource):
    """Hands out the bytes it was given, in order."""

    def __init__(self, *parts: bytes) -> None:
        self.left = b"".join(parts)

    def random_bytes(self, count: int) -> bytes:
        assert len(self.left) >= count, "the sampler asked for more than the script holds"
        taken, self.left = self.left[:count], self.left[count:]
        return taken


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")


def upper_tail(k: int, scale: Fraction) -> float:
    """P(X >= k) for k >= 1."""
    return math.exp(-k / scale) / (1 + math.exp(-1 / scale))


def cell_edges(scale: Fraction, cells: int = 12) -> list[int]:
    """First values of cells on the positive side, about equally likely, the last one open."""
    wanted = (upper_tail(1, scale) * (1 - j / cells) for j in range(cells))
    return sorted({1, *(round(-scale * math.log(tail * (1 + math.exp(-1 / scale)))) for tail in wanted)})


def cell_counts(samples: Samples, edges: list[int]) -> npt.NDArray[np.int64]:
    positive = np.histogram(samples, bins=[*edges, 2**62])[0]
    negative = np.histogram(-samples, bins=[*edges, 2**62])[0]
    return np.concatenate([[np.count_nonzero(samples == 0)], positive, negative])


def shape_p_value(samples: Samples, scale: Fraction) -> float:
    """Chi-square against the exact probabilities of zero and of cells on both sides."""
    edges = cell_edges(scale)
    tails = [upper_tail(edge, scale) for edge in edges]
    side = -np.diff([*tails, 0.0])
    zero = math.tanh(1 / (2 * scale))
    expected = samples.size * np.array([zero, *side, *side])
    return float(stats.chisquare(cell_counts(samples, edges), expected).pvalue)


def tail_p_value(samples: Samples, scale: Fraction) -> float:
    """Binomial test of how many samples lie beyond six scales, where the sampler's tail begins."""
    k = math.ceil(6 * scale) + 1
    beyond = int(np.count_nonzero(np.abs(samples) >= k))
    return float(stats.binomtest(beyond, samples.size, 2 * upper_tail(k, scale)).pvalue)


def mean_p_value(samples: Samples, scale: Fraction) -> float:
    """Normal test of the mean of |x|, which is 2q / (1 - q^2) with q = exp(-1/scale)."""
    q = math.exp(-1 / scale)
    mean, square = 2 * q / (1 - q * q), 2 * q / (1 - q) ** 2
    deviation = (float(np.abs(samples).mean()) - mean) / math.sqrt((square - mean**2) / samples.size)
    return float(2 * stats.norm.sf(abs(deviation)))


def agreement_p_value(ours: Samples, theirs: Samples, scale: Fraction) -> float:
    """Two-sample chi-square over the same cells."""
    edges = cell_edges(scale, cells=8)
    table = np.array([cell_counts(ours, edges), cell_counts(theirs, edges)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


CHECKS: list[Callable[[Samples, Fraction], float]] = [shape_p_value, tail_p_value, mean_p_value]


@pytest.fixture(scope="module", params=SCALES, ids=str)
def scale(request: pytest.FixtureRequest) -> Fraction:
    return Fraction(request.param)


@pytest.fixture(scope="module")
def samples(scale: Fraction) -> Samples:
    return discrete_laplace(scale, DRAWS, InsecureSeededSource(2))


@pytest.mark.parametrize("check", CHECKS)
def test_distribution(check: Callable[[Samples, Fraction], float], samples: Samples, scale: Fraction) -> None:
    assert check(samples, scale) > SUSPICIOUS


@pytest.mark.parametrize("factor", [Fraction(1, 2), Fraction(95, 100), Fraction(105, 100)], ids=str)
def test_a_wrong_scale_is_seen(factor: Fraction, scale: Fraction) -> None:
    wrong = discrete_laplace(scale * factor, DRAWS, InsecureSeededSource(3))
    assert shape_p_value(wrong, scale) < IMPOSSIBLE
    assert mean_p_value(wrong, scale) < IMPOSSIBLE
    assert tail_p_value(wrong, scale) < SUSPICIOUS / 100  # only a few hundred samples lie there


def test_signs_are_even(samples: Samples) -> None:
    positive, nonzero = int(np.count_nonzero(samples > 0)), int(np.count_nonzero(samples))
    assert stats.binomtest(positive, nonzero).pvalue > SUSPICIOUS


def test_neighbouring_samples_are_independent(samples: Samples) -> None:
    middle = np.median(np.abs(samples))
    large = np.abs(samples) > middle
    pairs = np.bincount(2 * large[::2] + large[1::2], minlength=4).reshape(2, 2)
    assert stats.chi2_contingency(pairs).pvalue > SUSPICIOUS


@pytest.mark.parametrize("scale", [Fraction(1, 8), Fraction(1, 3), Fraction(2**40), Fraction(2**53)], ids=str)
def test_small_and_huge_scales(scale: Fraction) -> None:
    samples = discrete_laplace(scale, DRAWS, InsecureSeededSource(4))
    assert mean_p_value(samples, scale) > SUSPICIOUS
    assert mean_p_value(discrete_laplace(scale * Fraction(9, 10), DRAWS, InsecureSeededSource(5)), scale) < IMPOSSIBLE


@pytest.mark.parametrize("scale", [Fraction(1, 50), Fraction(1, 1000), 1e-300], ids=str)
def test_tiny_scales_are_zero_but_for_one_in_exp_of_fifty(scale: Fraction | float) -> None:
    assert not discrete_laplace(scale, DRAWS, InsecureSeededSource(6)).any()


def test_tiny_scales_reach_one_exactly_when_the_digits_say_so() -> None:
    threshold = Probability(Fraction(50), odds=2)
    assert threshold.leading_digits(72) == 1
    tail_is_out, minus = b"\xff", b"\x80"
    for next_word, expected in ((0, -1), (2, 0)):
        source = ScriptedSource(tail_is_out, b"\x00", word(next_word), minus)
        assert discrete_laplace(Fraction(1, 50), 1, source).tolist() == [expected]
        assert not source.left


def test_a_tail_adds_up() -> None:
    # Scale 1 has three low bits: words of all ones set none, words of zero win the tail twice and then lose it.
    source = ScriptedSource(b"\xff\xff\xff", b"\x00", b"\x00", word(0), b"\x00", word(0), b"\xff", b"\x00")
    tail, nonzero = Probability(Fraction(8)), Probability(Fraction(1), odds=2)
    assert tail.leading_digits(8) == 0
    assert nonzero.leading_digits(8) > 0
    assert discrete_laplace(1, 1, source).tolist() == [1 + 2 * 8]
    assert not source.left


@pytest.mark.slow
@pytest.mark.parametrize("scale", [Fraction(5), Fraction(3527, 2)], ids=str)
def test_agreement_with_opendp(scale: Fraction) -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    draws = 250_000
    reference: Any = dp.m.make_laplace(
        dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale=float(scale)
    )
    theirs = np.array(reference([0] * draws), dtype=np.int64)
    ours = discrete_laplace(float(scale), draws, InsecureSeededSource(7))
    assert agreement_p_value(ours, theirs, scale) > IMPOSSIBLE
    for factor in (0.5, 0.95, 1.05):
        wrong = discrete_laplace(float(scale) * factor, draws, InsecureSeededSource(8))
        assert agreement_p_value(wrong, theirs, scale) < IMPOSSIBLE


@pytest.mark.parametrize("wrong", [0, -1, -0.5, math.nan, math.inf, Fraction(0), Decimal("NaN"), Decimal("-Infinity")])
def test_scale_must_be_positive_and_finite(wrong: Any) -> None:
    with pytest.raises(ValueError, match="scale must be"):
        discrete_laplace(wrong, 1)


@pytest.mark.parametrize("wrong", [True, "1", None, 1j])
def test_scale_must_be_a_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match="scale must be"):
        discrete_laplace(wrong, 1)


def test_every_form_of_a_scale_gives_the_same_samples() -> None:
    forms = [0.5, np.float64(0.5), Fraction(1, 2), Decimal("0.5")]
    drawn = [discrete_laplace(form, 100, InsecureSeededSource(9)).tolist() for form in forms]
    assert all(values == drawn[0] for values in drawn)
    whole = [discrete_laplace(form, 100, InsecureSeededSource(9)).tolist() for form in (3, 3.0, np.int32(3))]
    assert whole[0] == whole[1] == whole[2]


@pytest.mark.parametrize("size", [0, 1, 7, (3, 5), (2, 0), (300, 301)])
def test_size_is_an_int_or_a_shape(size: int | tuple[int, ...]) -> None:
    shape = (size,) if isinstance(size, int) else size
    for drawn in (discrete_laplace(5, size), bernoulli_exp(1, size), uniform_below(5, size)):
        assert drawn.shape == shape
    assert discrete_laplace(5, size).dtype == np.int64


EXPONENTS = [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(60)]


@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
def test_bernoulli_exp_takes_as_many_first_bytes_as_the_probability_says(exponent: Fraction) -> None:
    threshold = Probability(exponent)
    tie = threshold.leading_digits(8)
    for after_tie in (False, True):
        next_word = word(0) if after_tie else word(2**64 - 1)
        deeper = [] if threshold.digits(8, 64) not in (0, 2**64 - 1) else [next_word, next_word]
        outcomes = bernoulli_exp(exponent, 256, ScriptedSource(bytes(range(256)), next_word, *deeper))
        assert outcomes[:tie].all()
        assert not outcomes[tie + 1 :].any()
        if not deeper:
            assert outcomes[tie] == after_tie


@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
@pytest.mark.parametrize("equal_words", [1, 2, 5])
def test_equal_digits_are_settled_by_deeper_ones(exponent: Fraction, equal_words: int) -> None:
    depth = 8 + 64 * (equal_words + 1)
    with localcontext(prec=200):
        exponential = (-Decimal(exponent.numerator) / exponent.denominator).exp()
        digits = int(exponential * Decimal(2) ** depth)
    parts = [word((digits >> (depth - 8 - 64 * (j + 1))) & (2**64 - 1)) for j in range(equal_words + 1)]
    first, last = bytes([digits >> (depth - 8)]), digits & (2**64 - 1)
    for step, expected in ((-1, True), (1, False)):
        if 0 <= last + step < 2**64:
            source = ScriptedSource(first, *parts[:-1], word(last + step))
            assert bernoulli_exp(exponent, 1, source).tolist() == [expected]
            assert not source.left


def test_bernoulli_exp_frequency() -> None:
    outcomes = bernoulli_exp(Fraction(2, 3), DRAWS, InsecureSeededSource(10))
    assert stats.binomtest(int(outcomes.sum()), DRAWS, math.exp(-2 / 3)).pvalue > SUSPICIOUS
    wrong = bernoulli_exp(Fraction(2, 3) * Fraction(105, 100), DRAWS, InsecureSeededSource(10))
    assert stats.binomtest(int(wrong.sum()), DRAWS, math.exp(-2 / 3)).pvalue < IMPOSSIBLE


def test_bernoulli_exp_of_zero_is_certain_and_draws_nothing() -> None:
    assert bernoulli_exp(0, 5, ScriptedSource()).all()


@pytest.mark.parametrize("wrong", [-1, Fraction(-1, 10**9), math.nan, math.inf])
def test_bernoulli_exp_refuses_what_is_no_probability(wrong: Any) -> None:
    with pytest.raises(ValueError, match="exponent must"):
        bernoulli_exp(wrong, 1)


def test_bernoulli_exp_multiples_frequencies() -> None:
    unit, largest, draws = Fraction(1, 7), 12, 30_000
    multiples = np.repeat(np.arange(largest + 1), draws)
    outcomes = bernoulli_exp_multiples(multiples, unit, InsecureSeededSource(11)).reshape(largest + 1, draws)
    assert outcomes[0].all()
    for multiple in range(1, largest + 1):
        accepted = int(outcomes[multiple].sum())
        assert stats.binomtest(accepted, draws, math.exp(-multiple * unit)).pvalue > SUSPICIOUS
        assert stats.binomtest(accepted, draws, math.exp(-multiple * unit / 2)).pvalue < IMPOSSIBLE


def test_bernoulli_exp_multiples_of_any_64_bits() -> None:
    multiples = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert bernoulli_exp_multiples(multiples, Fraction(100), InsecureSeededSource(12)).tolist() == [1, 0, 0, 0]
    assert bernoulli_exp_multiples(multiples, Fraction(1, 2**200), InsecureSeededSource(12)).all()
    assert bernoulli_exp_multiples(np.array([], dtype=np.int64), 1).shape == (0,)


def test_bernoulli_exp_multiples_refuses_negative_ones() -> None:
    with pytest.raises(ValueError, match="multiples"):
        bernoulli_exp_multiples(np.array([1, -1]), 1)
    with pytest.raises(ValueError, match="unit"):
        bernoulli_exp_multiples(np.array([1]), 0)


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 255, 256, 257, 1000])
def test_uniform_below_is_uniform(bound: int) -> None:
    values = uniform_below(bound, 200 * bound, InsecureSeededSource(bound))
    counts = np.bincount(values, minlength=bound)
    assert counts.size == bound
    if bound > 1:
        assert stats.chisquare(counts).pvalue > SUSPICIOUS


def test_uniform_below_rejects_instead_of_folding() -> None:
    # Of three bits 5, 6 and 7 are out of range; folding them would give 0, 1 and 2 twice the chance.
    source = ScriptedSource(bytes([5, 4, 6, 0]), bytes([7, 3]), bytes([2]))
    assert uniform_below(5, 4, source).tolist() == [2, 4, 3, 0]


def test_uniform_below_at_the_limits() -> None:
    assert uniform_below(2**63, 1, ScriptedSource(word(2**64 - 1))).tolist() == [2**63 - 1]
    assert uniform_below(1, 3, ScriptedSource()).tolist() == [0, 0, 0]
    with pytest.raises(OverflowError, match="bound"):
        uniform_below(2**63 + 1, 1)
    for wrong in (0, -5):
        with pytest.raises(ValueError, match="bound"):
            uniform_below(wrong, 1)


def test_the_seeded_source_is_the_same_on_every_machine() -> None:
    assert InsecureSeededSource(1).random_bytes(12).hex() == "df8262757ba2b64d2f0ebeba"
    assert discrete_laplace(5, 8, InsecureSeededSource(1)).tolist() == [7, 7, 0, -1, -3, -1, 3, -14]
    assert InsecureSeededSource(1).random_bytes(64) != InsecureSeededSource(2).random_bytes(64)


@pytest.mark.system_noise
def test_the_system_source_repeats_neither_itself_nor_its_forked_child() -> None:
    source = SystemSource()
    before = source.random_bytes(16)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the test runner has threads; the child only draws and exits
        child = os.fork()
    if child == 0:
        os.write(writer, source.random_bytes(16))
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        childs = pipe.read()
    assert len(childs) == 16
    assert len({before, childs, source.random_bytes(16), source.random_bytes(16)}) == 4
