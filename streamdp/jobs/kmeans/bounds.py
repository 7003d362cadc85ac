"""The public range of every attribute, and the map between its units and [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdp.arrays import Floats
from streamdp.jobs.base import ParameterError

# Below it a division by the width overflows: such an attribute is a constant.
_SMALLEST_HALF_WIDTH = 1e-280
# Squared distances are exact in float64 up to some 2,000 attributes: beyond, rounding could let rows move each other.
MAX_ATTRIBUTES = 1000


@dataclass(frozen=True)
class Bounds:
    """`axes` are the attributes that can vary; one whose bounds are equal is a public constant and costs nothing."""

    low: Floats
    high: Floats

    @property
    def axes(self) -> list[int]:
        return np.flatnonzero(self.half_width > _SMALLEST_HALF_WIDTH).tolist()

    @property
    def middle(self) -> Floats:
        return self.low / 2 + self.high / 2

    @property
    def half_width(self) -> Floats:
        return self.high / 2 - self.low / 2

    def to_units(self, points: Floats) -> Floats:
        """Points over the varying attributes, in [-1, 1], as points over all attributes in their own units."""
        units = np.tile(self.low, (len(points), 1))
        units[:, self.axes] = self.middle[self.axes] + points * self.half_width[self.axes]
        return np.clip(units, self.low, self.high)


def declared_attributes(bounds: Any) -> int | None:
    """How many attributes the bounds speak of: None when two plain numbers serve for any number of them."""
    low, high = _pair(bounds)
    sizes = {len(side) for side in (low, high) if side.ndim == 1}
    if len(sizes) > 1:
        raise ParameterError("bounds: as many lower as upper ends are needed")
    return sizes.pop() if sizes else None


def checked_bounds(bounds: Any, attributes: int) -> Bounds:
    if attributes > MAX_ATTRIBUTES:
        raise ParameterError(f"at most {MAX_ATTRIBUTES} attributes; noise drowns more")
    low, high = (np.array(np.broadcast_to(side, (attributes,))) for side in _pair(bounds))
    if not np.isfinite([low, high]).all() or np.any(low > high):
        raise ParameterError("bounds: every lower end must be a finite number and no greater than its upper end")
    checked = Bounds(low, high)
    if not checked.axes:
        raise ParameterError("bounds: every attribute is a constant, so there is nothing to cluster")
    return checked


def _pair(bounds: Any) -> tuple[Floats, Floats]:
    if bounds is None:
        raise ParameterError(
            "bounds are missing: give (low, high), numbers or one for each attribute, from public knowledge; "
            "bounds taken from the data would reveal its extremes"
        )
    try:
        low, high = (np.asarray(side, dtype=np.float64) for side in bounds)
    except (TypeError, ValueError):
        raise ParameterError("bounds must be (low, high), two numbers or two sequences of numbers") from None
    if low.ndim > 1 or high.ndim > 1:
        raise ParameterError("bounds must be (low, high), two numbers or two sequences of numbers")
    return low, high
