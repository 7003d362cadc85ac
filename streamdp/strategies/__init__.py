"""When to release and when to repeat: one strategy per file, all usable without the daemon."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError
from streamdp.privacy.noise import NoiseSource
from streamdp.strategies.auto import Auto
from streamdp.strategies.base import Charge, Common, Decision, Rational, Strategy, StreamStrategy
from streamdp.strategies.baseline import Baseline
from streamdp.strategies.budget_absorption import BudgetAbsorption
from streamdp.strategies.budget_distribution import BudgetDistribution
from streamdp.strategies.dsat import ADAPTIVE_NAMES, Dsat
from streamdp.strategies.dsat_w import DsatW
from streamdp.strategies.dsft import Dsft
from streamdp.strategies.fixed import Fixed
from streamdp.strategies.published import Published

STRATEGIES: dict[str, type[StreamStrategy]] = {
    strategy.kind: strategy
    for strategy in (Auto, Baseline, Fixed, Dsft, Dsat, DsatW, BudgetDistribution, BudgetAbsorption)
}
CALIBRATIONS = ("exact", "published")
_WITH_PRINTED_FORM = ("dsft", "dsat", "dsat_w")


def parameter_names(kind: str) -> frozenset[str]:
    """The names `parameters` may hold for this kind of strategy."""
    own = {
        name
        for name, parameter in inspect.signature(_strategy(kind)).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    if kind in ("dsat", "dsat_w"):
        own |= ADAPTIVE_NAMES
    if kind in _WITH_PRINTED_FORM:
        own.add("calibration")
    return frozenset(own)


def make_strategy(
    kind: str,
    *,
    epsilon: Rational,
    cells: int,
    shape: tuple[int, ...] | None = None,
    horizon: int | None = None,
    window: int | None = None,
    sensitivity: int = 1,
    parameters: Mapping[str, Any] | None = None,
    method: str = "laplace",
    post: Iterable[str] = (),
    source: NoiseSource | None = None,
) -> StreamStrategy:
    """A strategy by its name in a configuration. `parameters` that are None count as left out.

    >>> make_strategy("fixed", epsilon="0.5", cells=4, horizon=10, parameters={"interval": 5}).guarantee
    "epsilon = 0.5 for a user's presence in all 10 time points together"
    """
    common: Common = {
        "epsilon": epsilon,
        "cells": cells,
        "shape": shape,
        "horizon": horizon,
        "window": window,
        "sensitivity": sensitivity,
        "method": method,
        "post": tuple(post),
        "source": source,
    }
    strategy, given = _resolve(kind, parameters or {})
    return strategy(**given, **common)


def restore_strategy(
    kind: str,
    *,
    state: Mapping[str, Any],
    last: Counts | None,
    parameters: Mapping[str, Any] | None = None,
    **common: Any,
) -> StreamStrategy:
    """The strategy that `make_strategy` made with the same arguments, where its state was taken; nothing is drawn."""
    strategy, given = _resolve(kind, parameters or {})
    return strategy.from_state(state, last, **given, **common)


def _resolve(kind: str, parameters: Mapping[str, Any]) -> tuple[type[StreamStrategy], dict[str, Any]]:
    given = {name: value for name, value in parameters.items() if value is not None}
    unknown = sorted(set(given) - parameter_names(kind))
    if unknown:
        raise ConfigurationError(
            f"strategy {kind!r} has no parameter {', '.join(unknown)}; "
            f"it has {', '.join(sorted(parameter_names(kind))) or 'none'}"
        )
    calibration = given.pop("calibration", "exact")
    if calibration not in CALIBRATIONS:
        raise ConfigurationError(f"calibration must be one of {', '.join(CALIBRATIONS)}")
    missing = [
        name
        for name, parameter in inspect.signature(_strategy(kind)).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        and parameter.default is inspect.Parameter.empty
        and name not in given
    ]
    if missing:
        raise ConfigurationError(f"strategy {kind!r} needs {', '.join(missing)}")
    if calibration == "published":
        return Published, {"form": kind, **given}
    return _strategy(kind), given


def _strategy(kind: str) -> type[StreamStrategy]:
    try:
        return STRATEGIES[kind]
    except KeyError:
        raise ConfigurationError(f"there is no strategy {kind!r}; there are {', '.join(STRATEGIES)}") from None


__all__ = [
    "CALIBRATIONS",
    "STRATEGIES",
    "Auto",
    "Baseline",
    "BudgetAbsorption",
    "BudgetDistribution",
    "Charge",
    "Decision",
    "Dsat",
    "DsatW",
    "Dsft",
    "Fixed",
    "Published",
    "Strategy",
    "StreamStrategy",
    "make_strategy",
    "parameter_names",
    "restore_strategy",
]
