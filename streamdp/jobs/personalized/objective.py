"""Objective perturbation by a noise vector, for comparison only: **no guarantee**.

Chaudhuri, Monteleoni and Sarwate (JMLR 12, 2011), Algorithm 2, with a weight for every row: the minimum of

    sum of w_j loss(y_j w.x_j) / w_max + Lambda |w|^2 / 2 + b.w,    density of b proportional to exp(-beta |b|).

In real numbers a row of weight w_j, norm at most 1 and a loss with |loss'| <= 1 and loss'' <= c costs at most
(beta + c / Lambda) w_j / w_max. So beta = epsilon - c / Lambda, and whenever that is less than epsilon / 2, not only
when nothing is left as the paper prints it, Lambda is raised to 2 c / epsilon: otherwise the noise has no bound. But
these are not real numbers: b and the minimum are drawn and found in floating point, whose low bits tell what they came
from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtri

from streamdp.arrays import Floats
from streamdp.privacy.noise import NoiseSource, uniform_below

Loss = Callable[[Floats], tuple[Floats, Floats]]
"""Of scores: the loss, and its derivative."""

HUBER = 0.5
CURVATURES = {"logistic": 1 / 4, "huber": 1 / (2 * HUBER)}


def logistic(scores: Floats) -> tuple[Floats, Floats]:
    return np.logaddexp(0, -scores), -expit(-scores)


def huber(scores: Floats) -> tuple[Floats, Floats]:
    """The hinge, rounded within HUBER of its corner (Chaudhuri et al., section 3.4.2)."""
    distance = 1 - scores
    inside = np.square(HUBER + distance) / (4 * HUBER)
    loss = np.where(distance > HUBER, distance, np.where(distance < -HUBER, 0, inside))
    return loss, -np.clip((HUBER + distance) / (2 * HUBER), 0, 1)


LOSSES: dict[str, Loss] = {"logistic": logistic, "huber": huber}


def calibrated(epsilon: float, curvature: float, ridge: float) -> tuple[float, float]:
    """beta, and the ridge that goes with it."""
    if epsilon - curvature / ridge >= epsilon / 2:
        return epsilon - curvature / ridge, ridge
    return epsilon / 2, 2 * curvature / epsilon


def perturbed_minimum(
    rows: Floats, signs: Floats, weights: Floats, epsilon: float, ridge: float, loss: str, source: NoiseSource | None
) -> Floats:
    """Of rows with norm at most 1, signs of -1, 0 or 1 and weights of at most 1; `ridge` is lambda times the users."""
    from scipy.optimize import minimize  # A daemon should not pay for it at every start.

    beta, ridge = calibrated(epsilon, CURVATURES[loss], ridge)
    features = rows.shape[1]
    uniform = (uniform_below(2**52, 2 * features, source) + 0.5) / 2**52
    direction = ndtri(uniform[:features])
    length = -np.log(uniform[features:]).sum() / beta
    noise = length * direction / np.linalg.norm(direction)
    counted = weights * np.abs(signs)

    def objective(w: Floats) -> tuple[float, Floats]:
        value, slope = LOSSES[loss](signs * (rows @ w))
        gradient = rows.T @ (counted * slope * signs) + ridge * w + noise
        return float(counted @ value + ridge * (w @ w) / 2 + noise @ w), gradient

    found: Floats = minimize(objective, np.zeros(features), jac=True, method="L-BFGS-B").x
    return found
