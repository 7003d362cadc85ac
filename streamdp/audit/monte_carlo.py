"""A lower bound on the privacy loss of anything that can be run: draws, an event, Clopper-Pearson confidence.

The bound holds with the stated confidence whatever the mechanism is. The other way round it says nothing: a mechanism
in which no violation was found may still have one, rarer than the draws or on other inputs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import betaincinv

from streamdp.privacy.noise import NoiseSource

Dataset = TypeVar("Dataset")


@dataclass(frozen=True)
class LowerBound:
    """With `confidence`, the mechanism loses at least `epsilon` between the two inputs, on the outputs in `event`."""

    epsilon: float
    event: frozenset[Hashable]
    trials: int
    confidence: float


def monte_carlo_lower_bound(
    mechanism: Callable[[Dataset, NoiseSource | None], Hashable],
    dataset: Dataset,
    neighbour: Dataset,
    *,
    trials: int = 20_000,
    confidence: float = 0.999,
    source: NoiseSource | None = None,
) -> LowerBound:
    """Run `mechanism(dataset, source)` `trials` times on each of two neighbouring inputs and bound its loss from below.

    Half of the draws choose the event, the other half measure it, so that choosing does not spoil the confidence.
    """
    if trials < 2:
        raise ValueError("at least two trials are needed: one to choose the event, one to measure it")
    if not 0 < confidence < 1:
        raise ValueError("confidence must lie strictly between 0 and 1")
    pilot = trials // 2
    measured = trials - pilot
    risk = (1 - confidence) / 2
    chosen_from = [Counter(mechanism(data, source) for _ in range(pilot)) for data in (dataset, neighbour)]
    counts = [Counter(mechanism(data, source) for _ in range(measured)) for data in (dataset, neighbour)]
    _, event, first = max(
        ((*_best_event(chosen_from[first], chosen_from[1 - first], pilot, risk), first) for first in (0, 1)),
        key=lambda choice: choice[0],
    )
    more = sum(counts[first][output] for output in event)
    less = sum(counts[1 - first][output] for output in event)
    return LowerBound(_log_ratio(more, less, measured, risk), event, trials, confidence)


def _best_event(
    more: Counter[Hashable], less: Counter[Hashable], trials: int, risk: float
) -> tuple[float, frozenset[Hashable]]:
    """The event with the best bound among those that hold the outputs of largest ratio."""
    outputs = sorted(more, key=lambda output: (more[output] + 1) / (less[output] + 1), reverse=True)
    best, best_size = -math.inf, 1
    more_so_far = less_so_far = 0
    for size, output in enumerate(outputs, start=1):
        more_so_far += more[output]
        less_so_far += less[output]
        bound = _log_ratio(more_so_far, less_so_far, trials, risk)
        if bound > best:
            best, best_size = bound, size
    return best, frozenset(outputs[:best_size])


def _log_ratio(more: int, less: int, trials: int, risk: float) -> float:
    low, _ = clopper_pearson(more, trials, risk)
    _, high = clopper_pearson(less, trials, risk)
    return max(0.0, math.log(low / high)) if low > 0 else 0.0


def clopper_pearson(successes: int, trials: int, risk: float) -> tuple[float, float]:
    """Bounds on a probability from counted successes; each of the two fails with probability at most `risk`."""
    low = float(betaincinv(successes, trials - successes + 1, risk)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - risk)) if successes < trials else 1.0
    return low, high


def is_consistent(outcomes: np.typing.NDArray[np.bool_], probability: float, risk: float = 1e-9) -> bool:
    """Whether counted outcomes may come from events of this probability: a refusal is wrong with chance `2 * risk`."""
    low, high = clopper_pearson(int(np.count_nonzero(outcomes)), outcomes.size, risk)
    return low <= probability <= high
