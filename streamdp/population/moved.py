"""What a batch of messages, or the close of a time point, did to the counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class CountsMoved:
    """Net changes of one histogram: distinct cells, ascending, and a non-zero change for each. Private."""

    histogram: str
    cells: npt.NDArray[np.int64] = field(repr=False)
    changes: npt.NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class Moved:
    """`changes` has an entry for every view, empty arrays included.

    `stale` counts the messages of keys for which the batch brought nothing newer than what they held. Both are
    private: they may reach the operator's own metrics, never a release.
    """

    changes: Mapping[str, CountsMoved]
    stale: int = field(repr=False)
