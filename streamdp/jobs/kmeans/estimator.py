"""The estimator: checks what is public, runs a method, and gives its outcome back in the data's own units."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamdp.jobs.base import Estimator, Meter, ParameterError, checked_epsilon
from streamdp.jobs.kmeans.bounds import Bounds, checked_bounds, declared_attributes
from streamdp.jobs.kmeans.choose import auto, grid_is_out_of_reach
from streamdp.jobs.kmeans.dplloyd import dplloyd, dplloyd_impr
from streamdp.jobs.kmeans.grids import eugkm, mkm, pruned, ugkm
from streamdp.jobs.kmeans.hybrid import hybrid
from streamdp.jobs.kmeans.refined import refined
from streamdp.jobs.kmeans.rows import Rows, Table, as_table
from streamdp.jobs.kmeans.synopsis import Synopsis
from streamdp.jobs.kmeans.task import Outcome, Task
from streamdp.privacy.noise import NoiseSource

METHODS: dict[str, Callable[[Task], Outcome]] = {
    "auto": auto,
    "dplloyd": dplloyd,
    "dplloyd_impr": dplloyd_impr,
    "eugkm": eugkm,
    "hybrid": hybrid,
    "mkm": mkm,
    "pruned": pruned,
    "refined": refined,
    "ugkm": ugkm,
}
_WITHOUT_GRID = ("dplloyd", "dplloyd_impr")


class KMeans(Estimator):
    """Private k-means. Guarantee: `epsilon`-differential privacy for the presence of a row; one row per user.

    n_clusters: how many, or "auto" to choose within `n_clusters_range` (both ends included) by the synopsis, for free.
    bounds: public (low, high), two numbers or two sequences with one for each attribute. Values outside are clamped.
    method: "auto", "dplloyd", "dplloyd_impr", "ugkm", "eugkm", "mkm", "hybrid", "pruned" or "refined".
    size: a public number of rows; without it the methods that need one pay 3 % of epsilon for a noisy count.

    Learned: `cluster_centers_` in the data's units, `cluster_sizes_` (noisy, at least 0), `synopsis_` (None where the
    method makes none), `epsilon_spent_`, `method_used_` and `reason_`. Rows with a NaN are left out.

    >>> import numpy as np
    >>> rows = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0)
    >>> model = KMeans(n_clusters=2, epsilon=1, bounds=(0, 10)).fit(rows)
    >>> model.cluster_centers_.shape, model.epsilon_spent_
    ((2, 2), Fraction(1, 1))
    """

    cluster_centers_: npt.NDArray[np.float64]
    cluster_sizes_: npt.NDArray[np.int64]
    synopsis_: Synopsis | None
    epsilon_spent_: Fraction
    method_used_: str
    reason_: str
    n_clusters_: int
    n_features_in_: int

    def __init__(
        self,
        n_clusters: int | str,
        epsilon: Any,
        bounds: Any,
        method: str = "auto",
        size: int | None = None,
        source: NoiseSource | None = None,
        n_clusters_range: tuple[int, int] = (2, 10),
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.bounds = bounds
        self.method = method
        self.size = size
        self.source = source
        self.n_clusters_range = n_clusters_range

    def fit(self, X: Any, y: None = None) -> Self:
        """Spend epsilon on the rows of X: an array, or a DataFrame of pandas or polars."""
        return self.fit_table(as_table(X, declared_attributes(self.bounds)))

    def fit_table(self, table: Table) -> Self:
        """The same for a table that is read in slices of its rows, several times, and never held as a whole."""
        meter = Meter(checked_epsilon(self.epsilon), self.source)
        size = self._checked_size()
        bounds = checked_bounds(self.bounds, table.shape[1])
        clusters = self._checked_clusters(bounds)
        outcome = METHODS[self.method](Task(Rows(table, bounds), bounds, clusters, meter, size))
        self._bounds = bounds
        self._centres = outcome.centres
        self.cluster_centers_ = bounds.to_units(outcome.centres)
        self.cluster_sizes_ = np.maximum(outcome.sizes, 0)
        self.synopsis_ = outcome.synopsis
        self.epsilon_spent_ = meter.spent
        self.method_used_ = outcome.method
        self.reason_ = outcome.reason
        self.n_clusters_ = len(outcome.centres)
        self.n_features_in_ = table.shape[1]
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """The nearest centre of every row, distances taken in the scaled attributes; -1 for a row with a NaN.

        About the rows given here it is exact: it protects those that were fitted, not these.
        """
        if not hasattr(self, "cluster_centers_"):
            raise ParameterError("fit comes before predict")
        return Rows(as_table(X, self.n_features_in_), self._bounds).labels(self._centres)

    def _checked_size(self) -> int | None:
        if self.size is None:
            return None
        if isinstance(self.size, bool) or not isinstance(self.size, Integral) or self.size < 0:
            raise ParameterError("size must be a public number of rows, or None to pay for a noisy one")
        return int(self.size)

    def _checked_clusters(self, bounds: Bounds) -> range:
        if self.method not in METHODS:
            raise ParameterError(f"method must be one of {', '.join(METHODS)}")
        if self.n_clusters == "auto":
            no_grid = self.method in _WITHOUT_GRID
            low, high = (_whole(end, "n_clusters_range") for end in self.n_clusters_range)
            if low > high:
                raise ParameterError("n_clusters_range must be (smallest, largest)")
            if no_grid or (self.method == "auto" and grid_is_out_of_reach(len(bounds.axes), high)):
                raise ParameterError("n_clusters='auto' needs a synopsis, and here there is none: give a number")
            return range(low, high + 1)
        clusters = _whole(self.n_clusters, "n_clusters")
        return range(clusters, clusters + 1)


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ParameterError(f"{name}: a number of clusters is a whole number of at least 1")
    return int(value)
