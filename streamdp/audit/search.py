"""The search for the neighbours and the output that cost a rule most.

The families tried are those behind the known attacks. Answers far above the threshold that came out "below" say that
`rho` is large, where its own tail costs most; raise them for the neighbour and lower those that came out "above", and
every positive costs twice the sensitivity. Where `rho` no longer hides anything (clamped away, revealed by a value, or
pinned by positives before the window), every single "below" costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamdp.audit.exact import case_loss
from streamdp.audit.rules import Case, Rule, Step

# In units of the query noise. Far enough that what the tails lack of a pure exponential is below 1e-6 of the loss.
_HEIGHTS = (0, 1, 20)
_DEPTHS = (0, -1, -20)


@dataclass(frozen=True)
class Attack:
    """The worst case found: `loss` is exact for `case`, and thereby a lower bound for the rule."""

    loss: float
    case: Case


def worst_loss(rule: Rule, sensitivity: float, length: int | None = None, monotone: bool = False) -> Attack:
    """The largest exact loss found over adversarial sequences of at most `length` answers that may differ.

    `monotone` restricts neighbours to answers that all move in one direction. Without `length` the sequence is long
    enough for a rule with a limit on positives to come as close to its worst as floating point shows.
    """
    if length is None:
        if rule.positives is None:
            raise ValueError("a rule without a limit on positives has no worst length; give one")
        length = 25 * (rule.positives + 1)
    worst = Attack(0.0, ())
    for case in adversarial_cases(rule, sensitivity, length, monotone):
        loss = abs(case_loss(rule, case))
        if loss > worst.loss:
            worst = Attack(loss, case)
    return worst


def growth(rule: Rule, sensitivity: float, lengths: Sequence[int]) -> list[Attack]:
    """The worst loss for each length: a rule without a bound shows losses that keep growing."""
    return [worst_loss(rule, sensitivity, length) for length in lengths]


def adversarial_cases(rule: Rule, sensitivity: float, length: int, monotone: bool) -> Iterator[Case]:
    """Every case of the families that apply to the rule."""
    for changes in _changes(sensitivity, monotone):
        if rule.window is not None:
            yield from _pinned(rule, min(length, rule.window), changes[0])
        elif rule.clamp is not None:
            yield from _clamped(rule, length, changes[0])
        if rule.window is None:
            yield from _shifted(rule, length, *changes)


def _changes(sensitivity: float, monotone: bool) -> list[tuple[float, float]]:
    """How far the neighbour moves the answers that came out below, and those that came out above."""
    moves = (-sensitivity, 0.0, sensitivity)
    pairs = [(below, above) for below in moves for above in moves if below or above]
    return [(below, above) for below, above in pairs if below * above >= 0] if monotone else pairs


def _unit(rule: Rule) -> int:
    return max(1, round(rule.query_noise.scale or rule.threshold_noise.scale))


def _shifted(rule: Rule, length: int, below_change: float, above_change: float) -> Iterator[Case]:
    """Some answers below, then positives."""
    unit = _unit(rule)
    for positives in _positives(rule, length):
        for height in (unit * multiple for multiple in _HEIGHTS):
            for depth in (unit * multiple for multiple in _DEPTHS):
                if rule.fresh_threshold:
                    belows = (length - positives) // positives
                    below = Step(height, height + below_change, above=False, times=max(1, belows))
                    yield (below, Step(depth, depth + above_change, above=True)) * positives
                    continue
                below = Step(height, height + below_change, above=False, times=length - positives)
                value = float(depth) if rule.values else None
                yield (below, Step(depth, depth + above_change, above=True, times=positives, value=value))


def _positives(rule: Rule, length: int) -> list[int]:
    if rule.values:
        return [1]
    limit = length - 1 if rule.positives is None else min(rule.positives, length - 1)
    return sorted({limit, max(1, min(limit, length // 4)), max(1, min(limit, length // 3))})


def _clamped(rule: Rule, length: int, change: float) -> Iterator[Case]:
    """The public threshold falls until the noisy one is at the low end whatever `rho` was; then only answers below."""
    assert rule.clamp is not None
    low, _ = rule.clamp
    start = low
    end = start - 100 * float(rule.threshold_noise.scale)
    quiet = start - 20 * _unit(rule)
    for height in (low + _unit(rule) * multiple for multiple in _HEIGHTS):
        falling = Step(quiet, quiet, above=False, threshold=start)
        yield (falling, Step(height, height + change, above=False, threshold=end, times=length))


def _pinned(rule: Rule, length: int, change: float) -> Iterator[Case]:
    """Positives on equal answers before the window say that `rho` is small; then a window of answers below."""
    assert rule.window is not None
    positives = 4 * length
    rate = rule.positives or rule.window
    depth = -40 * _unit(rule)
    quiet = Step(depth, depth, above=False, times=-(-positives * rule.window // rate))
    revealing = Step(0, 0, above=True, times=positives)
    for height in (_unit(rule) * multiple for multiple in _HEIGHTS):
        yield (quiet, revealing, Step(height, height + change, above=False, times=length))
