"""Synthetic data against independent margins and MST: `python benchmarks/copula.py [--peer PYTHON] [--runs N]`.

Accuracy is the mean relative error of 1,000 random range counts over all attributes, with a sanity bound of 0.1 % of
the rows, mean of --runs fits. Speed is in seconds, and against scipy in this run. PYTHON is an interpreter with
benchmarks/requirements-copula.txt. Exit code 1 when a limit is passed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau

from streamdp.domain import Attribute
from streamdp.jobs import Copula
from streamdp.jobs.copula.kendall import sign_sum

Codes = npt.NDArray[np.int64]

EPSILONS = (0.1, 0.5, 1.0)
LIMITS = {
    "Gaussian 2-D": (0.09, 0.045, 0.04),
    "Gaussian 4-D": (0.14, 0.065, 0.058),
    "Gaussian 8-D": (0.13, 0.048, 0.038),
    "Adult": (0.11, 0.050, 0.042),
}
FIT_SECONDS, SAMPLE_SECONDS, KENDALL_RATIO = 5.0, 3.0, 1.5
OCCUPATIONS = [
    *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty"),
    *("Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving"),
    *("Priv-house-serv", "Protective-serv", "Armed-Forces"),
]
RELATIONSHIPS = ["Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"]


def gaussian(attributes: int, rows: int = 50_000) -> tuple[Codes, list[int]]:
    """Correlation 0.6^|i-j|; the domain of 1000 holds three standard deviations on either side."""
    places = np.arange(attributes)
    correlation = 0.6 ** np.abs(places[:, None] - places)
    normal = np.random.default_rng(1).multivariate_normal(np.zeros(attributes), correlation, rows)
    return np.clip(np.floor(500 + 1000 / 6 * normal), 0, 999).astype(np.int64), [1000] * attributes


def adult(folder: Path) -> tuple[Codes, list[int]]:
    """Age, education-num, capital gain (100 bins), hours, occupation, relationship, sex, income; complete rows."""
    rows = []
    for part in ("data", "test"):
        for line in gzip.decompress((folder / "adult" / f"adult.{part}.gz").read_bytes()).decode().splitlines():
            fields = [field.strip().rstrip(".") for field in line.split(",")]
            if len(fields) == 15 and "?" not in fields:
                age, education, gain, hours = (int(fields[place]) for place in (0, 4, 10, 12))
                named = OCCUPATIONS.index(fields[6]), RELATIONSHIPS.index(fields[7])
                binary = int(fields[9] == "Male"), int(fields[14] == ">50K")
                rows.append((age - 17, education - 1, min(gain // 1000, 99), hours - 1, *named, *binary))
    return np.array(rows), [74, 16, 100, 99, 14, 6, 2, 2]


def queries(sizes: list[int], seed: int) -> list[Codes]:
    generator = np.random.default_rng(seed)
    return [np.sort(generator.integers(0, size, (1000, 2)), axis=1) for size in sizes]


def answers(table: Codes, ranges: list[Codes]) -> npt.NDArray[np.float64]:
    """The rows in every range; rows are sorted by the first attribute, so that its range is a slice."""
    columns = [np.ascontiguousarray(column, dtype=np.int16) for column in table[np.argsort(table[:, 0])].T]
    starts = np.searchsorted(columns[0], ranges[0][:, 0], side="left")
    stops = np.searchsorted(columns[0], ranges[0][:, 1], side="right")
    counts = np.zeros(len(starts))
    for place, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        inside = np.arange(start, stop)
        for column, bounds in zip(columns[1:], ranges[1:], strict=True):
            values = column[inside]
            inside = inside[(values >= bounds[place, 0]) & (values <= bounds[place, 1])]
        counts[place] = inside.size
    return counts


def relative_error(table: Codes, synthetic: Codes, sizes: list[int], seed: int) -> float:
    ranges = queries(sizes, seed)
    true = answers(table, ranges)
    return float(np.mean(np.abs(answers(synthetic, ranges) - true) / np.maximum(true, 0.001 * len(table))))


def attributes_of(sizes: list[int]) -> list[Attribute]:
    return [Attribute.integer(f"x{place}", 0, size - 1) for place, size in enumerate(sizes)]


def fitted(table: Codes, sizes: list[int], epsilon: float) -> Copula:
    columns = {f"x{place}": column for place, column in enumerate(table.T)}
    return Copula(epsilon, attributes_of(sizes), nullable=()).fit_codes(columns)


def independent(table: Codes, sizes: list[int], epsilon: float) -> Codes:
    """Each attribute by itself, with its part of epsilon."""
    columns = []
    for place, size in enumerate(sizes):
        model = Copula(epsilon / len(sizes), attributes_of([size]), nullable=()).fit_codes({"x0": table[:, place]})
        columns.append(model.sample_codes(len(table))[0])
    return np.column_stack(columns)


def peer(python: str, table: Codes, sizes: list[int], epsilon: float, folder: Path) -> Codes:
    np.save(folder / "rows.npy", table)
    case = {"rows": str(folder / "rows.npy"), "sizes": sizes, "epsilon": epsilon, "out": str(folder / "out.npy")}
    script = Path(__file__).parent / "peers" / "mst_synthesis.py"
    subprocess.run([python, str(script)], input=json.dumps(case), text=True, check=True, capture_output=True)
    return np.asarray(np.load(folder / "out.npy"))


def accuracy(folder: Path, python: str | None, runs: int, peer_runs: int) -> bool:
    print(f"mean relative error of 1,000 range counts, mean of {runs} fits (peer: {peer_runs})")
    print(f"{'data, epsilon':>20} {'independent':>12} {'MST':>8} {'ours':>8} {'at most':>8}")
    good = True
    for name, limits in LIMITS.items():
        table, sizes = adult(folder) if name == "Adult" else gaussian(int(name[-3]))
        for epsilon, limit in zip(EPSILONS, limits, strict=True):
            alone, ours, theirs = [], [], [np.nan]
            for run in range(runs):
                model = fitted(table, sizes, epsilon)
                ours.append(relative_error(table, np.column_stack(model.sample_codes(model.n_rows_)), sizes, run))
                alone.append(relative_error(table, independent(table, sizes, epsilon), sizes, run))
            if python is not None:
                with tempfile.TemporaryDirectory() as scratch:
                    made = [peer(python, table, sizes, epsilon, Path(scratch)) for _ in range(peer_runs)]
                theirs = [relative_error(table, rows, sizes, run) for run, rows in enumerate(made)]
            mean = float(np.mean(ours))
            good &= mean <= limit
            figures = f"{np.mean(alone):12.3f} {np.mean(theirs):8.3f} {mean:8.4f} {limit:8.3f}"
            verdict = "" if mean <= limit else "  FAILED"
            print(f"{name + ', ' + str(epsilon):>20} {figures}  {model.method_used_}{verdict}", flush=True)
    return good


def speed() -> bool:
    table, sizes = gaussian(8, 1_000_000)
    seconds: dict[str, list[float]] = {"fit": [], "sample": [], "ours": [], "scipy": []}

    def timed(name: str, begin: float) -> None:
        seconds[name].append(time.perf_counter() - begin)

    for _ in range(3):
        begin = time.perf_counter()
        model = fitted(table, sizes, 1.0)
        timed("fit", begin)
        begin = time.perf_counter()
        model.sample(1_000_000)
        timed("sample", begin)
        begin = time.perf_counter()
        sign_sum(table[:, 0], table[:, 1], 1000, 1000)
        timed("ours", begin)
        begin = time.perf_counter()
        kendalltau(table[:, 0], table[:, 1])
        timed("scipy", begin)
    best = {name: min(values) for name, values in seconds.items()}
    ratio = best["ours"] / best["scipy"]
    print(f"a million rows of eight attributes: fit {best['fit']:.2f} s (at most {FIT_SECONDS}), ", end="")
    print(f"sample {best['sample']:.2f} s (at most {SAMPLE_SECONDS})")
    print(f"Kendall of a pair of a million rows: {ratio:.2f} times scipy's time (at most {KENDALL_RATIO})")
    return best["fit"] <= FIT_SECONDS and best["sample"] <= SAMPLE_SECONDS and ratio <= KENDALL_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with adult/")
    parser.add_argument("--peer", help="interpreter with benchmarks/requirements-copula.txt")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peer-runs", type=int, default=1)
    arguments = parser.parse_args()
    good = speed()
    return 0 if accuracy(arguments.data, arguments.peer, arguments.runs, arguments.peer_runs) and good else 1


if __name__ == "__main__":
    sys.exit(main())
