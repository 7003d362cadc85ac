"""When to release and when to repeat: one strategy per file, all usable without the daemon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from streamdp.arrays import Counts
from streamdp.errors import ConfigurationError
from streamdp.fields import Settings
from streamdp.privacy.noise import NoiseSource
from streamdp.strategies.auto import Auto
from streamdp.strategies.base import Common, Cost, Decision, Rational, Strategy, StreamStrategy
from streamdp.strategies.baseline import Baseline
from streamdp.strategies.budget_absorption import BudgetAbsorption
from streamdp.strategies.budget_distribution import BudgetDistribution
from streamdp.strategies.description import Conditions, Guarantee, NoParameters, Outline, WrongParameter
from streamdp.strategies.dsat import Dsat
from streamdp.strategies.dsat_w import DsatW
from streamdp.strategies.dsft import Dsft
from streamdp.strategies.fixed import Fixed
from streamdp.strategies.published import PUBLISHED

STRATEGIES: dict[str, type[StreamStrategy]] = {
    strategy.kind: strategy
    for strategy in (Auto, Baseline, Fixed, Dsft, Dsat, DsatW, BudgetDistribution, BudgetAbsorption)
}


def strategies_for(guarantee: Guarantee) -> list[str]:
    """The strategies that can promise it."""
    return [kind for kind, strategy in STRATEGIES.items() if guarantee in strategy.guarantees]


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
    strategy, read = _resolve(kind, parameters or {})
    return strategy(read, **common)


def restore_strategy(
    kind: str,
    *,
    state: Mapping[str, Any],
    last: Counts | None,
    parameters: Mapping[str, Any] | None = None,
    **common: Any,
) -> StreamStrategy:
    """The strategy that `make_strategy` made with the same arguments, where its state was taken; nothing is drawn."""
    strategy, read = _resolve(kind, parameters or {})
    return strategy.from_state(state, last, read, **common)


def _resolve(kind: str, parameters: Mapping[str, Any]) -> tuple[type[StreamStrategy], Settings]:
    calibration = parameters.get("calibration", "exact")
    if kind not in PUBLISHED or calibration == "exact":
        exact = {name: value for name, value in parameters.items() if name != "calibration" or kind not in PUBLISHED}
        return _strategy(kind), read_parameters(kind, exact)
    if calibration != "published":
        raise ConfigurationError('calibration must be "exact" or "published"')
    printed = {} if kind == "dsft" else {"controller": "published"}
    given = {name: value for name, value in parameters.items() if name != "calibration"}
    return PUBLISHED[kind], read_parameters(kind, printed | given)


def read_parameters(kind: str, given: Mapping[str, Any]) -> Settings:
    """The parameters of this kind of strategy; None counts as left out."""
    model = _strategy(kind).parameters_type
    try:
        return model.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields) or "none"
            raise ConfigurationError(f"strategy {kind!r} has no parameter {name}; it has {known}") from None
        if first["type"] == "missing":
            raise ConfigurationError(f"strategy {kind!r} needs {name}") from None
        raise ConfigurationError(f"strategy {kind!r}: {name + ': ' if name else ''}{_in_words(first)}") from None


def _in_words(details: ErrorDetails) -> str:
    """Without the prefix by which pydantic marks our own words."""
    error = details.get("ctx", {}).get("error")
    return details["msg"] if error is None else str(error)


def _strategy(kind: str) -> type[StreamStrategy]:
    try:
        return STRATEGIES[kind]
    except KeyError:
        raise ConfigurationError(f"there is no strategy {kind!r}; there are {', '.join(STRATEGIES)}") from None


__all__ = [
    "STRATEGIES",
    "Conditions",
    "Cost",
    "Decision",
    "NoParameters",
    "Outline",
    "Strategy",
    "StreamStrategy",
    "WrongParameter",
    "make_strategy",
    "read_parameters",
    "restore_strategy",
    "strategies_for",
]
