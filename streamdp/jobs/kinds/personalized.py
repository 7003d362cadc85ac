"""`kind = "personalized"`: statistics of a snapshot in which every user pays according to their own preference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from streamdp.domain import Attribute, Domain, View
from streamdp.fields import Settings
from streamdp.jobs import progress
from streamdp.jobs.base import SMALLEST_EPSILON, ParameterError
from streamdp.jobs.kind import Kind, Output, Values, bounds_of, middles, numeric_attributes
from streamdp.jobs.personalized import (
    Clusters,
    Histogram,
    LinearSVM,
    LogisticRegression,
    Mean,
    Personalized,
    Preferences,
    Sum,
)
from streamdp.jobs.personalized.code_counts import CodeCounts
from streamdp.jobs.personalized.targets import MAX_CELLS, Target
from streamdp.population import Snapshot
from streamdp.privacy.exact import as_fraction, to_text

MAX_RANGES = 1_000
MAX_CLUSTERS = 1_000


class PersonalizedParameters(Settings):
    """Parameters of `streamdp.jobs.Personalized`; preferences, domain and bounds are those of the stream. The epsilon
    of the request is what a user of the most liberal level pays; every other pays in proportion to what their level
    has for jobs."""

    target: Literal["histogram", "range_counts", "mean", "sum", "kmeans", "logistic_regression", "linear_svm"]
    """What to compute."""
    attributes: list[str] | None = None
    """The attributes of a histogram, the numeric ones for means, sums and clusters, or the features of a classifier;
    all there are when left out."""
    ranges: list[dict[str, list[Any]]] = Field(default=[], max_length=MAX_RANGES)
    """For `range_counts`: for each query, attributes with `[low, high]`, or with labels for a categorical one."""
    mechanism: Literal["weighted", "minimum", "threshold", "sampling", "privacy_aware", "utility"] = "weighted"
    """How preferences are used; see docs/personalized.md."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 1
    """Rounds of the two partitioning mechanisms."""
    threshold: str | None = None
    """Of `threshold` and `sampling`, an exact number as text; chosen by the table when left out."""
    smallest: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """The least number of the table's users in a part; a hundredth of them when left out."""
    n_clusters: Annotated[int, Field(ge=1, le=MAX_CLUSTERS)] = 5
    """For `kmeans`: how many clusters."""
    label: str | None = None
    """For a classifier: the categorical attribute it tells."""
    positive: str | None = None
    """For a classifier: the value of `label` that it tells from all others."""
    regularization: Annotated[float, Field(ge=1e-9, le=1e9)] = 1e-3
    """For a classifier: lambda of the mean loss."""
    ensemble: Literal["pooled", "scores", "vote"] = "pooled"
    """For a classifier, how the parts of a partition decide together."""


class Work:
    """A target with the columns and labels that it reads, and its learned attributes as JSON."""

    def __init__(
        self,
        target: Target,
        columns: Callable[[Snapshot], tuple[Any, Any]],
        result: Callable[[Personalized], Mapping[str, Any]],
    ) -> None:
        self.target, self.columns, self.result = target, columns, result


def learned(model: Personalized, name: str) -> Any:
    return getattr(model, f"{name}_")


def work_of(params: PersonalizedParameters, domain: Domain) -> Work:
    """With all that is public checked."""
    match params.target:
        case "histogram":
            return _histogram(params, domain)
        case "range_counts":
            return _range_counts(params, domain)
        case "logistic_regression" | "linear_svm":
            return _classifier(params, domain)
        case _:
            return _numeric(params, domain)


def _histogram(params: PersonalizedParameters, domain: Domain) -> Work:
    names = list(domain.names) if params.attributes is None else params.attributes
    if not names or len(set(names)) < len(names) or not set(names) <= set(domain.names):
        raise ParameterError(f"attributes: name some of these, each once: {', '.join(domain.names)}")
    view = View("job", domain, names)
    if view.cells > MAX_CELLS:
        raise ParameterError(f"attributes: at most {MAX_CELLS:,} cells in all")
    return Work(
        Histogram(view.shape),
        lambda snapshot: (np.stack([np.asarray(snapshot.columns[name]) for name in names], axis=1), None),
        lambda model: {
            "attributes": names,
            "shape": list(view.shape),
            "counts": learned(model, "counts").reshape(-1).tolist(),
        },
    )


def _range_counts(params: PersonalizedParameters, domain: Domain) -> Work:
    queries = [_selected(query, domain) for query in params.ranges]
    return Work(
        CodeCounts(queries),
        lambda snapshot: (snapshot.columns, None),
        lambda model: {"counts": learned(model, "counts").tolist()},
    )


def _selected(query: Mapping[str, Sequence[Any]], domain: Domain) -> dict[str, npt.NDArray[np.bool_]]:
    """For each attribute of a query, which of its codes are in."""
    chosen = {}
    for name, wanted in query.items():
        if name not in domain.names:
            raise ParameterError(f"ranges: name attributes of the stream: {', '.join(domain.names)}")
        attribute = domain[name]
        selector = wanted if attribute.kind == "categorical" else tuple(wanted)
        try:
            (codes,) = View("job", domain, [name]).selection(**{name: selector})
        except (ValueError, TypeError):
            raise ParameterError(f"ranges: one for {name} does not begin and end with cells of its domain") from None
        inside = np.zeros(attribute.size, dtype=np.bool_)
        inside[codes] = True
        chosen[name] = inside
    return chosen


