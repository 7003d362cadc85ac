"""What a strategy says of itself: the conditions it works under, its parameters and what it can afford."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Literal

from streamdp.errors import ConfigurationError
from streamdp.fields import Settings

Guarantee = Literal["horizon", "window"]


class WrongParameter(ConfigurationError):
    """A parameter that does not go with the rest of the configuration; `name` says which."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.message = name, message


class NoParameters(Settings):
    """This strategy has no parameters."""


@dataclass(frozen=True)
class Conditions:
    """The public conditions that a strategy works under: one of `horizon` and `window` is given."""

    epsilon: Fraction
    shape: tuple[int, ...]
    horizon: int | None
    window: int | None
    sensitivity: int = 1

    @property
    def span(self) -> int:
        """The number of points that `epsilon` is shared by."""
        span = self.window if self.horizon is None else self.horizon
        assert span is not None  # one of them is, or the settings had been refused
        return span

    @property
    def cells(self) -> int:
        return prod(self.shape)

    def at_most_span(self, name: str, value: int) -> int:
        """The value of a parameter that cannot be more than the number of points."""
        if value > self.span:
            word = "window" if self.horizon is None else "horizon"
            raise WrongParameter(name, f"found {value}; give at most the {word}, {self.span}")
        return value


@dataclass(frozen=True)
class Outline:
    """What a strategy can afford, from public quantities: what `streamdp check` says of it."""

    releases: int
    """The most releases in the horizon, or in any window."""
    largest: Fraction
    """The most that one release spends."""
    smallest: Fraction
    decisions: Fraction = Fraction(0)
    """What deciding when to release costs."""
    cell_share: Fraction = Fraction(1)
    """The part of a release's epsilon that noise in single cells gets."""
    between: str | None = None
    """What a release spends, in words, where that varies; None for a window that is busy or quiet."""
    notes: tuple[str, ...] = ()
    """More sentences."""
