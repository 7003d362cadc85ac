"""The estimator: checks what is public, runs the mechanism, and classifies by the histogram it released."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Integers
from streamdp.domain import OUTSIDE
from streamdp.jobs.base import Estimator, Meter, ParameterError, checked_epsilon
from streamdp.jobs.privpfc import table
from streamdp.jobs.privpfc.histogram import ClassHistogram
from streamdp.jobs.privpfc.release import LARGEST_SIZE, SELECTIONS, Plan, release
from streamdp.jobs.privpfc.score import Progress
from streamdp.jobs.privpfc.taxonomy import Taxonomy
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import NoiseSource

SMALLEST_SHARE = Fraction(1, 1000)


class PrivPfC(Estimator):
    """A private histogram that trains any classifier. Guarantee: `epsilon`-differential privacy for the presence of a
    row; one row per user.

    attributes: the public domain, a `Taxonomy` or `streamdp.domain.Attribute` for each column; or two bounds for all
        columns, which are then numbers in 64 even bins, clamped.
    classes: the public list of all classes. Rows of another class, or with a value outside the domain, are left out.
    pool_size: the most grids to look at, in all rounds together.
    shares: of epsilon for the size, the selection and the counts; they add up to 1.
    selection: "permute_and_flip" or "exponential".
    rounds: how often to choose a grid, each time near the one before; None lets epsilon times the paid size decide.
    size: a public number of rows; without it the size's share of epsilon pays for a noisy one.
    progress: called with (done, of), twentieths of the rounds, as the scoring of grids passes them.

    Learned: `grid_` (the level of each attribute that was chosen), `histogram_` (see `ClassHistogram`), `classes_`,
    `taxonomies_` and `epsilon_spent_`. `generalise` gives the nodes of new rows in the released grid, in the layout of
    `histogram_.rows()` and `sample`, so that any learner can be trained on those and applied to these.

    >>> import numpy as np
    >>> rows = np.repeat([[0.1, 0.9], [0.8, 0.2]], 5000, axis=0)
    >>> model = PrivPfC(epsilon=1, attributes=(0, 1), classes=["no", "yes"]).fit(rows, np.repeat(["no", "yes"], 5000))
    >>> model.predict([[0.1, 0.9], [0.8, 0.2]]).tolist(), model.epsilon_spent_
    (['no', 'yes'], Fraction(1, 1))
    """

    grid_: dict[str, int]
    histogram_: ClassHistogram
    classes_: npt.NDArray[Any]
    taxonomies_: tuple[Taxonomy, ...]
    epsilon_spent_: Fraction
    n_features_in_: int

    def __init__(
        self,
        epsilon: Any,
        attributes: Any,
        classes: Any,
        pool_size: int = 10_000,
        shares: Sequence[Any] = ("0.03", "0.37", "0.6"),
        selection: str = "permute_and_flip",
        rounds: int | None = None,
        size: int | None = None,
        source: NoiseSource | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.attributes = attributes
        self.classes = classes
        self.pool_size = pool_size
        self.shares = shares
        self.selection = selection
        self.rounds = rounds
        self.size = size
        self.source = source
        self.progress = progress

    def check(self) -> Self:
        """Raise ParameterError for what is wrong with the parameters, before any data is there."""
        self._plan(
            checked_epsilon(self.epsilon), table.taxonomies_for(self.attributes, None, 1), self._public_classes(())
        )
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Spend epsilon on rows X with classes y; columns are found by name where X has names."""
        classes = self._public_classes(y)
        names, columns = table.columns_of(X, table.declared_columns(self.attributes))
        taxonomies = table.taxonomies_for(self.attributes, names, len(columns))
        leaves = table.leaves_of(taxonomies, names, columns)
        labels = table.codes_of_classes(y, classes)
        if leaves and len(leaves[0]) != len(labels):
            raise ParameterError("X and y must have the same rows")
        self.n_features_in_ = len(columns)
        self._names = [taxonomy.name for taxonomy in taxonomies] if names is None else names
        return self._fit(taxonomies, classes, leaves, labels)

    def fit_codes(self, codes: Mapping[str, npt.NDArray[np.integer]], labels: npt.NDArray[np.integer]) -> Self:
        """The same for columns that hold the attributes' codes already, and places in `classes`."""
        taxonomies = table.declared_taxonomies(self.attributes)
        leaves = [taxonomy.leaves_of_codes(codes[taxonomy.name]) for taxonomy in taxonomies]
        ordered = table.checked_classes(self.classes)
        place = np.append(np.searchsorted(ordered, np.asarray(self.classes)), OUTSIDE)
        self.n_features_in_ = len(leaves)
        self._names = [taxonomy.name for taxonomy in taxonomies]
        return self._fit(taxonomies, ordered, leaves, place[labels])

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The share of each class in the cell of every row; of all records where the row's cell has none."""
        nodes = self.generalise(X)
        return self.histogram_.shares(nodes)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class with the largest noisy count in the cell of every row."""
        places = self.predict_proba(X).argmax(axis=1)
        predicted: npt.NDArray[Any] = self.classes_[places]
        return predicted

    def score(self, X: Any, y: Any) -> float:
        """The share of rows that are classified correctly. Exact about these rows, which it does not protect."""
        predicted = self.predict_proba(X).argmax(axis=1)
        return float(np.mean(predicted == table.codes_of_classes(y, self.classes_)))

    def generalise(self, X: Any) -> Integers:
        """The node of every row along each axis of the released grid, -1 outside the domain."""
        self._check_is_fitted()
        names, columns = table.columns_of(X, self.n_features_in_)
        if names is None and len(columns) != self.n_features_in_:
            raise ParameterError(
                f"X has {len(columns)} features, but PrivPfC is expecting {self.n_features_in_} features as input"
            )
        if names is None:
            names = self._names
        leaves = table.leaves_of(self.histogram_.taxonomies, names, columns)
        nodes = np.zeros((len(columns[0]) if columns else 0, len(leaves)), dtype=np.int64)
        for axis, (taxonomy, level) in enumerate(zip(self.histogram_.taxonomies, self.histogram_.levels, strict=True)):
            nodes[:, axis] = np.append(taxonomy.nodes_of_leaves(level), OUTSIDE)[leaves[axis]]
        return nodes

    def sample(self, n: int) -> tuple[Integers, npt.NDArray[Any]]:
        """`n` synthetic rows for any learner: nodes along the grid's axes, and classes."""
        self._check_is_fitted()
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
            raise ParameterError("n must be a number of rows")
        return self.histogram_.sample(int(n), self.source)

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know about a classifier; only scikit-learn asks."""
        tags = import_module("sklearn.utils")
        return tags.Tags(
            estimator_type="classifier",
            target_tags=tags.TargetTags(required=True),
            classifier_tags=tags.ClassifierTags(poor_score=True),
            input_tags=tags.InputTags(allow_nan=True, string=True, categorical=True),
            non_deterministic=True,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "histogram_")

    def _public_classes(self, y: Any) -> npt.NDArray[Any]:
        return table.checked_classes(self.classes)

    def _fit(
        self, taxonomies: tuple[Taxonomy, ...], classes: npt.NDArray[Any], leaves: list[Integers], labels: Integers
    ) -> Self:
        epsilon = checked_epsilon(self.epsilon)
        plan = self._plan(epsilon, taxonomies, classes)
        inside = labels != OUTSIDE
        for column in leaves:
            inside &= column != OUTSIDE
        meter = Meter(epsilon, self.source)
        report = self.progress or _unheard
        self.histogram_ = release(plan, [column[inside] for column in leaves], labels[inside], meter, report)
        self.grid_ = self.histogram_.grid
        self.classes_ = classes
        self.taxonomies_ = taxonomies
        self.epsilon_spent_ = meter.spent
        return self

    def _plan(self, epsilon: Fraction, taxonomies: tuple[Taxonomy, ...], classes: npt.NDArray[Any]) -> Plan:
        if self.selection not in SELECTIONS:
            raise ParameterError(f"selection must be one of {', '.join(SELECTIONS)}")
        for_size, for_selection, for_counts = self._checked_shares()
        size = None if self.size is None else _whole(self.size, "size", 0, LARGEST_SIZE)
        if size is not None:
            # What a public size saves goes to the other two.
            left = for_selection + for_counts
            for_size, for_selection, for_counts = Fraction(0), for_selection / left, for_counts / left
        return Plan(
            taxonomies=taxonomies,
            classes=classes,
            pool_size=_whole(self.pool_size, "pool_size", 1, 10**7),
            rounds=None if self.rounds is None else _whole(self.rounds, "rounds", 1, 1_000),
            size=size,
            selection=SELECTIONS[self.selection],
            size_epsilon=epsilon * for_size,
            selection_epsilon=epsilon * for_selection,
            counts_epsilon=epsilon * for_counts,
        )

    def _checked_shares(self) -> tuple[Fraction, Fraction, Fraction]:
        fault = "shares must be three parts of epsilon (size, selection, counts), 0.001 or more, that add up to 1"
        try:
            size, selection, counts = (as_fraction(share) for share in self.shares)
        except (TypeError, ValueError):
            raise ParameterError(fault) from None
        if min(size, selection, counts) < SMALLEST_SHARE or size + selection + counts != 1:
            raise ParameterError(fault)
        return size, selection, counts

    def _check_is_fitted(self) -> None:
        if not hasattr(self, "histogram_"):
            # Who works with scikit-learn expects its own error; without it there is none to expect.
            theirs = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", ParameterError)
            raise theirs("fit comes first: there is no histogram yet")


def _unheard(done: int, of: int) -> None:
    """Where nobody listens."""


def _whole(value: Any, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise ParameterError(f"{name} must be a whole number from {least} to {most}")
    return int(value)
