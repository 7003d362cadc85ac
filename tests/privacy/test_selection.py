"""Selection against exact probabilities, with proof that the check sees a doubled epsilon."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from streamdp.privacy.noise import InsecureSeededSource
from streamdp.privacy.selection import exponential_mechanism, permute_and_flip

MECHANISMS = [exponential_mechanism, permute_and_flip]
Select = Callable[..., int]
Probabilities = Callable[[Sequence[float], float], list[float]]

SUSPICIOUS = 1e-4
IMPOSSIBLE = 1e-10
DRAWS = 6000


def exponential_probabilities(scores: Sequence[float], rate: float) -> list[float]:
    weights = [math.exp(rate * (score - max(scores))) for score in scores]
    return [weight / sum(weights) for weight in weights]


def permute_and_flip_probabilities(scores: Sequence[float], rate: float) -> list[float]:
    """By every order: a candidate wins when it is accepted and none before it was."""
    accepted = [math.exp(rate * (score - max(scores))) for score in scores]
    chances = [0.0] * len(scores)
    for order in permutations(range(len(scores))):
        nobody_yet = 1.0
        for candidate in order:
            chances[candidate] += nobody_yet * accepted[candidate] / math.factorial(len(scores))
            nobody_yet *= 1 - accepted[candidate]
    return chances


BOTH = pytest.mark.parametrize(
    ("select", "probabilities"),
    [(exponential_mechanism, exponential_probabilities), (permute_and_flip, permute_and_flip_probabilities)],
    ids=["exponential_mechanism", "permute_and_flip"],
)


def p_value(expected: Sequence[float], select: Select, *arguments: Any, **options: Any) -> float:
    source = InsecureSeededSource(20)
    chosen = [select(*arguments, source=source, **options) for _ in range(DRAWS)]
    return float(stats.chisquare(np.bincount(chosen, minlength=len(expected)), DRAWS * np.array(expected)).pvalue)


SCORES = [3, 0, 5, 4]


@BOTH
def test_exact_probabilities(select: Select, probabilities: Probabilities) -> None:
    expected = probabilities(SCORES, 0.8 / (2 * 2))
    assert p_value(expected, select, SCORES, "0.8", 2) > SUSPICIOUS
    assert p_value(expected, select, SCORES, "1.6", 2) < IMPOSSIBLE


@BOTH
def test_monotone_needs_no_factor_of_two(select: Select, probabilities: Probabilities) -> None:
    expected = probabilities(SCORES, 0.5)
    assert p_value(expected, select, SCORES, Fraction(1, 2), 1, monotone=True) > SUSPICIOUS
    assert p_value(expected, select, SCORES, Fraction(1, 2), 1) < IMPOSSIBLE


@BOTH
@pytest.mark.slow
def test_a_lattice_rounds_the_scores_and_adds_its_step_to_the_sensitivity(
    select: Select, probabilities: Probabilities
) -> None:
    scores = [0.1, 2.6, Fraction(7, 3), 1]
    expected = probabilities([0, 2.5, 2.5, 1], 2 / (2 * (1 + 0.5)))
    assert p_value(expected, select, scores, 2, 1, lattice=2) > SUSPICIOUS
    assert p_value(probabilities([0, 2.5, 2.5, 1], 2 / (2 * 1)), select, scores, 2, 1, lattice=2) < 1e-5


@pytest.mark.parametrize("select", MECHANISMS)
def test_scores_are_rounded_in_exact_arithmetic(select: Select) -> None:
    # As the rational it is, 0.15 lies just below 1.5 tenths; the float product 0.15 * 10 is 1.5 and would round to 2.
    assert 10 * Fraction(0.15) < Fraction(3, 2) == 0.15 * 10
    assert {select([0.15, 0.2], 10**6, Fraction(1, 10**6), lattice=10) for _ in range(20)} == {1}


@pytest.mark.parametrize("select", MECHANISMS)
@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda scores: np.array(scores, dtype=np.uint8)])
def test_any_sequence_of_integers_gives_the_same_choice(select: Select, kind: Callable[[list[int]], Any]) -> None:
    choices = [select(kind(SCORES), 1, 1, source=InsecureSeededSource(seed)) for seed in range(20)]
    assert choices == [select(SCORES, 1, 1, source=InsecureSeededSource(seed)) for seed in range(20)]
    assert len(set(choices)) > 1


@pytest.mark.parametrize("select", MECHANISMS)
@pytest.mark.parametrize(
    "scores",
    [
        [0, 10**6, 0],
        [-(10**30), 10**30, -(10**30)],
        np.array([-(2**63), 2**63 - 1, -(2**63)]),
        np.array([0, 2**64 - 1, 0], dtype=np.uint64),
    ],
    ids=["million", "beyond 64 bits", "all of int64", "all of uint64"],
)
def test_huge_gaps_do_not_overflow(select: Select, scores: Any) -> None:
    assert {select(scores, 1, 1) for _ in range(20)} == {1}


@pytest.mark.parametrize("select", MECHANISMS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10**40), Decimal("1e-40"), 1e-40, "1e-40"])
def test_a_tiny_epsilon_chooses_uniformly(select: Select, epsilon: Any) -> None:
    chosen = [select([0, 10**6], epsilon, 1, source=InsecureSeededSource(seed)) for seed in range(400)]
    assert stats.binomtest(sum(chosen), 400).pvalue > SUSPICIOUS


@pytest.mark.parametrize("select", MECHANISMS)
@pytest.mark.parametrize("dominated", [True, False])
def test_a_hundred_thousand_candidates_take_moments(select: Select, dominated: bool) -> None:
    scores = np.zeros(100_000, dtype=np.int64) if dominated else np.arange(100_000)
    scores[77_777] = 10**6
    begin = time.process_time()
    assert select(scores, 1, 1) == 77_777
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("select", MECHANISMS)
def test_one_candidate_is_the_choice(select: Select) -> None:
    assert select([-5], 1, 1) == 0


@pytest.mark.parametrize("select", MECHANISMS)
@pytest.mark.parametrize(
    ("scores", "epsilon", "sensitivity", "options", "message"),
    [
        ([], 1, 1, {}, "at least one candidate"),
        (np.array([], dtype=np.int64), 1, 1, {}, "at least one candidate"),
        ([1, 2], 0, 1, {}, "epsilon must be positive"),
        ([1, 2], -1, 1, {}, "epsilon must be positive"),
        ([1, 2], math.nan, 1, {}, "finite"),
        ([1, 2], 1, 0, {}, "sensitivity must be positive"),
        ([1, 2], 1, -1, {}, "sensitivity must be positive"),
        ([1, 2], 1, 1, {"lattice": 0}, "lattice"),
        ([1, math.nan], 1, 1, {"lattice": 10}, "scores must be finite"),
        (np.array([1, math.inf]), 1, 1, {"lattice": 10}, "scores must be finite"),
        (np.array([[1, 2], [3, 4]]), 1, 1, {}, "one-dimensional"),
    ],
)
def test_wrong_values(
    select: Select, scores: Any, epsilon: Any, sensitivity: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        select(scores, epsilon, sensitivity, **options)


@pytest.mark.parametrize("select", MECHANISMS)
@pytest.mark.parametrize("scores", [[1, 0.5], [1, math.nan], np.array([0.5, 1.0]), ["1", "2"]])
def test_scores_are_integers_unless_a_lattice_is_given(select: Select, scores: Any) -> None:
    with pytest.raises(TypeError, match="lattice"):
        select(scores, 1, 1)


@pytest.mark.parametrize("select", MECHANISMS)
def test_text_is_no_score(select: Select) -> None:
    with pytest.raises(TypeError, match="scores must be"):
        select(["1", "2"], 1, 1, lattice=10)
