"""The exact loss of a sparse-vector-shaped rule: a sum (integers) or an integral (reals) over the threshold noise.

Given `rho` the answers are independent, so the probability of an output is one expectation over `rho` of a product of
Laplace tails. All of it is done in logarithms, because the outputs that reveal most are the rarest. The part of the
line that is left out is bounded in closed form and kept below 1e-15 of the rest.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from streamdp.arrays import Floats
from streamdp.audit.rules import Case, Noise, Rule, Step, check_output

LONGEST_ENUMERATION = 12
_NEGLIGIBLE = math.log(1e-16)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_MAX_PANELS = 20_000
_LARGEST_SUM = 20_000_000


def exact_loss(
    rule: Rule, answers: Sequence[float], neighbour: Sequence[float], thresholds: Sequence[float] | None = None
) -> float:
    """The worst privacy loss over every output of `rule` on two neighbouring sequences of answers.

    This is the smallest epsilon for which these two inputs are indistinguishable; infinity when some output is possible
    on one of them only. For rules that let values leave, the values tried are those where a density has a kink.
    """
    thresholds = [0.0] * len(answers) if thresholds is None else thresholds
    if not len(answers) == len(neighbour) == len(thresholds):
        raise ValueError("answers, neighbour and thresholds must have the same length")
    if len(answers) > LONGEST_ENUMERATION:
        raise ValueError(
            f"every output is tried, which is feasible up to {LONGEST_ENUMERATION} answers; "
            "use case_loss for one output of a longer sequence"
        )
    choices: list[tuple[bool, float | None]] = [(False, None)]
    if rule.values:
        choices += [(True, value) for value in sorted({*answers, *neighbour, *thresholds})]
    else:
        choices += [(True, None)]
    worst = 0.0
    seen: set[Case] = set()
    for outcome in itertools.product(choices, repeat=len(answers)):
        case = _until_stop(rule, answers, neighbour, thresholds, outcome)
        if case not in seen:
            seen.add(case)
            worst = max(worst, abs(case_loss(rule, case)))
    return worst


def case_loss(rule: Rule, case: Case) -> float:
    """The privacy loss of one output: the log of its probability on the answers over that on the neighbour's."""
    check_output(rule, case)
    here = log_probability(rule, case)
    there = log_probability(rule, tuple(_swapped(step) for step in case))
    return 0.0 if here == there else here - there


def log_probability(rule: Rule, case: Case) -> float:
    """The log of the probability (for values: the density) of the case's output on the case's answers."""
    if not case:
        return 0.0
    if not rule.fresh_threshold:
        return _log_expectation(rule, case)
    return sum(times * _log_expectation(rule, stretch) for stretch, times in _stretches(case).items())


def _until_stop(
    rule: Rule,
    answers: Sequence[float],
    neighbour: Sequence[float],
    thresholds: Sequence[float],
    outcome: Sequence[tuple[bool, float | None]],
) -> Case:
    steps = []
    left = rule.positives if rule.positives is not None and rule.window is None else len(answers)
    for answer, other, threshold, (above, value) in zip(answers, neighbour, thresholds, outcome, strict=True):
        if left == 0:
            break
        steps.append(Step(answer, other, above, threshold, value=value))
        left -= above
    return tuple(steps)


def _swapped(step: Step) -> Step:
    return Step(step.neighbour, step.answer, step.above, step.threshold, step.times, step.value)


def _stretches(case: Case) -> Counter[Case]:
    """The case cut after every positive: with a fresh `rho` each part is independent of the others."""
    stretches: Counter[Case] = Counter()
    current: list[Step] = []
    for step in case:
        if not step.above:
            current.append(step)
            continue
        single = Step(step.answer, step.neighbour, True, step.threshold, value=step.value)
        stretches[(*current, single)] += 1
        current = []
        if step.times > 1:
            stretches[(single,)] += step.times - 1
    if current:
        stretches[tuple(current)] += 1
    return stretches


def _log_expectation(rule: Rule, case: Case) -> float:
    scale = float(rule.threshold_noise.scale)
    width = float(rule.query_noise.scale)
    kinks = _kinks(rule, case)
    queries = sum(step.times for step in case)
    reach = max(abs(kink) for kink in kinks) + width * (math.log(queries + 1) + 5) + 40 * scale
    while True:
        reach = math.ceil(reach)
        total = _sum(rule, case, reach) if rule.discrete else _integral(rule, case, reach, kinks)
        left_out = _log_left_out(rule, case, reach, scale)
        if left_out == -math.inf or left_out < total + _NEGLIGIBLE:
            return total
        reach *= 2


def _kinks(rule: Rule, case: Case) -> list[float]:
    """Where the integrand is not smooth in `rho`."""
    kinks = {0.0}
    for step in case:
        kinks.add(step.answer - step.threshold)
        if step.value is not None:
            kinks.add(step.value - step.threshold)
        if rule.clamp is not None:
            kinks.update(end - step.threshold for end in rule.clamp)
    return sorted(kinks)


def _log_left_out(rule: Rule, case: Case, reach: float, scale: float) -> float:
    """An upper bound on what |rho| > reach contributes.

    The factor of a "below" rises with `rho` and is at most 1, that of an "above" falls: on the right of `reach` every
    product is at most its "above" part at `reach`, on the left its "below" part at `-reach`.
    """
    _, right, constant = _log_factors(rule, case, np.array([float(reach)]))
    left, _, _ = _log_factors(rule, case, np.array([-float(reach)]))
    return float(-reach / scale + np.logaddexp(left[0], right[0]) + constant)


