"""EUGkM for good initial centres, then one round of DPLloyd (Su 2016, section 4.5)."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from streamdp.jobs.kmeans.dplloyd import RHO, count_weight, noisy_round
from streamdp.jobs.kmeans.grids import signed_outcome, signed_synopsis
from streamdp.jobs.kmeans.synopsis import eugkm_cells
from streamdp.jobs.kmeans.task import Outcome, Task

# The seed's regression on synthetic data; it drops the bias, whose weight was near zero.
_VARIANCE_WEIGHT, _ROUND_WEIGHT = 0.14, 0.42


def hybrid(task: Task) -> Outcome:
    """Guarantee: `f * epsilon` for the synopsis and the rest for the round; they add up."""
    size = task.paid_size()
    epsilon = task.meter.left
    share = best_share(size, float(epsilon), task.attributes, task.clusters[-1])
    for_synopsis = epsilon if share is None else epsilon * share
    synopsis = signed_synopsis(task, eugkm_cells(size, float(for_synopsis), task.attributes), for_synopsis)
    if share is None:
        reason = f"for about {size} rows a round of DPLloyd would add more error than it removes (Algorithm 16)"
        return signed_outcome(task, synopsis, "eugkm", reason)
    reason = f"{float(share):.0%} of epsilon for a grid of side {synopsis.side}, the rest for a round of DPLloyd"
    first = signed_outcome(task, synopsis, "hybrid", reason)
    weight = count_weight(task.attributes)
    centres, sizes = noisy_round(task.rows, first.centres, task.meter.left, weight, task.meter)
    return replace(first, centres=centres, sizes=sizes)


def best_share(size: int, epsilon: float, attributes: int, clusters: int) -> Fraction | None:
    """The share of epsilon for the synopsis with the least error by Eq. 4.20; None where EUGkM alone has less."""

    def error(share: Fraction) -> float:
        variance = eugkm_variance(size, epsilon * float(share), attributes, clusters)
        one_round = round_error(size, epsilon * float(1 - share), attributes, clusters)
        return _VARIANCE_WEIGHT * variance + _ROUND_WEIGHT * one_round

    best = min((Fraction(percent, 100) for percent in range(1, 100)), key=error)
    return best if error(best) < eugkm_variance(size, epsilon, attributes, clusters) else None


def round_error(size: int, epsilon: float, attributes: int, clusters: int) -> float:
    """Mean squared error of a centre after one round of DPLloyd (Eq. 4.17, r = 1, t = 1)."""
    return 2 * attributes * (1 + (2 * RHO) ** 2) * (clusters * (attributes + 1) / (size * epsilon)) ** 2


def eugkm_variance(size: int, epsilon: float, attributes: int, clusters: int) -> float:
    """Variance of a centre of EUGkM (Eq. 4.15 with the M of Eq. 4.13, r = 1)."""
    cells = eugkm_cells(size, epsilon, attributes)
    spread = math.pow(clusters, (attributes - 2) / attributes)
    return 2 * attributes * cells * spread / (3 * (size * epsilon) ** 2)
