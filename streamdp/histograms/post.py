"""Post-processing: pure functions of what is already noisy, so they cost nothing and need no randomness."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError

POST_OPTIONS = ("nonnegative", "integer", "consistent_total")


def check_options(options: Iterable[str]) -> tuple[str, ...]:
    """The options as a tuple without repetition, or ConfigurationError for one that does not exist."""
    chosen = tuple(dict.fromkeys(options))
    unknown = [option for option in chosen if option not in POST_OPTIONS]
    if unknown:
        raise ConfigurationError(f"unknown post-processing {unknown}; there are {', '.join(POST_OPTIONS)}")
    return chosen


def post_process(noisy: npt.NDArray[np.int64] | npt.NDArray[np.float64], options: Iterable[str] = ()) -> Counts:
    """What is published of `noisy`: always integers, and what the options ask for.

    `consistent_total` includes `nonnegative`: without it the counts sum to the noisy total already.
    """
    chosen = check_options(options)
    counts = integer(noisy)
    if "consistent_total" in chosen:
        return consistent_total(counts)
    if "nonnegative" in chosen:
        return nonnegative(counts)
    return counts


def integer(noisy: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> Counts:
    """The nearest integers, within a public range in which no later sum of differences can overflow.

    An overflow would be worse than ugly: a distance that wraps around has no bounded sensitivity.
    """
    bound = min(2**40, 2**61 // max(noisy.size, 1))
    rounded = noisy if noisy.dtype == np.int64 else np.rint(np.clip(noisy, -bound, bound)).astype(np.int64)
    return np.clip(rounded, -bound, bound).astype(np.int64, copy=False)


def integer_sums(noisy: npt.NDArray[np.float64]) -> Counts:
    """Integers whose sum up to any cell is the nearest to that of `noisy`, within the same public range.

    Of many cells below one half the nearest integers are all zero, and a range over them loses what it holds.
    """
    bound = min(2**40, 2**61 // max(noisy.size, 1))
    upto = np.rint(np.cumsum(np.clip(noisy, -bound, bound)))
    return integer(np.diff(upto, prepend=0.0))


def nonnegative(counts: Counts) -> Counts:
    """Negative counts become zero. Many cells near zero then sum to more than they should: see `consistent_total`."""
    return np.maximum(counts, 0)


def consistent_total(counts: Counts) -> Counts:
    """The non-negative integers that sum to the noisy total (zero when that is negative) and lie nearest in L2.

    The Euclidean projection onto that simplex subtracts one number `tau` from every cell and cuts at zero. For
    integers `tau = quotient + remainder / active`, so all active cells share one fractional part and rounding by
    largest remainder gives the whole units that are left to the largest of them; nothing is ever computed in floating
    point.
    """
    total = max(int(counts.sum()), 0)
    if counts.size == 0 or total == 0:
        return np.zeros_like(counts)
    order = np.argsort(-counts, kind="stable")
    descending = counts[order]
    sums = np.cumsum(descending)
    # k cells are active iff k * (k-th largest) > (sum of the k largest) - total, which holds up to some k and not
    # beyond.
    active, beyond = 1, counts.size + 1
    while beyond - active > 1:
        middle = (active + beyond) // 2
        if middle * int(descending[middle - 1]) > int(sums[middle - 1]) - total:
            active = middle
        else:
            beyond = middle
    quotient, remainder = divmod(int(sums[active - 1]) - total, active)
    projected = np.zeros_like(counts)
    projected[order[:active]] = descending[:active] - quotient
    if remainder:
        projected[order[active - remainder : active]] -= 1
    return projected
