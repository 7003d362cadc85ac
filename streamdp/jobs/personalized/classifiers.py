"""Linear classifiers from a perturbed objective, in exact numbers.

The loss of a row x with label y = +-1 is taken to second order in the score z = y w.x: ln 2 - z/2 + z^2/8 for logistic
regression, (1 - z)^2 / 2 for the linear support vector machine (its least-squares form, Suykens and Vandewalle 1999).
So the weighted objective is a polynomial whose coefficients are sums over rows, of y x and of x x^T. Those are
released, and the minimum of the perturbed objective is computed from them for free: the functional mechanism (Zhang,
Zhang, Xiao, Yang and Winslett, PVLDB 5(11), 2012) with a weight for every row.

Why not a noise vector of density exp(-c |b|) in the objective (Chaudhuri, Monteleoni and Sarwate 2011): its proof is
about real numbers. The minimum is a smooth function of b and of the data, and one drawn in floating point tells by its
low bits which data it came from. Sums of lattice values and discrete noise have nothing of the kind. It is there for
comparison (`objective`), and says that it has no guarantee.

Sensitivity. Features are scaled to [-1, 1] by public bounds, a constant 1 is appended, all are rounded to whole numbers
of 1/K, and a row whose L1 norm passes C is shrunk to it, in integers and rounded towards zero. So y x has L1 norm at
most C, and the upper triangle of x x^T at most (|x|_1^2 + |x|_2^2) / 2 <= (C^2 + C min(C, 1)) / 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamdp.arrays import Floats, Integers
from streamdp.jobs.base import ParameterError
from streamdp.jobs.kmeans.bounds import Bounds, checked_bounds, declared_attributes
from streamdp.jobs.kmeans.rows import as_table
from streamdp.jobs.personalized.objective import perturbed_minimum
from streamdp.jobs.personalized.session import Part, Session, pooled
from streamdp.jobs.values import category, codes_of, column_of

LATTICE = 2**8
# Products of lattice values and weights, summed over so many rows, are exact in float64.
BLOCK = 2**16
LINEAR_SHARE = Fraction(2, 5)
"""Of epsilon, for the sum of y x; the rest is for x x^T, whose many entries need more."""
ENSEMBLES = ("pooled", "scores", "vote")


@dataclass(frozen=True)
class _Linear(ABC):
    """Parameters of both classifiers.

    bounds: public (low, high) of the features, numbers or one for each. classes: the two labels, the positive one last;
    rows with another label, or with a NaN, are left out. regularization: lambda of the mean loss. ensemble: where a
    mechanism sees users in several parts, "pooled" adds their sums up, "scores" and "vote" let each part decide and
    average, by what each part is worth. row_norm: the largest L1 norm that a row of scaled features and the constant
    can have, where it is public and less than their number, as with indicators.

    calibration="published" finds the minimum under a noise vector instead (`objective`), for comparison only.

    Learned: `coef_` and `intercept_`, for features scaled to [-1, 1]; `guarantee_`, "none" for what was published.
    """

    bounds: Any
    classes: Sequence[Any] = (0, 1)
    regularization: float = 1e-3
    ensemble: str = "pooled"
    row_norm: float | None = None
    calibration: str = "exact"

    _loss: ClassVar[str]

    def check(self) -> None:
        checked_bounds(self.bounds, declared_attributes(self.bounds) or 1)
        if len(self.classes) != 2 or len({category(label) for label in self.classes} - {"nan"}) != 2:
            raise ParameterError("classes: give two labels, text or numbers, the positive one last")
        if not (np.isfinite(self.regularization) and self.regularization > 0):
            raise ParameterError("regularization: a number above zero")
        if self.ensemble not in ENSEMBLES:
            raise ParameterError(f"ensemble: give one of {', '.join(ENSEMBLES)}")
        if self.calibration not in ("exact", "published"):
            raise ParameterError('calibration: "exact", or "published" for comparison')
        if self.row_norm is not None and not (np.isfinite(self.row_norm) and self.row_norm >= 1):
            raise ParameterError("row_norm: a number of at least 1, the constant")

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]:
        table = as_table(X, declared_attributes(self.bounds))
        bounds = checked_bounds(self.bounds, table.shape[1])
        labels = codes_of(column_of(y), self.classes)
        if len(labels) != len(table):
            raise ParameterError("y: give a label for each row")
        signs = (labels == 1).astype(np.int64) - (labels == 0)
        features = table.shape[1] + 1
        rows = on_lattice(table, bounds)
        signs[~rows.any(axis=1)] = 0
        if self.calibration == "published":
            models, worths = self._published(rows, signs, features, session)
        else:
            models, worths = self._exact(rows, signs, features, session)
        stacked = np.array(models).reshape(-1, features)
        average = _averaged(stacked, worths, features)
        return {
            "coef": average[:-1],
            "intercept": float(average[-1]),
            "models": stacked,
            "worths": np.array(worths),
            "feature_bounds": bounds,
            "guarantee": "none" if self.calibration == "published" else "personalised",
        }

    def _exact(
        self, lattice: Integers, signs: Integers, features: int, session: Session
    ) -> tuple[list[Floats], list[float]]:
        limit = round(self._limit(features) * LATTICE)
        rows = clipped(lattice, limit)
        rows[signs == 0] = 0
        upper = np.triu_indices(features)
        squares = (limit**2 + limit * min(limit, LATTICE)) // 2
        linear = session.parts(lambda weights: _sums(rows, weights * signs), limit, 0.0, LINEAR_SHARE)
        quadratic = session.parts(lambda weights: _products(rows, weights)[upper], squares, 0.0, 1 - LINEAR_SHARE)
        if self.ensemble == "pooled":
            return [self._solve(pooled(linear, features), pooled(quadratic, len(upper[0])), features, session)], [1.0]
        models = [self._solve(a, b, features, session) for a, b in zip(linear, quadratic, strict=True)]
        return models, [part.worth for part in linear]

    def _published(
        self, lattice: Integers, signs: Integers, features: int, session: Session
    ) -> tuple[list[Floats], list[float]]:
        """A model for every release; what each is worth is how much its users pay. Rows have L2 norm at most 1."""
        rows = lattice / (LATTICE * sqrt(features))
        models, worths = [], []
        for release in session.releases(0.0):
            session.meter.spend(release)
            session.made.append(release)
            chosen = np.array(release.weights, dtype=np.float64) / max(release.weights)
            weights = np.append(chosen, 0.0)[session.levels]
            if (drawn := session.meter.draw(session.levels, release)) is not None:
                weights = weights * drawn
            epsilon = float(release.unit) * max(release.weights)
            users = float((chosen * session.preferences.sizes).sum())
            ridge = self.regularization * max(users, 1.0)
            found = perturbed_minimum(
                rows, signs.astype(np.float64), weights, epsilon, ridge, self._loss, session.meter.source
            )
            models.append(found / sqrt(features))
            worths.append((users * epsilon) ** 2)
        return models, worths

    def predict(self, model: Any, X: Any) -> npt.NDArray[Any]:
        """The class of each row. About these rows it is exact: it protects those that were fitted."""
        votes = self.decision_function(model, X) > 0
        labels: npt.NDArray[Any] = np.where(votes, self.classes[1], self.classes[0])
        return labels

    def decision_function(self, model: Any, X: Any) -> Floats:
        """How far on the positive side each row is; by votes, how much of them is positive, less a half."""
        scaled = on_lattice(as_table(X, len(model.coef_)), model.feature_bounds_) / LATTICE
        scores: Floats = scaled @ model.models_.T
        if self.ensemble == "vote":
            scores = np.where(scores > 0, 0.5, -0.5)
        total = model.worths_.sum()
        found: Floats = scores @ (model.worths_ / total if total else model.worths_)
        return found

    def _limit(self, features: int) -> float:
        """What L1 norms are cut at: half of the largest. Noise grows with it, and directions matter more than norms."""
        return min(float(features), self.row_norm or float(features)) / 2

    @abstractmethod
    def _solve(self, linear: Part, quadratic: Part, features: int, session: Session) -> Floats:
        """The minimum of the perturbed objective of the loss at hand."""

    def _minimum(self, linear: Part, quadratic: Part, features: int, session: Session, ridge: float) -> Floats:
        """Of w.Mw / 2 - w.v: eigenvalues of M below zero are noise, and a ridge of the size of the noise keeps the rest
        of it from being taken for structure."""
        users = max(session.users, 1.0)
        moments = np.zeros((features, features))
        moments[np.triu_indices(features)] = quadratic.value / (users * LATTICE**2)
        moments += np.triu(moments, 1).T
        limit = self._limit(features)
        deviation = sqrt(quadratic.noise) * (limit**2 + limit * min(limit, 1)) / 2 / users
        values, vectors = np.linalg.eigh(moments)
        matrix = (vectors * np.maximum(values, 0)) @ vectors.T + (ridge + deviation * sqrt(features)) * np.eye(features)
        solved: Floats = np.linalg.solve(matrix, linear.value / (users * LATTICE))
        return solved


class LogisticRegression(_Linear):
    """Logistic regression; `classes`, `bounds` and the rest are described above."""

    _loss = "logistic"

    def _solve(self, linear: Part, quadratic: Part, features: int, session: Session) -> Floats:
        return 2 * self._minimum(linear, quadratic, features, session, 4 * self.regularization)


class LinearSVM(_Linear):
    """A linear support vector machine in its least-squares form."""

    _loss = "huber"

    def _solve(self, linear: Part, quadratic: Part, features: int, session: Session) -> Floats:
        return self._minimum(linear, quadratic, features, session, self.regularization)


def on_lattice(table: npt.NDArray[Any], bounds: Bounds) -> Integers:
    """Features in [-1, 1] and a constant 1, in whole numbers of 1 / LATTICE; a row with a NaN is zero.

    Every step is an operation on one value that rounds in one way, so a row does not depend on the others.
    """
    half = np.where(bounds.half_width > 0, bounds.half_width, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint((table.astype(np.float64) - bounds.middle) / half * LATTICE)
    missing = np.isnan(scaled).any(axis=1)
    whole = np.clip(np.nan_to_num(scaled), -LATTICE, LATTICE).astype(np.int64)
    rows = np.hstack([whole, np.full((len(whole), 1), LATTICE)])
    rows[missing] = 0
    return rows


def clipped(rows: Integers, limit: int) -> Integers:
    """Rows whose L1 norm is at most `limit`: longer ones shrunk, in integers, towards zero."""
    norms = np.maximum(np.abs(rows).sum(axis=1, keepdims=True), limit)
    shrunk: Integers = np.sign(rows) * (np.abs(rows) * limit // norms)
    return shrunk


def _sums(rows: Integers, weights: Integers) -> Integers:
    return np.array([(column * weights).sum() for column in rows.T], dtype=np.int64)


def _products(rows: Integers, weights: Integers) -> Integers:
    """The weighted sum of x x^T, block by block, so that it is exact."""
    total = np.zeros((rows.shape[1], rows.shape[1]), dtype=np.int64)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK].astype(np.float64)
        total += np.rint((block * weights[start : start + BLOCK, np.newaxis]).T @ block).astype(np.int64)
    return total


def _averaged(models: Floats, worths: Sequence[float], features: int) -> Floats:
    total = sum(worths)
    return np.asarray(worths) @ models / total if total else np.zeros(features)
