"""Standard errors of ranges: what the formula says is what the noise does."""

import json
from fractions import Fraction

import numpy as np
import pytest

from streamdp.histograms.bands import bands_of
from streamdp.histograms.variance import Variance, laplace_variance
from streamdp.privacy.noise import InsecureSeededSource, discrete_laplace


def test_independent_noise_adds_up_over_the_cells_of_a_range() -> None:
    scale = Fraction(7, 2)
    variance = Variance.of_laplace((4, 5), scale)
    draws = discrete_laplace(scale, 20 * 20_000, InsecureSeededSource(1)).reshape(-1, 4, 5)
    sums = draws[:, 1:3, [0, 2, 4]].sum(axis=(1, 2))
    assert variance.standard_error([slice(1, 3), np.array([0, 2, 4])]) == pytest.approx(sums.std(), rel=0.03)
    assert laplace_variance(scale) == pytest.approx(draws.var(), rel=0.03)


@pytest.mark.parametrize(("scale", "variance"), [(10**20, 2e40), (Fraction(1, 2), 0.3620308), (Fraction(1, 2000), 0.0)])
def test_noise_of_any_scale_has_a_variance(scale: Fraction, variance: float) -> None:
    assert laplace_variance(scale) == pytest.approx(variance, rel=1e-6)


def test_a_variance_for_each_band_is_that_of_coefficients_with_it() -> None:
    shape = (6, 4)
    bands = bands_of(shape)
    generator = np.random.default_rng(3)
    noise, drift = generator.uniform(1, 50, bands.number), generator.uniform(0, 9, bands.number)
    variance = Variance(shape, noise, drift)
    deviations = np.sqrt(bands.spread(noise + 3 * drift))
    cells = [bands.inverse(generator.normal(size=24) * deviations).reshape(shape) for _ in range(20_000)]
    sums = np.array([one[2:5, 1:3].sum() for one in cells])
    assert variance.standard_error([slice(2, 5), slice(1, 3)], age=3) == pytest.approx(sums.std(), rel=0.03)


def test_it_travels_as_json_and_never_becomes_smaller() -> None:
    before = Variance((3, 3), np.array([0.0, 1.23456, 98765.4, *np.ones(6)]), np.full(9, 1e-7 / 3))
    after = Variance.from_json((3, 3), json.loads(json.dumps(before.to_json())))
    assert after.drift is not None and before.drift is not None
    assert (after.noise >= before.noise).all() and after.noise == pytest.approx(before.noise, rel=1e-3)
    assert (after.drift >= before.drift).all() and after.drift == pytest.approx(before.drift, rel=1e-3)
    alone = Variance.from_json((9,), json.loads(json.dumps(Variance.of_laplace((9,), Fraction(2)).to_json())))
    assert alone.drift is None
    assert alone.standard_error([slice(0, 9)], age=50) == pytest.approx(3 * laplace_variance(2) ** 0.5, rel=1e-3)
