"""diffprivlib's and scikit-learn's k-means for benchmarks/kmeans.py, which runs this in an environment of its own.

Reads a JSON list of cases from standard input (`library`, `rows`: a .npy file, `clusters`, `epsilon`, `runs`) and
writes, for each, the centres and seconds of every run.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import diffprivlib.models
import numpy as np
import sklearn.cluster


def run(case: dict[str, Any]) -> dict[str, Any]:
    rows = np.load(case["rows"])
    centres, seconds = [], []
    for _ in range(case["runs"]):
        model = (
            diffprivlib.models.KMeans(case["clusters"], epsilon=case["epsilon"], bounds=(-1, 1))
            if case["library"] == "diffprivlib"
            else sklearn.cluster.KMeans(case["clusters"], n_init=case["starts"])
        )
        begin = time.perf_counter()
        model.fit(rows)
        seconds.append(time.perf_counter() - begin)
        centres.append(model.cluster_centers_.tolist())
    return {"centres": centres, "seconds": seconds}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump([run(case) for case in json.load(sys.stdin)], sys.stdout)