def _log_factors(rule: Rule, case: Case, rho: Floats) -> tuple[Floats, Floats, float]:
    """Logs of the product of the "below" factors, of the "above" factors, and of the constant densities of values."""
    below = np.zeros_like(rho)
    above = np.zeros_like(rho)
    constant = 0.0
    noisy = rho.copy()
    previous = case[0].threshold
    noisy += previous
    for step in case:
        if rule.clamp is None:
            noisy = rho + step.threshold
        else:
            noisy = noisy + (step.threshold - previous)
            low, high = rule.clamp
            noisy = np.maximum(noisy, low) if step.threshold <= previous else np.minimum(noisy, high)
            previous = step.threshold
        distance = noisy - step.answer
        if step.value is not None:
            width = float(rule.query_noise.scale)
            constant += step.times * (-abs(step.value - step.answer) / width - math.log(2 * width))
            above = np.where(noisy <= step.value, above, -np.inf)
        elif step.above:
            above = above + step.times * log_at_least(rule.query_noise, distance)
        else:
            below = below + step.times * log_less(rule.query_noise, distance)
    return below, above, constant


def log_at_least(noise: Noise, x: Floats) -> Floats:
    """The log of P(noise >= x)."""
    if noise.scale == 0:
        return np.where(x <= 0, 0.0, -np.inf)
    width = float(noise.scale)
    if noise.discrete:
        # P(X >= k) is a^k / (1 + a) for k >= 1, with a = exp(-1/b), and the rest follows from symmetry.
        one_more = math.log1p(math.exp(-1 / width))
        positive = -np.abs(x) / width - one_more
        negative = np.log1p(-np.exp(-(np.abs(x) + 1) / width - one_more))
        return np.where(x >= 1, positive, negative)
    tail = -np.abs(x) / width - math.log(2)
    return np.where(x >= 0, tail, np.log1p(-np.exp(tail)))


def log_less(noise: Noise, x: Floats) -> Floats:
    """The log of P(noise < x)."""
    if noise.scale == 0:
        return np.where(x > 0, 0.0, -np.inf)
    return log_at_least(noise, (1 - x) if noise.discrete else -x)


def log_density(noise: Noise, x: Floats) -> Floats:
    """The log of the probability (discrete) or the density (continuous) of a positive scale's noise at x."""
    width = float(noise.scale)
    normaliser = -math.log(math.tanh(1 / (2 * width))) if noise.discrete else math.log(2 * width)
    return -np.abs(x) / width - normaliser


def _log_integrand(rule: Rule, case: Case, rho: Floats) -> Floats:
    below, above, constant = _log_factors(rule, case, rho)
    return log_density(rule.threshold_noise, rho) + below + above + constant


def _sum(rule: Rule, case: Case, reach: int) -> float:
    if reach > _LARGEST_SUM:
        raise ValueError("the noise is too wide to sum over; audit the rule at a larger epsilon")
    return _log_sum(_log_integrand(rule, case, np.arange(-reach, reach + 1, dtype=np.float64)))


def _log_sum(logs: Floats) -> float:
    top = float(np.max(logs))
    return top if top == -math.inf else top + math.log(float(np.sum(np.exp(logs - top))))


def _integral(rule: Rule, case: Case, reach: int, kinks: list[float]) -> float:
    """Gauss-Legendre between the kinks, halving the panels that matter until nothing moves."""
    narrow = float(min(scale for scale in (rule.threshold_noise.scale, rule.query_noise.scale) if scale)) / 2
    longest = max(narrow, 2 * reach / _MAX_PANELS)
    edges = [-float(reach), *kinks, float(reach)]
    pieces = [
        np.linspace(low, high, max(1, math.ceil((high - low) / longest)) + 1)
        for low, high in itertools.pairwise(edges)
        if high > low
    ]
    low = np.concatenate([piece[:-1] for piece in pieces])
    high = np.concatenate([piece[1:] for piece in pieces])
    coarse = _panels(rule, case, low, high)
    done: list[float] = []
    while low.size:
        middle = (low + high) / 2
        left, right = _panels(rule, case, low, middle), _panels(rule, case, middle, high)
        fine = np.logaddexp(left, right)
        total = _log_sum(np.concatenate([done, fine]))
        if total == -math.inf:
            return total
        share = np.exp(fine - total)
        error = np.abs(share - np.exp(coarse - total))
        # Logs of this size carry rounding of their own, which halving cannot remove.
        split = error > 1e-15 + share * 1e-14 * (1 + abs(total))
        done.append(_log_sum(fine[~split]) if not split.all() else -math.inf)
        low, high = np.concatenate([low[split], middle[split]]), np.concatenate([middle[split], high[split]])
        coarse = np.concatenate([left[split], right[split]])
    return _log_sum(np.array(done))


def _panels(rule: Rule, case: Case, low: Floats, high: Floats) -> Floats:
    half = (high - low) / 2
    points = (low + high)[:, None] / 2 + half[:, None] * _NODES
    logs = _log_integrand(rule, case, points.ravel()).reshape(points.shape)
    top = np.max(logs, axis=1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(np.exp(logs - safe[:, None]) @ _WEIGHTS) + np.log(half))
