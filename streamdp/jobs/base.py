"""What every estimator shares: scikit-learn's parameter protocol, and the meter that all its noise goes through."""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamdp.errors import ConfigurationError
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.mechanisms import noisy_sum
from streamdp.privacy.noise import NoiseSource


class ParameterError(ConfigurationError, ValueError):
    """A parameter, or the shape of the data, is wrong; decided by public facts alone, before anything is spent."""


class Estimator:
    """`get_params` and `set_params` as scikit-learn's `clone` and grid searches expect them.

    A subclass stores its constructor's parameters under their own names and does nothing else there.
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        unknown = sorted(set(parameters) - set(self._parameter_names()))
        if unknown:
            raise ParameterError(f"{type(self).__name__} has no parameter {', '.join(unknown)}")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if name != "source")
        return f"{type(self).__name__}({given})"


class Meter:
    """The only way an estimator adds noise: what it costs is known because it was asked for here.

    `noisy` adds discrete Laplace noise of scale `sensitivity / epsilon` to integers of that L1 sensitivity, so it costs
    exactly `epsilon` (Ghosh, Roughgarden, Sundararajan 2009); costs add up. To spend more than the total is refused.
    """

    def __init__(self, total: Fraction, source: NoiseSource | None = None) -> None:
        self.total = total
        self.spent = Fraction(0)
        self.source = source

    @property
    def left(self) -> Fraction:
        return self.total - self.spent

    def noisy(self, exact: npt.NDArray[np.int64], sensitivity: int, epsilon: Fraction) -> npt.NDArray[np.int64]:
        self.spend(epsilon)
        return noisy_sum(exact, sensitivity / epsilon, self.source)

    def spend(self, epsilon: Fraction) -> None:
        """Before any other mechanism of that cost, such as a selection, looks at the data."""
        if epsilon <= 0 or epsilon > self.left:
            raise RuntimeError("an estimator asked for more than its epsilon; this is a defect, please report it")
        self.spent += epsilon


def checked_epsilon(value: Any) -> Fraction:
    try:
        epsilon = as_fraction(value)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"epsilon: {error}") from None
    if epsilon <= 0:
        raise ParameterError("epsilon must be positive: with none of it nothing may be computed from the data")
    if epsilon < SMALLEST_EPSILON:
        raise ParameterError(f"epsilon must be at least {float(SMALLEST_EPSILON):g}: below, noise drowns any count")
    return epsilon


# Far below any use, and far enough above the sampler's largest scale for every share of every method.
SMALLEST_EPSILON = Fraction(1, 10**5)