def _numeric(params: PersonalizedParameters, domain: Domain) -> Work:
    attributes = numeric_attributes(domain, params.attributes)
    bounds, names = bounds_of(attributes), [attribute.name for attribute in attributes]
    target: Target
    match params.target:
        case "mean":
            target, wanted = Mean(bounds), ["means"]
        case "sum":
            target, wanted = Sum(bounds), ["sums"]
        case _:
            target, wanted = Clusters(params.n_clusters, bounds), ["cluster_centers", "cluster_sizes"]
    return Work(
        target,
        lambda snapshot: (Values(snapshot, attributes)[:], None),
        lambda model: {"attributes": names} | {name: learned(model, name).tolist() for name in wanted},
    )


def _classifier(params: PersonalizedParameters, domain: Domain) -> Work:
    """Features: the middles of numeric bins, and an indicator for each value of a categorical attribute."""
    categorical = [attribute.name for attribute in domain.attributes if attribute.kind == "categorical"]
    if params.label not in categorical or params.positive not in domain[params.label].values:
        raise ParameterError(f"label and positive: a categorical attribute ({', '.join(categorical)}) and its value")
    label, positive = params.label, domain[params.label].values.index(params.positive)
    names = [name for name in domain.names if name != label] if params.attributes is None else params.attributes
    if not names or len(set(names)) < len(names) or not set(names) <= set(domain.names) - {label}:
        raise ParameterError("attributes: name attributes of the stream but the label, each once")
    attributes = [domain[name] for name in names]
    columns = [features_of(attribute) for attribute in attributes]
    shape = LogisticRegression if params.target == "logistic_regression" else LinearSVM
    width = sum(len(values[0]) for values in columns)
    target = shape(
        ([-1.0] * width, [1.0] * width), (0, 1), params.regularization, params.ensemble, row_norm=len(names) + 1.0
    )

    def read(snapshot: Snapshot) -> tuple[Any, Any]:
        parts = [values[snapshot.columns[name]] for name, values in zip(names, columns, strict=True)]
        return np.hstack(parts), (np.asarray(snapshot.columns[label]) == positive).astype(np.int64)

    return Work(
        target,
        read,
        lambda model: {
            "attributes": names,
            "features": [f"{a.name}={v}" for a in attributes for v in (a.values or ("",))],
            "coefficients": learned(model, "coef").tolist(),
            "intercept": learned(model, "intercept"),
        },
    )


def features_of(attribute: Attribute) -> npt.NDArray[np.float64]:
    """A row of features for each code: indicators of a categorical attribute, else the place within the bounds."""
    if attribute.kind == "categorical":
        return np.eye(attribute.size)
    low, high = (bound[0] for bound in bounds_of([attribute]))
    return (2 * (middles(attribute) - low) / max(high - low, 1e-300) - 1)[:, np.newaxis]


def _estimator(
    params: PersonalizedParameters, target: Target, preferences: Preferences, records_per_user: int
) -> Personalized:
    threshold = None
    if params.threshold is not None:
        try:
            threshold = as_fraction(params.threshold) / records_per_user
        except ValueError:
            raise ParameterError('threshold: give an exact number as text, such as "0.3"') from None
    return Personalized(
        target,
        preferences,
        mechanism=params.mechanism,
        rounds=params.rounds,
        threshold=threshold,
        smallest=params.smallest,
    )


def check(params: PersonalizedParameters, epsilon: Fraction, domain: Domain, records_per_user: int) -> None:
    if epsilon / records_per_user < SMALLEST_EPSILON:
        raise ParameterError(f"epsilon must be at least {float(SMALLEST_EPSILON * records_per_user):g}")
    most = Preferences.of_levels([epsilon / records_per_user], [1])
    _estimator(params, work_of(params, domain).target, most, records_per_user).check()


def run_by_level(params: PersonalizedParameters, amounts: Sequence[Fraction], snapshot: Snapshot) -> Output:
    """Costs a user of level l at most `amounts[l]`: the estimator protects one row, so with up to m rows a user is
    protected at m times its own. The levels of the rows, and the sizes of the public table, are the snapshot's."""
    if snapshot.levels is None:
        raise RuntimeError("a snapshot without levels; this is a defect, please report it")
    progress.report(0, 2)
    each = [amount / snapshot.records_per_user for amount in amounts]
    distinct = sorted(set(each))
    place = np.array([distinct.index(amount) for amount in each], dtype=np.int64)
    sizes = np.bincount(place, np.array(snapshot.level_sizes), len(distinct)).astype(np.int64)
    work = work_of(params, snapshot.domain)
    table = Preferences.of_levels(distinct, sizes)
    model = _estimator(params, work.target, table, snapshot.records_per_user)
    model.fit_levels(*work.columns(snapshot), place[np.asarray(snapshot.levels)])
    progress.report(2, 2)
    spent = [model.epsilon_spent_[group] * snapshot.records_per_user for group in place]
    return Output(
        {
            "target": params.target,
            "mechanism": params.mechanism,
            "epsilon_spent_by_level": [to_text(amount) for amount in spent],
            **work.result(model),
        }
    )


KIND = Kind(
    name="personalized",
    summary="statistics in which every user pays according to their own preference",
    parameters=PersonalizedParameters,
    check=check,
    run_by_level=run_by_level,
)
