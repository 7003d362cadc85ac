"""Private k-means against diffprivlib and the non-private best: `python benchmarks/kmeans.py --peer PYTHON`.

Accuracy is the normalised intra-cluster variance (NICV) with attributes scaled to [-1, 1], on S1 and on the numeric
columns of UCI Adult (found under --data), mean of --runs fits. Speed is given as ratios within this run, each side with
its best. PYTHON is an interpreter with benchmarks/requirements-kmeans.txt. Exit code 1 when a limit is passed.
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
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.jobs import KMeans

Floats = npt.NDArray[np.float64]

# They stand for public bounds: the ranges with which the limits below were measured.
S1_BOUNDS = ([19_835, 51_121], [961_951, 970_756])
ADULT_COLUMNS = (0, 2, 4, 10, 11, 12)
ADULT_BOUNDS = ([17, 12_285, 1, 0, 0, 1], [90, 1_490_400, 16, 99_999, 4_356, 99])

# The most that the default may have.
LIMITS = {
    ("S1", 0.1): 0.0190,
    ("S1", 0.5): 0.0088,
    ("S1", 1.0): 0.0085,
    ("Adult-num", 0.05): 0.250,
    ("Adult-num", 0.1): 0.245,
    ("Adult-num", 0.5): 0.220,
    ("Adult-num", 1.0): 0.215,
}
CLUSTERS = {"S1": 15, "Adult-num": 5}
LLOYD_TIMES_FASTER, GRID_TIMES_SLOWER = 10, 10
SPEED_EPSILONS = (0.1, 1.0)


def scaled(rows: Floats, bounds: tuple[list[int], list[int]]) -> Floats:
    low, high = np.array(bounds, dtype=float)
    return 2 * (rows - low) / (high - low) - 1


def load(folder: Path) -> dict[str, Floats]:
    lines = [
        line.split(",")
        for part in ("data", "test")
        for line in gzip.decompress((folder / "adult" / f"adult.{part}.gz").read_bytes()).decode().splitlines()
    ]
    adult = [[float(fields[column]) for column in ADULT_COLUMNS] for fields in lines if len(fields) == 15]
    return {
        "S1": scaled(np.loadtxt(folder / "clusters" / "s1.txt"), S1_BOUNDS),
        "Adult-num": scaled(np.array(adult), ADULT_BOUNDS),
    }


def nicv(rows: Floats, centres: Floats) -> float:
    """The mean squared distance of a row to its nearest centre."""
    nearest = np.full(len(rows), np.inf)
    for centre in centres:
        np.minimum(nearest, np.square(rows - centre).sum(axis=1), out=nearest)
    return float(nearest.mean())


def ours(rows: Floats, clusters: int, epsilon: float, method: str, runs: int) -> tuple[float, float, str]:
    """Mean NICV, least seconds, and the method used last."""
    values, seconds = [], []
    for _ in range(runs):
        model = KMeans(clusters, epsilon, (-1, 1), method)
        begin = time.perf_counter()
        model.fit(rows)
        seconds.append(time.perf_counter() - begin)
        values.append(nicv(rows, model.cluster_centers_))
    return float(np.mean(values)), min(seconds), model.method_used_


class Peer:
    def __init__(self, python: str, data: dict[str, Floats], folder: Path) -> None:
        self._python = python
        self._data = data
        self._files = {name: folder / f"{name}.npy" for name in data}
        for name, rows in data.items():
            np.save(self._files[name], rows)

    def fit(self, library: str, name: str, clusters: int, runs: int, **more: Any) -> tuple[float, float, float]:
        """Least and mean NICV, least seconds."""
        case = {"library": library, "rows": str(self._files[name]), "clusters": clusters, "runs": runs} | more
        script = Path(__file__).parent / "peers" / "diffprivlib_kmeans.py"
        done = subprocess.run(
            [self._python, str(script)], input=json.dumps([case]), capture_output=True, text=True, check=True
        )
        (found,) = json.loads(done.stdout)
        values = [nicv(self._data[name], np.array(centres)) for centres in found["centres"]]
        return min(values), float(np.mean(values)), float(min(found["seconds"]))


def accuracy(data: dict[str, Floats], peer: Peer, runs: int, seeds: bool) -> bool:
    print(f"NICV, mean of {runs} runs (non-private: best of 30 starts)")
    columns = ("non-private", "diffprivlib", "eugkm", "hybrid", "default", "at most")
    print(f"{'data, epsilon':>16} " + " ".join(f"{column:>11}" for column in columns))
    good = True
    best = {name: peer.fit("scikit-learn", name, CLUSTERS[name], 1, starts=30)[0] for name in data}
    for (name, epsilon), limit in LIMITS.items():
        rows, clusters = data[name], CLUSTERS[name]
        theirs = peer.fit("diffprivlib", name, clusters, runs, epsilon=epsilon)[1]
        seed = [ours(rows, clusters, epsilon, method, runs)[0] if seeds else np.nan for method in ("eugkm", "hybrid")]
        default, _, used = ours(rows, clusters, epsilon, "auto", runs)
        good &= default <= limit
        figures = " ".join(f"{figure:11.4f}" for figure in (best[name], theirs, *seed, default, limit))
        print(f"{name + ', ' + str(epsilon):>16} {figures}  {used}{'' if default <= limit else '  FAILED'}", flush=True)
    return good


def speed_against_diffprivlib(rows: Floats, peer: Peer, runs: int) -> bool:
    print("\nSeconds on Adult-num, best of the runs; how many times faster than diffprivlib")
    good = True
    for epsilon in SPEED_EPSILONS:
        theirs = peer.fit("diffprivlib", "Adult-num", CLUSTERS["Adult-num"], runs, epsilon=epsilon)[2]
        print(f"  epsilon {epsilon}: diffprivlib {theirs:.4f}")
        for method, least in (("dplloyd", LLOYD_TIMES_FASTER), ("dplloyd_impr", LLOYD_TIMES_FASTER), ("auto", 1)):
            seconds = ours(rows, CLUSTERS["Adult-num"], epsilon, method, runs)[1]
            ratio = theirs / seconds
            good &= ratio >= least
            verdict = "" if ratio >= least else "  FAILED"
            print(f"    {method:>12} {seconds:.4f}, {ratio:.1f} times (at least {least}){verdict}", flush=True)
    return good


def speed_on_a_million(peer: Peer, rows: Floats, runs: int) -> bool:
    print("\nA million rows in two attributes, 15 clusters; times the seconds of one scikit-learn fit")
    theirs = peer.fit("scikit-learn", "million", 15, runs, starts=1)[2]
    print(f"  scikit-learn {theirs:.2f} seconds")
    good = True
    for epsilon in SPEED_EPSILONS:
        for method in ("eugkm", "hybrid", "auto"):
            _, seconds, used = ours(rows, 15, epsilon, method, runs)
            ratio = seconds / theirs
            good &= ratio < GRID_TIMES_SLOWER
            verdict = "" if ratio < GRID_TIMES_SLOWER else "  FAILED"
            print(
                f"  epsilon {epsilon}, {method} ({used}): {seconds:.2f}, {ratio:.2f} times (below 10){verdict}",
                flush=True,
            )
    return good


def million() -> Floats:
    generator = np.random.default_rng(1)
    centres = generator.uniform(-0.8, 0.8, (15, 2))
    return np.clip(centres[generator.integers(15, size=10**6)] + generator.normal(size=(10**6, 2)) * 0.08, -1, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="interpreter with benchmarks/requirements-kmeans.txt")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with adult/ and clusters/")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--default-only", action="store_true", help="leave out the seed's own methods, which take minutes"
    )
    given = parser.parse_args()
    try:
        data = load(given.data)
    except FileNotFoundError:
        print(f"skipped: no adult/ and clusters/ under {given.data}; name their folder with --data")
        return 0
    data["million"] = million()
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(given.peer, data, Path(folder))
        named = {name: data[name] for name in CLUSTERS}
        good = accuracy(named, peer, given.runs, not given.default_only)
        good &= speed_against_diffprivlib(data["Adult-num"], peer, given.runs)
        good &= speed_on_a_million(peer, data["million"], 3)
    print("passed" if good else "FAILED")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
