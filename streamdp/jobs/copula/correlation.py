"""From noisy taus to a correlation matrix that can be sampled from. All of it is post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from streamdp.arrays import Floats

SMALLEST_EIGENVALUE = 1e-6
# Dividing by the share of pairs that are not tied undoes what ties took, and multiplies the noise; not more than this.
SMALLEST_DIVISOR = 0.25


def as_matrix(off_diagonal: Floats, attributes: int) -> Floats:
    matrix = np.eye(attributes)
    if attributes > 1:
        rows, columns = np.array(list(combinations(range(attributes), 2))).T
        matrix[rows, columns] = matrix[columns, rows] = off_diagonal
    return matrix


def from_taus(taus: Floats, distinct: Sequence[float], noise: float) -> Floats:
    """The correlations of the Gaussian copula, sin(pi/2 tau), after undoing the shrinkage by ties.

    `distinct` is, for each attribute, the probability that two rows differ there; `noise` the scale of the noise in a
    tau. Where noise is much of what is seen, all correlations are shrunk by its share of the squares (James, Stein
    1961).
    """
    divisors = np.array([np.sqrt(a * b) for a, b in combinations(distinct, 2)])
    divisors = np.maximum(divisors, SMALLEST_DIVISOR)
    correlations = np.sin(np.pi / 2 * np.clip(taus / divisors, -1.0, 1.0))
    expected = float(np.square(np.pi / 2 * noise / divisors).sum()) * 2
    seen = float(np.square(correlations).sum())
    shrunk: Floats = correlations * max(1 - expected / seen, 0.0) if seen > 0 else correlations
    return shrunk


def eigenvalue_repair(matrix: Floats) -> Floats:
    """Algorithm 5 of DPCopula: negative eigenvalues become small ones, and the diagonal is scaled back to one."""
    values, vectors = np.linalg.eigh(matrix)
    repaired = (vectors * np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(repaired))
    return _unit_diagonal(repaired * scale * scale[:, np.newaxis])


def nearest_repair(matrix: Floats, rounds: int = 100) -> Floats:
    """The nearest correlation matrix in the Frobenius norm, by alternating projections (Higham 2002)."""
    current, correction = matrix.copy(), np.zeros_like(matrix)
    for _ in range(rounds):
        shifted = current - correction
        values, vectors = np.linalg.eigh(shifted)
        if values[0] >= SMALLEST_EIGENVALUE / 2 and not correction.any():
            return current
        positive = (vectors * np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T
        correction = positive - shifted
        following = _unit_diagonal(positive)
        if np.abs(following - current).max() < 1e-9:
            break
        current = following
    return eigenvalue_repair(current)


def _unit_diagonal(matrix: Floats) -> Floats:
    matrix = np.clip((matrix + matrix.T) / 2, -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return matrix
