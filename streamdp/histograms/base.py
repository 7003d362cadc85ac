"""The seam for one-time differentially private histograms, and the register of those that say what they cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Protocol

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import NoiseSource


@dataclass(frozen=True)
class Statement:
    """What makes a method's guarantee checkable. Every field is a sentence; an empty one keeps the method out."""

    lattice: str
    """The unit the noisy values are multiples of."""
    sensitivity: str
    """The L1 sensitivity of what the noise is added to, times the contribution bound `m`."""
    budget: str
    """How epsilon is split over levels or steps."""
    structure: str
    """How structure that depends on the data (partitions, coefficients kept) is paid for."""


@dataclass(frozen=True, eq=False)
class Noisy:
    """A histogram that may be published: flat integer counts and the scale of the noise in one of them.

    The scale is None where the noise of a count is no single discrete Laplace variable.
    """

    counts: Counts
    scale: Fraction | None


class HistogramMethod(Protocol):
    """A static method: one histogram in, one `epsilon`-private histogram out."""

    @property
    def name(self) -> str: ...

    @property
    def statement(self) -> Statement: ...

    def release(
        self,
        counts: Counts,
        shape: tuple[int, ...],
        epsilon: Fraction,
        sensitivity: int,
        source: NoiseSource | None = None,
    ) -> Noisy:
        """Flat `counts` of a histogram of `shape` with noise that costs `epsilon`, when one user moves them by at most
        `sensitivity` in L1. Total: every input yields an output of the same length."""


_methods: dict[str, HistogramMethod] = {}


def register(method: HistogramMethod) -> None:
    """Make a method available by name. One without a full privacy statement is refused."""
    statement = getattr(method, "statement", None)
    if not isinstance(statement, Statement):
        raise ConfigurationError(f"histogram method {method.name!r} has no privacy statement and cannot be registered")
    missing = [field.name for field in fields(statement) if not getattr(statement, field.name).strip()]
    if missing:
        raise ConfigurationError(
            f"the privacy statement of histogram method {method.name!r} does not say its {', '.join(missing)}"
        )
    if method.name in _methods:
        raise ConfigurationError(f"a histogram method named {method.name!r} is already registered")
    _methods[method.name] = method


def method_named(name: str) -> HistogramMethod:
    """The registered method of that name."""
    try:
        return _methods[name]
    except KeyError:
        raise ConfigurationError(
            f"there is no histogram method {name!r}; registered: {', '.join(method_names())}"
        ) from None


def method_names() -> tuple[str, ...]:
    """The names of all registered methods, in alphabetical order."""
    return tuple(sorted(_methods))
