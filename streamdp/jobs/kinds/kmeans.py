"""`kind = "kmeans"`: private k-means over the numeric attributes of a snapshot."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from streamdp.domain import Domain
from streamdp.fields import Settings
from streamdp.jobs import progress
from streamdp.jobs.base import SMALLEST_EPSILON, ParameterError
from streamdp.jobs.kind import Kind, Output, Values, bounds_of, numeric_attributes
from streamdp.jobs.kmeans import KMeans
from streamdp.jobs.kmeans.bounds import checked_bounds
from streamdp.jobs.kmeans.choose import grid_is_out_of_reach
from streamdp.jobs.kmeans.synopsis import side_for
from streamdp.population import Snapshot
from streamdp.privacy.exact import to_text

# Far beyond any use; time grows with it.
MAX_CLUSTERS = 1_000
Clusters = Annotated[int, Field(ge=1, le=MAX_CLUSTERS)]


class KMeansParameters(Settings):
    """Parameters of `streamdp.jobs.KMeans`; the bounds are those of the stream's public domain."""

    n_clusters: Clusters | Literal["auto"]
    """How many clusters, or `"auto"` to choose within `n_clusters_range`, for free."""
    attributes: list[str] | None = None
    """The numeric attributes to cluster by; all of the stream's when left out."""
    method: Literal["auto", "dplloyd", "dplloyd_impr", "eugkm", "hybrid", "mkm", "pruned", "refined", "ugkm"] = "auto"
    """How; `"auto"` picks by public facts."""
    size: Annotated[int, Field(ge=0, le=2**40)] | None = None
    """A public number of records; without it 3 % of epsilon pays for a noisy one where a method needs it."""
    n_clusters_range: list[Clusters] = Field(default=[2, 10], min_length=2, max_length=2)
    """The fewest and the most clusters that `"auto"` chooses from."""


def check(params: KMeansParameters, epsilon: Fraction, domain: Domain, records_per_user: int) -> None:
    attributes = numeric_attributes(domain, params.attributes)
    if epsilon / records_per_user < SMALLEST_EPSILON:
        raise ParameterError(f"epsilon must be at least {float(SMALLEST_EPSILON * records_per_user):g}")
    axes = len(checked_bounds(bounds_of(attributes), len(attributes)).axes)
    fewest, most = params.n_clusters_range
    if fewest > most:
        raise ParameterError("n_clusters_range must be the fewest, then the most")
    highest = most if params.n_clusters == "auto" else params.n_clusters
    without_grid = params.method in ("dplloyd", "dplloyd_impr")
    if params.method == "auto":
        without_grid = grid_is_out_of_reach(axes, highest)
    if without_grid and params.n_clusters == "auto":
        raise ParameterError("n_clusters='auto' needs a grid, and here there is none: give a number")
    if not without_grid:
        side_for(1, axes, highest)


def run(params: KMeansParameters, epsilon: Fraction, snapshot: Snapshot) -> Output:
    """Costs `epsilon`: the estimator protects one row, so with up to m rows a user is protected at m times its own."""
    attributes = numeric_attributes(snapshot.domain, params.attributes)
    progress.report(0, 1)
    fewest, most = params.n_clusters_range
    model = KMeans(
        n_clusters=params.n_clusters,
        epsilon=epsilon / snapshot.records_per_user,
        bounds=bounds_of(attributes),
        method=params.method,
        size=params.size,
        n_clusters_range=(fewest, most),
    ).fit_table(Values(snapshot, attributes))
    progress.report(1, 1)
    result: dict[str, Any] = {
        "attributes": [attribute.name for attribute in attributes],
        "cluster_centers": model.cluster_centers_.tolist(),
        "cluster_sizes": model.cluster_sizes_.tolist(),
        "epsilon_spent": to_text(model.epsilon_spent_ * snapshot.records_per_user),
        "method_used": model.method_used_,
        "reason": model.reason_,
        "synopsis": None,
    }
    if model.synopsis_ is not None:
        synopsis = model.synopsis_
        result["synopsis"] = {
            "attributes": [attributes[axis].name for axis in synopsis.axes],
            "low": synopsis.low.tolist(),
            "high": synopsis.high.tolist(),
            "side": synopsis.side,
            "epsilon": to_text(synopsis.epsilon),
            "counts": synopsis.counts.reshape(-1).tolist(),
        }
    return Output(result)


KIND = Kind(
    name="kmeans",
    summary="private k-means: centres of clusters, their noisy sizes and a synopsis",
    parameters=KMeansParameters,
    check=check,
    run=run,
)
