"""Ours passes, and stops passing when any of its noise is halved."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from streamdp.audit import Finding, Measurement, Method, Subject, Verdict, catalogue, own
from streamdp.privacy import mechanisms, noise, selection, sparse_vector


def verdict_of(name: str) -> Finding:
    (subject,) = [subject for subject in catalogue() if subject.name == name]
    return Finding(subject, subject.measure())


def halved(mechanism: Callable[..., Any], only: Callable[[Fraction], bool] = lambda scale: True) -> Callable[..., Any]:
    def with_half_the_scale(scale: Fraction, size: int, source: noise.NoiseSource | None = None) -> Any:
        return mechanism(scale / 2 if only(scale) else scale, size, source)

    return with_half_the_scale


def test_names_are_unique_and_everything_required_is_there() -> None:
    names = [subject.name for subject in catalogue()]
    assert len(set(names)) == len(names)
    for part in ("SparseVector c=1,", "SparseVector c=4,", "SparseVector c=20,", "discrete Laplace", "exponential"):
        assert any(part in name for name in names)
    for algorithm in (17, 18, 19, 20, 21, 22):
        assert any(f"Alg. {algorithm}" in name for name in names)
    for rule in ("2017 Alg. 7, C-1", "2015 Alg. 1, C-1", "2015 Alg. 2, clamped", "2015 Alg. 2, uncut", "2015 Alg. 3"):
        assert any(rule in name for name in names)


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize(
    "name", ["SparseVector c=1, general", pytest.param("SparseVector c=4, monotone", marks=pytest.mark.slow)]
)
def test_a_halved_scale_of_the_sparse_vector_exceeds_its_claim(
    monkeypatch: pytest.MonkeyPatch, name: str, part: int
) -> None:
    scales = sparse_vector.noise_scales

    def wrong(*arguments: Any) -> tuple[Fraction, ...]:
        right = scales(*arguments)
        return tuple(scale / 2 if i == part else scale for i, scale in enumerate(right))

    monkeypatch.setattr(sparse_vector, "noise_scales", wrong)
    finding = verdict_of(name)
    assert finding.verdict is Verdict.EXCEEDS and not finding.as_expected


@pytest.mark.parametrize("part", ["threshold_scale", "query_scale"])
def test_a_sparse_vector_that_draws_less_noise_than_it_states_is_found_out(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    stated = getattr(sparse_vector.SparseVector(1, 1, 20), part)
    wrong = halved(noise.discrete_laplace, only=lambda scale: scale == stated)
    monkeypatch.setattr(sparse_vector, "discrete_laplace", wrong)
    finding = verdict_of("SparseVector c=20, general")
    assert finding.verdict is Verdict.NOT_AS_DESCRIBED
    assert part.partition("_")[0] in str(finding.measurement.problem)


def test_a_sparse_vector_that_does_not_stop_or_redraws_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(sparse_vector.SparseVector):
        @property
        def exhausted(self) -> bool:
            return False

    class Redrawing(sparse_vector.SparseVector):
        def above(self, answer: Any, threshold: Any) -> bool:
            self._rho += 1
            return super().above(answer, threshold)

    for broken, problem in ((Endless, "stop"), (Redrawing, "changes")):
        monkeypatch.setattr(sparse_vector, "SparseVector", broken)
        assert problem in str(verdict_of("SparseVector c=1, general").measurement.problem)


@pytest.mark.slow
def test_halved_laplace_noise_is_found_in_the_law_and_in_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "discrete_laplace", halved(noise.discrete_laplace))
    assert verdict_of("discrete Laplace").verdict is Verdict.NOT_AS_DESCRIBED
    assert verdict_of("discrete Laplace, drawn").verdict is Verdict.EXCEEDS


@pytest.mark.slow
def test_whole_runs_of_auto_with_half_the_noise_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own.auto_drawn().loss < 1
    monkeypatch.setattr(mechanisms, "discrete_laplace", halved(noise.discrete_laplace))
    assert own.auto_drawn().loss > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exponential_mechanism", "permute_and_flip"])
def test_a_selection_with_twice_its_epsilon_is_found_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    right = getattr(selection, name)

    def wrong(scores: Any, epsilon: Fraction, *arguments: Any, **options: Any) -> Any:
        return right(scores, 2 * epsilon, *arguments, **options)

    monkeypatch.setattr(selection, name, wrong)
    drawn = own.exponential_drawn() if name == "exponential_mechanism" else own.permute_and_flip_drawn()
    assert drawn.loss > 1
    if name == "exponential_mechanism":
        assert own.exponential_law(monotone=False).problem is not None
        assert own.exponential_law(monotone=True).problem is not None


def finding(expected: Verdict, ratio: float | None = None, **measured: Any) -> Finding:
    measurement = Measurement(**measured)
    return Finding(Subject("group", "name", 2.0, lambda: measurement, expected, ratio), measurement)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ({"loss": 2.0}, Verdict.WITHIN),
        ({"loss": 2.0 + 1e-12}, Verdict.WITHIN),
        ({"loss": 2.001}, Verdict.EXCEEDS),
        ({"loss": math.inf}, Verdict.INFINITE),
        ({"loss": 1.9, "method": Method.LOWER_BOUND}, Verdict.NOTHING_FOUND),
        ({"loss": 2.1, "method": Method.LOWER_BOUND}, Verdict.EXCEEDS),
        ({"loss": 8.0, "growth": ((8, 2.0), (16, 4.0), (32, 8.0))}, Verdict.UNBOUNDED),
        ({"loss": 8.1, "growth": ((8, 4.0), (16, 8.0), (32, 8.1))}, Verdict.EXCEEDS),
        ({"loss": 1.0, "problem": "its scale is wrong"}, Verdict.NOT_AS_DESCRIBED),
    ],
)
def test_verdicts(measured: dict[str, Any], verdict: Verdict) -> None:
    assert finding(Verdict.WITHIN, **measured).verdict is verdict


def test_a_ratio_more_than_one_per_cent_off_is_unexpected() -> None:
    assert finding(Verdict.WITHIN, 1.0, loss=1.99).as_expected
    assert not finding(Verdict.WITHIN, 1.0, loss=1.9).as_expected
    assert finding(Verdict.WITHIN, loss=1.9).as_expected
    assert not finding(Verdict.EXCEEDS, loss=1.9).as_expected


def test_infinity_is_null_for_machines() -> None:
    assert finding(Verdict.INFINITE, loss=math.inf).as_dict()["loss"] is None
