"""`kind = "privpfc"`: a private histogram of a snapshot that trains any classifier of one attribute."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from streamdp.domain import Domain
from streamdp.fields import Settings
from streamdp.jobs import progress
from streamdp.jobs.base import SMALLEST_EPSILON, ParameterError
from streamdp.jobs.kind import MAX_ROWS, Kind, Output, check_rows
from streamdp.jobs.privpfc import PrivPfC, Taxonomy
from streamdp.population import Snapshot
from streamdp.privacy.exact import to_text

# A class is a handful of values; a histogram has a count for each of them in every cell.
MAX_CLASSES = 1_000


class PrivPfCParameters(Settings):
    """Parameters of `streamdp.jobs.PrivPfC`; domain and classes are those of the stream."""

    target: str
    """The categorical attribute to classify by; its values are the classes."""
    attributes: list[str] | None = None
    """The attributes to tell the classes by; all others of the stream when left out."""
    taxonomies: dict[str, Any] = Field(default={})
    """For categorical attributes, a tree over their values: nested objects and lists. Others have two levels."""
    pool_size: Annotated[int, Field(ge=1, le=10**6)] = 10_000
    """The most grids to look at."""
    shares: list[str] = Field(default=["0.03", "0.37", "0.6"], min_length=3, max_length=3)
    """The parts of epsilon for the size, the selection and the counts."""
    selection: Literal["permute_and_flip", "exponential"] = "permute_and_flip"
    """How a grid is chosen."""
    rounds: Annotated[int, Field(ge=1, le=100)] | None = None
    """How often a grid is chosen; epsilon and the paid size decide when left out."""
    size: Annotated[int, Field(ge=0, le=2**40)] | None = None
    """A public number of records; without it a part of epsilon pays for a noisy one."""
    rows: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 0
    """How many synthetic rows to draw from the histogram, for free, up to 20 MB of them."""


def _estimator(params: PrivPfCParameters, epsilon: Fraction, domain: Domain) -> PrivPfC:
    """With all that is public checked."""
    categorical = [attribute.name for attribute in domain.attributes if attribute.kind == "categorical"]
    if params.target not in categorical:
        raise ParameterError(f"target: name a categorical attribute; there are: {', '.join(categorical) or 'none'}")
    classes = domain[params.target].values
    if len(classes) > MAX_CLASSES:
        raise ParameterError(f"target: at most {MAX_CLASSES} classes")
    others = [name for name in domain.names if name != params.target]
    names = others if params.attributes is None else params.attributes
    if not names or len(set(names)) < len(names) or not set(names) <= set(others):
        raise ParameterError(f"attributes: name some of these, each once: {', '.join(others) or 'none'}")
    if not set(params.taxonomies) <= set(names):
        raise ParameterError("taxonomies: a tree belongs to one of the attributes")
    return PrivPfC(
        epsilon=epsilon,
        attributes=[Taxonomy(domain[name], params.taxonomies.get(name)) for name in names],
        classes=classes,
        pool_size=params.pool_size,
        shares=params.shares,
        selection=params.selection,
        rounds=params.rounds,
        size=params.size,
        progress=progress.report,
    )


def check(params: PrivPfCParameters, epsilon: Fraction, domain: Domain, records_per_user: int) -> None:
    if epsilon / records_per_user < SMALLEST_EPSILON:
        raise ParameterError(f"epsilon must be at least {float(SMALLEST_EPSILON * records_per_user):g}")
    _estimator(params, epsilon / records_per_user, domain).check()
    check_rows(params.rows, domain.attributes)


def run(params: PrivPfCParameters, epsilon: Fraction, snapshot: Snapshot) -> Output:
    """Costs `epsilon`: the estimator protects one row, so with up to m rows a user is protected at m times its own."""
    model = _estimator(params, epsilon / snapshot.records_per_user, snapshot.domain)
    model.fit_codes(snapshot.columns, snapshot.columns[params.target])
    histogram = model.histogram_
    result: dict[str, Any] = {
        "target": params.target,
        "classes": histogram.classes.tolist(),
        "grid": histogram.grid,
        "labels": {name: list(labels) for name, labels in histogram.labels.items()},
        "counts": histogram.counts.reshape(-1).tolist(),
        "size": histogram.size,
        "epsilon_spent": to_text(model.epsilon_spent_ * snapshot.records_per_user),
    }
    if not params.rows:
        return Output(result)
    import pyarrow

    nodes, classes = histogram.sample_places(params.rows, None)
    labels = histogram.labels | {params.target: tuple(histogram.classes.tolist())}
    return Output(
        result,
        pyarrow.table(
            {
                name: pyarrow.DictionaryArray.from_arrays(places.astype(np.int32), pyarrow.array(values))
                for (name, values), places in zip(labels.items(), [*nodes.T, classes], strict=True)
            }
        ),
    )


KIND = Kind(
    name="privpfc",
    summary="a private histogram of the attributes that tell classes apart, to train any classifier on",
    parameters=PrivPfCParameters,
    check=check,
    run=run,
    makes_rows=True,
)
