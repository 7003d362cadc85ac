"""The sparse vector: scales, the integer rule, the stop, and what survives a restart."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from streamdp.privacy import sparse_vector as module
from streamdp.privacy.noise import InsecureSeededSource
from streamdp.privacy.sparse_vector import SparseVector, SparseVectorExhaustedError


def seeded(positives: int = 1, epsilon: str = "1", seed: int = 1, **options: bool) -> SparseVector:
    return SparseVector(epsilon, 1, positives, source=InsecureSeededSource(seed), **options)


@pytest.fixture
def scripted_noise(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Draws that a test writes down: the rule itself is then checked to the unit."""
    script: list[int] = []
    draws: Iterator[int] = iter(script)
    monkeypatch.setattr(module, "discrete_laplace", lambda scale, size, source: np.array([next(draws)]))
    return script


@pytest.mark.parametrize("positives", [1, 2, 4, 20, 1000])
@pytest.mark.parametrize("monotone", [False, True])
def test_scales_spend_epsilon_exactly_near_the_best_split(positives: int, monotone: bool) -> None:
    epsilon, sensitivity = Fraction(3, 7), 5
    vector = SparseVector(epsilon, sensitivity, positives, monotone, InsecureSeededSource(0))
    answers = positives if monotone else 2 * positives
    threshold_epsilon = sensitivity / vector.threshold_scale
    query_epsilon = answers * sensitivity / vector.query_scale
    assert threshold_epsilon + query_epsilon == epsilon == vector.epsilon_spent
    assert float(query_epsilon / threshold_epsilon) == pytest.approx(answers ** (2 / 3), rel=1e-3)


def test_the_draws_have_the_scales_the_object_states() -> None:
    # Mean absolute values over fixed seeds, at a tenth of the difference that halving a scale would make.
    def mean_absolute(scale: Fraction) -> float:
        shrink = math.exp(-1 / float(scale))
        return 2 * shrink / (1 - shrink**2)

    source = InsecureSeededSource(5)
    vectors = [SparseVector("1/10", 1, 2, source=source) for _ in range(2000)]
    rho = np.array([vector.state()["rho"] for vector in vectors])
    assert abs(rho).mean() == pytest.approx(mean_absolute(vectors[0].threshold_scale), rel=0.06)
    assert abs(rho.mean()) < 0.2 * float(vectors[0].threshold_scale)

    # With rho at zero, the smallest threshold that stays below is the query noise itself.
    point = {**vectors[0].state(), "rho": 0}
    scale = float(vectors[0].query_scale)
    bits = [SparseVector.from_state(point, source).above(0, scale) for _ in range(2000)]
    assert np.mean(bits) == pytest.approx(math.exp(-1) / 2, abs=0.035)  # 0.06 if the scale were halved


def test_above_compares_in_integers(scripted_noise: list[int]) -> None:
    scripted_noise += [3, 0, 0, -2, -3]
    vector = SparseVector(1, 1, 5)
    assert vector.above(13, 10)  # 13 + 0 - 3 >= 10
    assert not vector.above(12, 10)
    assert vector.above(15, 10)
    assert not vector.above(15, 10)
    assert vector.remaining == 3


@pytest.mark.parametrize(
    ("threshold", "smallest_answer"),
    [
        (9.5, 10),
        (Fraction(19, 2), 10),
        (10, 10),
        (-9.5, -9),
        (np.int64(2**60 + 1), 2**60 + 1),
        (2.0**70, 2**70),
        (np.float32(0.5), 1),
    ],
)
def test_thresholds_are_rounded_up_exactly(
    scripted_noise: list[int], threshold: int | Fraction | float, smallest_answer: int
) -> None:
    scripted_noise += [0, 0, 0]
    vector = SparseVector(1, 1, 2)
    assert not vector.above(smallest_answer - 1, threshold)
    assert vector.above(smallest_answer, threshold)


