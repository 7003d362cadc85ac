"""Matrix products that stay on the calling thread: jobs share the cores, and BLAS threads that wait for one spin."""

from __future__ import annotations

import numpy as np

from streamdp.arrays import Floats

# OpenBLAS starts threads beyond 2^18 multiplications.
_QUIET = 1 << 18


def product(centres: Floats, columns: Floats) -> Floats:
    """`centres @ columns`, the columns in parts."""
    together = max(1, _QUIET // centres.size)
    if columns.shape[1] <= together:
        return centres @ columns
    result = np.empty((len(centres), columns.shape[1]))
    for begin in range(0, columns.shape[1], together):
        part = slice(begin, begin + together)
        result[:, part] = centres @ columns[:, part]
    return result


def product_over_rows(weights: Floats, columns: Floats) -> Floats:
    """`weights @ columns.T`, summed over parts of the rows that both have along their second axis."""
    result = np.zeros((len(weights), len(columns)))
    together = max(1, _QUIET // result.size)
    for begin in range(0, columns.shape[1], together):
        part = slice(begin, begin + together)
        result += weights[:, part] @ columns[:, part].T
    return result
