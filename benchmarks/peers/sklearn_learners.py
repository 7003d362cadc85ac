"""CART and logistic regression of scikit-learn on weighted rows of nodes: paths of .npz files on stdin, errors out."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier


def indicators(nodes: np.ndarray, sizes: np.ndarray, chosen: np.ndarray) -> list[Any]:
    """An indicator for each node of the chosen attributes."""
    rows = np.arange(len(nodes))
    return [
        sp.csr_matrix((np.ones(len(nodes)), (rows, nodes[:, place])), shape=(len(nodes), sizes[place]))
        for place in np.flatnonzero(chosen)
    ]


def errors(path: str) -> dict[str, float]:
    """The misclassification of both learners on the test rows of one file."""
    case = np.load(path)
    sizes, numeric = case["sizes"], case["numeric"]
    features = {
        # A tree may cut a numeric attribute anywhere; a category is one node against the others.
        "cart": lambda nodes: sp.hstack([nodes[:, numeric], *indicators(nodes, sizes, ~numeric)]).tocsc(),
        "lr": lambda nodes: sp.hstack(indicators(nodes, sizes, np.ones(len(sizes), dtype=bool))).tocsr(),
    }
    learners = {
        "cart": DecisionTreeClassifier(min_weight_fraction_leaf=0.001, random_state=1),
        "lr": LogisticRegression(max_iter=500),
    }
    found = {}
    for name, learner in learners.items():
        learner.fit(features[name](case["nodes"]), case["labels"], sample_weight=case["weights"].astype(float))
        predicted = learner.predict(features[name](case["test_nodes"]))
        found[name] = float(np.mean(predicted != case["test_labels"]))
    return found


if __name__ == "__main__":
    print(json.dumps([errors(path) for path in json.load(sys.stdin)]))
