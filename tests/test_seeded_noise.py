"""What keeps statistical tests from flaking: the same test draws the same, and another test something else."""

import pytest
from seeded_noise import seeded_by

from streamdp.privacy.noise import discrete_laplace


@pytest.mark.parametrize("number", [1, 2])
def test_noise_is_a_function_of_the_tests_name(request: pytest.FixtureRequest, number: int) -> None:
    drawn = discrete_laplace(1_000_000, 4)
    assert drawn.tolist() == discrete_laplace(1_000_000, 4, seeded_by(request.node.nodeid)).tolist()
    other = request.node.nodeid.replace(f"[{number}]", f"[{3 - number}]")
    assert drawn.tolist() != discrete_laplace(1_000_000, 4, seeded_by(other)).tolist()


@pytest.mark.system_noise
def test_who_asks_for_the_systems_noise_gets_it(request: pytest.FixtureRequest) -> None:
    drawn = discrete_laplace(2**53, 4)
    assert drawn.tolist() != discrete_laplace(2**53, 4, seeded_by(request.node.nodeid)).tolist()
