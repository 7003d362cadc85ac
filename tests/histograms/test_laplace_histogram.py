from fractions import Fraction

import numpy as np
import pytest

import streamdp.privacy.mechanisms as mechanisms_module
from streamdp.errors import ConfigurationError
from streamdp.histograms import Laplace, Statement, method_named, method_names, register
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace


def check_noise(method: Laplace, epsilon: Fraction, sensitivity: int, seed: int) -> None:
    """The noise's variance is that of the discrete Laplace of scale `sensitivity / epsilon`, within 5 % (6 sigma)."""
    counts = np.arange(100_000, dtype=np.int64)
    noisy = method.release(counts, counts.shape, epsilon, sensitivity, InsecureSeededSource(seed))
    assert noisy.scale == sensitivity / epsilon
    noise = noisy.counts - counts
    q = np.exp(-float(epsilon) / sensitivity)
    assert np.mean(noise.astype(float) ** 2) == pytest.approx(2 * q / (1 - q) ** 2, rel=0.05)
    assert abs(np.mean(noise)) < 6 * np.sqrt(2 * q / (1 - q) ** 2 / counts.size)


@pytest.mark.parametrize(("epsilon", "sensitivity"), [("1/10", 1), ("1/10", 3), ("2", 1), ("7/300", 2)])
def test_noise_has_the_scale_that_epsilon_buys(epsilon: str, sensitivity: int) -> None:
    check_noise(Laplace(), Fraction(epsilon), sensitivity, seed=1)


def test_the_check_notices_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms_module, "discrete_laplace", lambda scale, *rest: discrete_laplace(scale / 2, *rest))
    with pytest.raises(AssertionError):
        check_noise(Laplace(), Fraction(1, 10), 1, seed=1)


def test_counts_stay_integers_and_the_input_is_left_alone() -> None:
    counts = np.array([5, 0, 7], dtype=np.int64)
    noisy = Laplace().release(counts, (3,), Fraction(1), 1, InsecureSeededSource(0))
    assert noisy.counts.dtype == np.int64
    assert counts.tolist() == [5, 0, 7]


def test_laplace_is_registered_with_its_statement() -> None:
    assert "laplace" in method_names()
    assert method_named("laplace").statement.sensitivity.startswith("m")
    with pytest.raises(ConfigurationError, match="registered"):
        register(Laplace())
    with pytest.raises(ConfigurationError, match="laplace"):
        method_named("unheard-of")


@pytest.mark.parametrize("missing", ["lattice", "sensitivity", "budget", "structure"])
def test_a_method_that_does_not_state_its_privacy_is_refused(missing: str) -> None:
    class Silent(Laplace):
        name = "silent"
        statement = Statement(
            **{field: "" if field == missing else "said" for field in ("lattice", "sensitivity", "budget", "structure")}
        )

    with pytest.raises(ConfigurationError, match=missing):
        register(Silent())
    assert "silent" not in method_names()


def test_a_method_without_a_statement_is_refused() -> None:
    class Mute(Laplace):
        name = "mute"
        statement = None  # type: ignore[assignment]

    with pytest.raises(ConfigurationError, match="statement"):
        register(Mute())
