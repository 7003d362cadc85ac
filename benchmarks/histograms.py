"""Which histogram method is best for which shape and epsilon: `python benchmarks/histograms.py [--runs N]`.

Prints two Markdown tables of the mean absolute error of random ranges, in rows: as released, and as a margin, after
projection onto counts from zero on with the right sum. The best of each row is in bold. Real margins are of UCI Adult,
found under --data.
"""

from __future__ import annotations

import argparse
import gzip
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamdp.histograms import method_named, method_names
from streamdp.jobs.copula.margins import project

Counts = npt.NDArray[np.int64]
ROWS = 50_000
EPSILONS = ("0.01", "0.1", "1")
ADULT = {"age": (0, 17, 90, 1), "hours a week": (12, 1, 99, 1), "capital gain": (10, 0, 99_999, 1000)}


def made() -> dict[str, tuple[Counts, tuple[int, ...]]]:
    generator = np.random.default_rng(1)

    def counted(values: npt.NDArray[np.float64], cells: int) -> Counts:
        return np.bincount(np.clip(values, 0, cells - 1).astype(np.int64), minlength=cells)

    sparse = np.zeros(1000, dtype=np.int64)
    sparse[generator.choice(1000, 20, replace=False)] = ROWS // 20
    two = generator.normal(32, 8, (2, ROWS))
    plane = counted(np.clip(two[0], 0, 63).astype(int) * 64 + np.clip(two[1], 0, 63).astype(int), 4096)
    return {
        "smooth, 1000 cells": (counted(generator.normal(500, 167, ROWS), 1000), (1000,)),
        "skewed, 1000 cells": (counted(generator.exponential(60, ROWS), 1000), (1000,)),
        "sparse, 1000 cells": (sparse, (1000,)),
        "steps, 1000 cells": (np.repeat([120, 10, 0, 70], 250), (1000,)),
        "smooth, 65,536 cells": (counted(generator.normal(32_768, 10_000, ROWS), 65_536), (65_536,)),
        "smooth, 64 x 64": (plane, (64, 64)),
    }


def real(folder: Path) -> dict[str, tuple[Counts, tuple[int, ...]]]:
    margins = {}
    for name, (column, low, high, width) in ADULT.items():
        cells = (high - low) // width + 1
        values = [
            min((int(line.split(",")[column]) - low) // width, cells - 1)
            for part in ("data", "test")
            for line in gzip.decompress((folder / "adult" / f"adult.{part}.gz").read_bytes()).decode().splitlines()
            if line.count(",") == 14
        ]
        margins[f"Adult's {name}, {cells} cells"] = (np.bincount(values, minlength=cells), (cells,))
    return margins


def error(name: str, counts: Counts, shape: tuple[int, ...], epsilon: str, runs: int, as_margin: bool) -> float:
    generator = np.random.default_rng(2)
    ends = [np.sort(generator.integers(0, size + 1, (1000, 2)), axis=1) for size in shape]
    total = 0.0
    for _ in range(runs):
        noisy = method_named(name).release(counts, shape, Fraction(epsilon), 1).counts
        values = project(noisy.astype(np.float64), float(counts.sum())) if as_margin else noisy
        difference = (values - counts).reshape(shape)
        upto = np.pad(difference, [(1, 0)] * len(shape))
        for axis in range(len(shape)):
            upto = np.cumsum(upto, axis=axis)
        if len(shape) == 1:
            found = upto[ends[0][:, 1]] - upto[ends[0][:, 0]]
        else:
            (a, b), (c, d) = ends[0].T, ends[1].T
            found = upto[b, d] - upto[a, d] - upto[b, c] + upto[a, c]
        total += float(np.abs(found).mean())
    return total / runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with adult/")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    histograms = made() | real(arguments.data)
    for as_margin in (False, True):
        print("\nAs a margin\n" if as_margin else "As released\n")
        print("| histogram | epsilon | " + " | ".join(method_names()) + " |")
        print("|---|---|" + "---|" * len(method_names()))
        for title, (counts, shape) in histograms.items():
            for epsilon in EPSILONS:
                errors = [
                    error(name, counts.astype(np.int64), shape, epsilon, arguments.runs, as_margin)
                    for name in method_names()
                ]
                cells = [f"**{value:,.0f}**" if value == min(errors) else f"{value:,.0f}" for value in errors]
                print(f"| {title} | {epsilon} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