def test_every_query_meets_the_same_threshold_noise(scripted_noise: list[int]) -> None:
    scripted_noise += [100] + [0] * 10
    vector = SparseVector(1, 1, 9)
    assert [vector.above(answer, 0) for answer in [99, 100] * 5] == [False, True] * 5


def test_it_stops_for_good_after_the_paid_positives() -> None:
    vector = seeded(positives=2)
    assert vector.above(10**6, 0)
    assert not vector.exhausted
    assert vector.above(10**6, 0)
    assert vector.exhausted and vector.remaining == 0
    for answer in (10**6, -(10**6)):
        with pytest.raises(SparseVectorExhaustedError, match="create and charge"):
            vector.above(answer, 0)


def test_belows_are_free_and_unlimited() -> None:
    vector = seeded()
    assert not any(vector.above(-(10**6), 0) for _ in range(200))
    assert vector.remaining == 1


def test_zero_positives_is_always_below_draws_nothing_and_costs_nothing(scripted_noise: list[int]) -> None:
    vector = SparseVector(0, 1, 0)  # the empty script would raise at any draw
    assert not any(vector.above(10**9, 0) for _ in range(3))
    assert vector.epsilon_spent == 0 == SparseVector("1", 1, 0).epsilon_spent
    assert not vector.exhausted
    assert not SparseVector.from_state(vector.state()).above(10**9, 0)


def test_a_restored_vector_goes_on_and_draws_no_new_threshold_noise(scripted_noise: list[int]) -> None:
    scripted_noise += [7, 0]
    vector = SparseVector("0.01", 1, 3)
    assert vector.above(7, 0)
    kept = json.loads(json.dumps(vector.state()))
    restored = SparseVector.from_state(kept)
    assert restored.state() == kept and restored.remaining == 2
    assert (restored.threshold_scale, restored.query_scale) == (vector.threshold_scale, vector.query_scale)
    scripted_noise += [0, 0]  # one draw for each question; a draw for the restoration would leave none for the last
    assert not restored.above(6, 0)
    assert restored.above(7, 0)


def test_a_state_of_another_version_or_with_too_many_positives_is_refused() -> None:
    state = seeded().state()
    with pytest.raises(ValueError, match="version 2"):
        SparseVector.from_state({**state, "version": 2})
    with pytest.raises(ValueError, match="damaged"):
        SparseVector.from_state({**state, "remaining": 2})


def test_the_threshold_noise_is_not_in_the_repr(scripted_noise: list[int]) -> None:
    scripted_noise += [987654321]
    assert "987654321" not in repr(SparseVector(1, 1, 1))


@pytest.mark.parametrize("answer", [0.5, math.nan, math.inf, np.float64(1.25)])
def test_an_answer_off_the_lattice_is_refused_without_repeating_it(answer: float) -> None:
    vector = seeded()
    with pytest.raises(ValueError, match="must be an integer") as caught:
        vector.above(answer, 0)
    assert str(answer) not in str(caught.value)


def test_an_answer_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError):
        seeded().above("12", 0)  # type: ignore[arg-type]


def test_integral_floats_and_numpy_integers_are_answers(scripted_noise: list[int]) -> None:
    scripted_noise += [0] * 4
    vector = SparseVector(1, 1, 3)
    assert vector.above(5.0, 5) and vector.above(np.int32(5), 5) and vector.above(np.float32(5), 5)


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -math.inf])
def test_a_threshold_must_be_finite(threshold: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        seeded().above(0, threshold)


@pytest.mark.parametrize(
    ("epsilon", "sensitivity", "positives", "error"),
    [
        (0, 1, 1, ValueError),
        (-1, 1, 1, ValueError),
        (-1, 1, 0, ValueError),
        (1, 0, 1, ValueError),
        (1, 1, -1, ValueError),
        (1, 1.5, 1, TypeError),
        (1, 1, 1.0, TypeError),
        (math.nan, 1, 1, ValueError),
    ],
)
def test_wrong_parameters_are_refused(epsilon: float, sensitivity: int, positives: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        SparseVector(epsilon, sensitivity, positives)
