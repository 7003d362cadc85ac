"""Each part's noise has the scale it claims: these tests fail when a scale is halved."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streamdp.jobs.privpfc.release as release_module
import streamdp.privacy.mechanisms as mechanisms_module
from streamdp.audit.monte_carlo import is_consistent
from streamdp.domain import Attribute
from streamdp.jobs import PrivPfC
from streamdp.jobs.privpfc import Taxonomy
from streamdp.jobs.privpfc.quality import Quality
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace
from streamdp.privacy.selection import permute_and_flip

pytestmark = pytest.mark.slow

ONE_VALUE = [Taxonomy(Attribute.categorical("planet", ["earth"]))]
TWO_VALUES = [Taxonomy(Attribute.categorical("side", ["left", "right"]))]
FITS = 1_000


def fits(attributes: list[Taxonomy], codes: np.ndarray, labels: np.ndarray, **settings: object) -> list[PrivPfC]:
    source = InsecureSeededSource(1)
    name = attributes[0].name
    return [
        PrivPfC(1, attributes, [0, 1], source=source, **settings).fit_codes({name: codes}, labels) for _ in range(FITS)
    ]


def assert_variance(draws: np.ndarray, variance: float, fourth: float) -> None:
    """Within ten standard errors, which are far too few for the quarter that half the scale would give."""
    error = 10 * np.sqrt((fourth - variance**2) / len(draws))
    assert abs(np.mean(np.square(draws.astype(float))) - variance) < error < 0.75 * variance


def moments(scale: float) -> tuple[float, float]:
    """The second and fourth of the discrete Laplace distribution."""
    support = np.arange(-int(60 * scale), int(60 * scale) + 1).astype(float)
    chances = np.exp(-np.abs(support) / scale)
    chances /= chances.sum()
    return float((chances * support**2).sum()), float((chances * support**4).sum())


def test_the_size_gets_the_noise_of_its_share() -> None:
    models = fits(
        ONE_VALUE, np.zeros(5_000, dtype=np.int64), np.zeros(5_000, dtype=np.int64), shares=("0.1", "0.3", "0.6")
    )
    assert_variance(np.array([model.histogram_.size - 5_000 for model in models]), *moments(10))


def test_the_counts_get_the_noise_of_their_share() -> None:
    """Moving the counts to the total does not change their difference, but for one unit of rounding."""
    labels = np.arange(5_000) % 2
    models = fits(ONE_VALUE, np.zeros(5_000, dtype=np.int64), labels, shares=("0.1", "0.8", "0.1"))
    gaps = np.array([model.histogram_.counts[0] - model.histogram_.counts[1] for model in models])
    second, fourth = moments(10)
    # The moments of the difference of two independent draws.
    assert_variance(gaps, 2 * second, 2 * fourth + 6 * second**2)


@pytest.mark.parametrize("selection", ["permute_and_flip", "exponential"])
def test_the_worse_grid_is_chosen_as_often_as_its_share_allows(selection: str) -> None:
    """Each side has a majority of four, of different classes: the sides tell something, the whole domain nothing."""
    codes, labels = np.repeat([0, 1], 300), np.repeat([0, 1, 0, 1], [152, 148, 148, 152])
    models = fits(TWO_VALUES, codes, labels, size=600, rounds=1, selection=selection)
    quality = Quality.for_epsilon(as_fraction("60/97"))
    lead = 2 * int(quality.gains(np.array([4]))[0])
    accepted = np.exp(-37 / 97 * lead / (2 * quality.sensitivity))

    def chance(accepted: float) -> float:
        return accepted / 2 if selection == "permute_and_flip" else accepted / (1 + accepted)

    chosen = np.array([not model.grid_ for model in models])
    assert is_consistent(chosen, chance(accepted))
    assert not is_consistent(chosen, chance(accepted**2)), "too few draws to tell a scale from its half"


@pytest.mark.parametrize("size", [None, 4_000])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("selection", ["permute_and_flip", "exponential"])
def test_size_rounds_and_counts_add_up_to_epsilon(
    selection: str, rounds: int, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly. Each count moves by 1, and a quality by its table's sensitivity."""
    scales: list[Fraction] = []
    choices: list[tuple[Fraction, int]] = []

    def noise(scale: Fraction, *rest: Any) -> Any:
        scales.append(Fraction(scale))
        return discrete_laplace(scale, *rest)

    def choice(scores: Any, epsilon: Fraction, sensitivity: int, **rest: Any) -> int:
        choices.append((epsilon, sensitivity))
        return permute_and_flip(scores, epsilon, sensitivity, **rest)

    monkeypatch.setattr(mechanisms_module, "discrete_laplace", noise)
    for name in ("permute_and_flip", "exponential_mechanism"):
        monkeypatch.setattr(release_module, name, choice)
    labels = np.arange(4_000) % 2
    epsilon = as_fraction("0.7")
    model = PrivPfC(epsilon, TWO_VALUES, [0, 1], selection=selection, rounds=rounds, size=size)
    model.fit_codes({"side": labels}, labels)
    assert (len(scales), len(choices)) == (2 if size is None else 1, rounds)
    assert {sensitivity for _, sensitivity in choices} == {Quality.for_epsilon(1 / scales[-1]).sensitivity}
    assert sum(1 / scale for scale in scales) + sum(spent for spent, _ in choices) == epsilon == model.epsilon_spent_
