"""MST (McKenna, Miklau, Sheldon 2021) on mbi's graphical models, for benchmarks/copula.py: one case on stdin.

(epsilon, delta)-differential privacy with delta = 1e-9, as zero-concentrated privacy in three equal shares: one-way
marginals, a spanning tree chosen pair by pair, its two-way marginals. Values that noise drowns are merged, as there.
"""

import json
import sys
from itertools import combinations
from math import log, sqrt

import jax
import mbi
import numpy as np
from mbi import estimation

DELTA = 1e-9
jax.config.update("jax_enable_x64", True)


def rho_of(epsilon: float) -> float:
    """The largest rho with rho + 2 sqrt(rho log(1/delta)) at most epsilon."""
    return (sqrt(log(1 / DELTA) + epsilon) - sqrt(log(1 / DELTA))) ** 2


def merged(noisy: np.ndarray, sigma: float) -> np.ndarray:
    """The new code of every value: its own where its count stands out, else one for all of the others."""
    kept = noisy >= 3 * sigma
    codes = np.where(kept, np.cumsum(kept) - 1, kept.sum())
    return codes.astype(np.int64)


def main() -> None:
    case = json.loads(sys.stdin.read())
    generator = np.random.default_rng()
    rows, sizes = np.load(case["rows"]), case["sizes"]
    attributes = len(sizes)
    rho = rho_of(case["epsilon"])
    sigma = sqrt(attributes / (2 * rho / 3))
    noisy = [
        np.bincount(rows[:, a], minlength=sizes[a]) + generator.normal(0, sigma, sizes[a]) for a in range(attributes)
    ]
    codes = [merged(counts, sigma) for counts in noisy]
    table = np.column_stack([codes[a][rows[:, a]] for a in range(attributes)])
    small = [int(code.max()) + 1 for code in codes]
    names = [f"x{a}" for a in range(attributes)]
    domain = mbi.Domain(names, small)
    ones = [np.bincount(codes[a], weights=noisy[a], minlength=small[a]) for a in range(attributes)]
    spread = [np.sqrt(np.bincount(codes[a], minlength=small[a])) * sigma for a in range(attributes)]
    measured = [mbi.LinearMeasurement(ones[a], (names[a],), float(np.median(spread[a]))) for a in range(attributes)]
    total = float(np.median([counts.sum() for counts in noisy]))
    shares = [np.maximum(counts, 0) / np.maximum(counts, 0).sum() for counts in ones]

    def two_way(a: int, b: int) -> np.ndarray:
        return np.bincount(table[:, a] * small[b] + table[:, b], minlength=small[a] * small[b])

    quality = {
        (a, b): np.abs(two_way(a, b) - total * np.outer(shares[a], shares[b]).reshape(-1)).sum()
        for a, b in combinations(range(attributes), 2)
    }
    step = sqrt(8 * (rho / 3) / max(attributes - 1, 1))
    tree, component = [], list(range(attributes))
    while len(tree) < attributes - 1:
        pairs = [pair for pair in quality if component[pair[0]] != component[pair[1]]]
        noise = generator.gumbel(0, 1, len(pairs))
        a, b = pairs[int(np.argmax([step / 2 * quality[pair] for pair in pairs] + noise))]
        tree.append((a, b))
        component = [component[a] if mark == component[b] else mark for mark in component]
    deviation = sqrt(len(tree) / (2 * rho / 3))
    for a, b in tree:
        counts = two_way(a, b) + generator.normal(0, deviation, small[a] * small[b])
        measured.append(mbi.LinearMeasurement(counts, (names[a], names[b]), deviation))
    model = estimation.MirrorDescent().estimate(domain, measured, known_total=total, iters=1000)
    made = model.synthetic_data(rows=int(total)).to_dict()
    out = np.empty((int(total), attributes), dtype=np.int64)
    for a in range(attributes):
        column = np.asarray(made[names[a]])
        for code in range(small[a]):
            places = np.flatnonzero(column == code)
            originals = np.flatnonzero(codes[a] == code)
            out[places, a] = generator.choice(originals, places.size)
    np.save(case["out"], out)


if __name__ == "__main__":
    main()
