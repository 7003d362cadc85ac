"""Noisy sums over a tree of cells, made to agree: every node the sum of its children, with the least variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts, Floats
from streamdp.privacy.mechanisms import noisy_sum
from streamdp.privacy.noise import NoiseSource


@dataclass(frozen=True, eq=False)
class Level:
    """The nodes at one depth: the place of each one's parent in the level above, and its noisy sum."""

    parents: npt.NDArray[np.intp]
    noisy: Counts
    scale: Fraction


def measure(
    sums: Counts, parents: npt.NDArray[np.intp], epsilon: Fraction, sensitivity: int, source: NoiseSource | None
) -> Level:
    """Sums over disjoint sets of cells with noise that costs `epsilon`: one user moves them by `sensitivity` in L1."""
    scale = sensitivity / epsilon
    return Level(parents, noisy_sum(sums, scale, source), scale)


def consistent_leaves(levels: Sequence[Level]) -> Floats:
    """The least-squares estimate of every node of the last level. Post-processing, so it costs nothing.

    Hay, Rastogi, Miklau, Suciu (2010), for any tree and any noise per level, as in Cormode et al. (2012): upwards each
    node becomes the average, by inverse variance, of its own sum and its children's; downwards each family shares what
    its parent knows better. The nodes of the first level have no parents.
    """
    estimates = [levels[-1].noisy.astype(np.float64)]
    variances = [np.full(levels[-1].noisy.size, float(levels[-1].scale) ** 2)]
    families: list[tuple[Floats, Floats]] = []
    for below, level in zip(reversed(levels), list(reversed(levels))[1:], strict=False):
        of_children = _family_sums(estimates[-1], below.parents, level.noisy.size)
        variance_of_children = _family_sums(variances[-1], below.parents, level.noisy.size)
        own = float(level.scale) ** 2
        weight = variance_of_children / (variance_of_children + own)
        families.append((of_children, variance_of_children))
        estimates.append(weight * level.noisy + (1 - weight) * of_children)
        variances.append(weight * own)
    final = estimates.pop()
    variances.pop()
    for level in levels[1:]:
        of_children, variance_of_children = families.pop()
        share = variances.pop() / variance_of_children[level.parents]
        final = estimates.pop() + share * (final - of_children)[level.parents]
    return final


def _family_sums(values: Floats, parents: npt.NDArray[np.intp], families: int) -> Floats:
    sums = np.zeros(families)
    np.add.at(sums, parents, values)
    return sums
