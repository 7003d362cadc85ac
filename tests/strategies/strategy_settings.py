"""Every strategy in a small setting, and data that makes it release now and then."""

from typing import Any

import numpy as np

CELLS = 6

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "auto": ("auto", {"horizon": 20}),
    "auto-w": ("auto", {"window": 5}),
    "baseline": ("baseline", {"horizon": 20}),
    "baseline-w": ("baseline", {"window": 5}),
    "fixed": ("fixed", {"horizon": 20, "parameters": {"interval": 3}}),
    "fixed-w": ("fixed", {"window": 7, "parameters": {"interval": 3}}),
    "dsft": ("dsft", {"horizon": 20, "parameters": {"releases": 4, "threshold": 60}}),
    "dsft-once": ("dsft", {"horizon": 20, "parameters": {"releases": 1, "threshold": 60}}),
    "dsat": ("dsat", {"horizon": 20, "parameters": {"releases": 5, "threshold": 60, "ki": 0.1, "kd": 0.2}}),
    "dsat-printed-controller": (
        "dsat",
        {"horizon": 20, "parameters": {"releases": 5, "threshold": 60, "controller": "published", "burn_in": 3}},
    ),
    "dsat_w": ("dsat_w", {"window": 6, "parameters": {"releases": 2, "threshold": 60, "ki": 0.1, "kd": 0.2}}),
    "dsat_w-once": ("dsat_w", {"window": 4, "parameters": {"releases": 1, "threshold": 30, "groups": 2}}),
    "bd": ("bd", {"window": 5}),
    "ba": ("ba", {"window": 5}),
}


def arguments(name: str, **more: Any) -> dict[str, Any]:
    """The keyword arguments of `make_strategy`, with an epsilon at which noise and data both matter."""
    kind, settings = SETTINGS[name]
    return {"kind": kind, "epsilon": "3/2", "cells": CELLS, **settings, **more}


def walk(seed: int, points: int, jump: int = 80) -> list[np.ndarray]:
    """Counts that stand still and jump, differently for each seed."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 100, CELLS)
    series = []
    for _ in range(points):
        if generator.random() < 0.4:
            counts = np.maximum(counts + generator.integers(-jump, jump + 1, CELLS), 0)
        series.append(counts.astype(np.int64))
    return series
