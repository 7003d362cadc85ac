"""Nothing crosses rows: one odd row, in any container, leaves what every estimator makes of the others as it was.

The odd row is one that every estimator leaves out: its second column is missing. So a fit with it, on the same noise,
must release exactly what a fit without it releases. Whatever differs came from the other rows, read in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamdp.domain import Attribute
from streamdp.jobs import Copula, KMeans, Personalized, PrivPfC
from streamdp.jobs.personalized import (
    Clusters,
    Histogram,
    LinearSVM,
    LogisticRegression,
    Mean,
    RangeCounts,
    Sum,
)
from streamdp.privacy.noise import InsecureSeededSource

Columns = dict[str, list[Any]]

ODD: dict[str, Any] = {
    "none": None,
    "nan": float("nan"),
    "pandas_na": pd.NA,
    "pandas_nat": pd.NaT,
    "text": "private",
    "question_mark": "?",
    "text_number": "4",
    "half_a_pair": "\ud800",
    "infinite": float("inf"),
    "minus_infinite": float("-inf"),
    "complex": 1 + 2j,
    "numpy_complex": np.complex128(2j),
    "huge": 10**400,
    "minus_huge": -(10**400),
    "beyond_int64": 2**64,
    "bytes": b"private",
    "odd_bytes": b"\xff",
    "nested": [1, 2],
    "nested_one": [4],
    "array": np.array([4.0]),
    "mapping": {"private": 1},
    "true": True,
    "numpy_bool": np.False_,
    "decimal": Decimal("2.5"),
    "fraction": Fraction(10**400, 3),
    "datetime": datetime(2020, 1, 1, tzinfo=UTC),
    "date": date(2020, 1, 1),
    "numpy_date": np.datetime64("2020-01-01"),
    "numpy_duration": np.timedelta64(7, "h"),
    "float": 2.5,
    "float32": np.float32(0.1),
    "long_double": np.longdouble(1) / 3,
    "object": object(),
}

FIRST: dict[str, list[Any]] = {
    "integers": [3, 4, 5, 3, 4, 4, 3, 5, 3, 3, 4, 3],
    "floats": [0.5, 3.0, 0.1, 3.0, 0.5, 3.0, 3.0, 0.1, 3.0, 3.0, 0.5, 3.0],
    "truths": [True, False, True, True, False, True, True, True, False, True, True, True],
    "texts": ["a", "b", "c", "a", "b", "a", "a", "b", "a", "c", "a", "a"],
}
SECOND = [0.5, 1.5, 2.5, 3.5, 0.5, 0.5, 1.5, 0.5, 2.5, 0.5, 3.5, 0.5]
CATEGORIES = {
    "integers": ["3", "4.0", "5"],
    "floats": ["0.5", "3", "0.1"],
    "truths": ["False", "True"],
    "texts": ["a", "b", "c"],
}
LABELS: dict[str, Any] = {"integers": [3, 4, 5], "floats": [0.5, 3, 0.1], "truths": [0, 1], "texts": ["a", "b", "c"]}


def objects(values: list[Any]) -> np.ndarray:
    return np.fromiter(values, dtype=object, count=len(values))


def rows_of(columns: Columns) -> list[list[Any]]:
    return [list(row) for row in zip(*columns.values(), strict=True)]


def object_table(columns: Columns) -> np.ndarray:
    return np.stack([objects(values) for values in columns.values()], axis=1)


ARRAYS: dict[str, Callable[[Columns], Any]] = {
    "rows": rows_of,
    "tuples": lambda columns: tuple(zip(*columns.values(), strict=True)),
    "numpy_objects": object_table,
    "numpy": lambda columns: np.array(rows_of(columns)),
}
FRAMES: dict[str, Callable[[Columns], Any]] = {
    "lists": lambda columns: columns,
    "numpy_columns": lambda columns: {name: np.array(values) for name, values in columns.items()},
    "pandas": pd.DataFrame,
    "pandas_objects": lambda columns: pd.DataFrame({n: pd.Series(v, dtype=object) for n, v in columns.items()}),
    "pandas_nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "polars": lambda columns: pl.DataFrame({name: _without_arrays(values) for name, values in columns.items()}),
    "polars_loose": lambda columns: pl.DataFrame({n: pl.Series(_plain(v), strict=False) for n, v in columns.items()}),
    "polars_objects": lambda columns: pl.DataFrame({n: pl.Series(v, dtype=pl.Object) for n, v in columns.items()}),
    "arrow": lambda columns: pa.table({name: pa.array(_uncut(values)) for name, values in columns.items()}),
    "arrow_text": lambda columns: pa.table({name: _arrow_text(values) for name, values in columns.items()}),
}


REFUSED = (ValueError, TypeError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError)


def _plain(values: list[Any]) -> list[Any]:
    """polars makes lists of all values when one is a list, and loses those that a type it settled on does not hold."""
    if not all(value is None or isinstance(value, str | bool | int | float) for value in values):
        raise TypeError("polars changes the others' values")
    return values


def _without_arrays(values: list[Any]) -> list[Any]:
    """polars makes lists, or nulls, of text that follows an array: then nobody can read it."""
    if any(isinstance(value, np.ndarray) for value in values):
        raise TypeError("polars changes the others' values")
    return values


def _uncut(values: list[Any]) -> list[Any]:
    """Arrow makes dates of numbers that follow one, and cuts off their fractions: then nobody can read them."""
    if isinstance(values[0], date) and any(isinstance(value, float) and value % 1 for value in values):
        raise TypeError("Arrow changes the others' values")
    return values


def _arrow_text(values: list[Any]) -> pa.Array:
    if not any(isinstance(value, str) for value in values):
        return pa.array(_uncut(values))
    return pa.array([None if value is None else str(value) for value in values])


def cannot_hold(container: Callable[[Columns], Any], columns: Columns) -> bool:
    try:
        container(columns)
    except REFUSED:
        return True
    return False


def source() -> InsecureSeededSource:
    return InsecureSeededSource(3)


def kmeans(X: Any, y: Any, kind: str) -> Any:
    model: Any = KMeans(2, 5, ([0, 0], [6, 4]), method="pruned", size=12, source=source()).fit(X)
    return [model.cluster_centers_.tolist(), model.cluster_sizes_.tolist(), model.synopsis_.counts.tolist()]


def copula(X: Any, y: Any, kind: str) -> Any:
    numeric = Attribute.real("first", 0, 6, bins=12, outside="clamp")
    first = Attribute.categorical("first", CATEGORIES[kind])
    second = Attribute.real("second", 0, 4, bins=4)
    models = [Copula(5, [each, second], "kendall", nullable=(), source=source()).fit(X) for each in (first, numeric)]
    return [[model.n_rows_, *(model.margins_[name].tolist() for name in model.margins_)] for model in models]


def privpfc(X: Any, y: Any, kind: str) -> Any:
    first = Attribute.categorical("first", CATEGORIES[kind])
    second = Attribute.real("second", 0, 4, bins=4)
    model = PrivPfC(50, [first, second], LABELS[kind], pool_size=20, size=12, source=source()).fit(X, y)
    return [model.grid_, model.histogram_.counts.tolist()]


def personalized(target: Any) -> Callable[[Any, Any, str], Any]:
    def fit(X: Any, y: Any, kind: str) -> Any:
        model = Personalized(target(kind), [2.0], source=source()).fit(X, y, preferences=[2.0] * len(y))
        learned = ("counts_", "sums_", "means_", "cluster_sizes_", "coef_", "intercept_")
        return [np.asarray(getattr(model, name)).tolist() for name in learned if hasattr(model, name)]

    return fit


BOUNDS = ([0, 0], [6, 4])
ESTIMATORS: dict[str, Callable[[Any, Any, str], Any]] = {
    "kmeans": kmeans,
    "copula": copula,
    "privpfc": privpfc,
    "histogram": personalized(lambda kind: Histogram([6, 4])),
    "mean": personalized(lambda kind: Mean(BOUNDS)),
    "sum": personalized(lambda kind: Sum(BOUNDS)),
    "clusters": personalized(lambda kind: Clusters(2, BOUNDS)),
    "logistic": personalized(lambda kind: LogisticRegression(BOUNDS, LABELS[kind][:2])),
    "svm": personalized(lambda kind: LinearSVM(BOUNDS, LABELS[kind][:2])),
}
RANGES = {"first": (0.4, 3.5), "second": (0, 4)}


def ranges(X: Any, y: Any, kind: str) -> Any:
    named = not isinstance(X, list | tuple | np.ndarray)
    query = RANGES if named else dict(enumerate(RANGES.values()))
    return personalized(lambda kind: RangeCounts([query], query, step=0))(X, y, kind)


ESTIMATORS["ranges"] = ranges


def kinds_of(estimator: str) -> list[str]:
    return list(FIRST) if estimator in ("copula", "privpfc") else [kind for kind in FIRST if kind != "texts"]


def containers_of(estimator: str) -> dict[str, Callable[[Columns], Any]]:
    return FRAMES if estimator == "copula" else ARRAYS | FRAMES


def with_row(values: list[Any], value: Any, place: int) -> list[Any]:
    return [*values[:place], value, *values[place:]]


def labels_in(container: str, values: list[Any]) -> Any:
    """The labels as a list, an array or a series, as the container goes."""
    try:
        if container.startswith("pandas"):
            return pd.Series(values)
        if container.startswith("polars"):
            return pl.Series(_without_arrays(values))
        if container.startswith("arrow"):
            return pa.array(_uncut(values))
        return np.array(values) if container.startswith("numpy") else values
    except REFUSED:
        return objects(values)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_odd_row_leaves_the_others_as_they_were(estimator: str) -> None:
    fit = ESTIMATORS[estimator]
    held = 0
    for kind in kinds_of(estimator):
        expected = fit({"first": FIRST[kind], "second": SECOND}, FIRST[kind], kind)
        for number, (name, odd) in enumerate(ODD.items()):
            place = 0 if number % 2 else len(SECOND)
            first, second = with_row(FIRST[kind], odd, place), with_row(SECOND, float("nan"), place)
            columns = {"first": first, "second": second}
            for container, make in containers_of(estimator).items():
                if cannot_hold(make, columns):
                    continue
                held += 1
                assert fit(make(columns), labels_in(container, first), kind) == expected, (kind, name, container)
    assert held > 100


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_odd_values_everywhere_are_no_error(estimator: str) -> None:
    """In every column, and as the label; and rows that are no rows at all, in lists."""
    fit = ESTIMATORS[estimator]
    for odd in ODD.values():
        columns = {"first": [3, odd, 4], "second": [odd, 0.5, 1.5]}
        for make in containers_of(estimator).values():
            if not cannot_hold(make, columns):
                fit(make(columns), [odd, 3, 4], "integers")
        if estimator != "copula":
            fit([[3, 0.5], odd, [odd], [3], [3, odd, 7], []], objects([3, 4, odd, 3, 4, 5]), "integers")


@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name != "copula"])
@pytest.mark.parametrize("row", [None, [], [7], "ab", {"first": 3}, [[1], [2]], 7, [float("nan"), 1, 2]])
def test_a_row_of_another_length_leaves_the_others_as_they_were(estimator: str, row: Any) -> None:
    fit = ESTIMATORS[estimator]
    rows = rows_of({"first": FIRST["integers"], "second": SECOND})
    expected = fit(rows, FIRST["integers"], "integers")
    labels = [*FIRST["integers"], "none"]
    for made in ([*rows, row], objects([*rows, row])):
        assert fit(made, labels, "integers") == expected


def test_predictions_of_other_rows_stay_as_they_were() -> None:
    kind = "integers"
    columns = {"first": FIRST[kind], "second": SECOND}
    rows = object_table(columns)
    clusters = KMeans(2, 5, BOUNDS, method="pruned", source=source()).fit(rows)
    line = Personalized(LogisticRegression(BOUNDS, (3, 4)), [5.0] * 12, source=source()).fit(rows, FIRST[kind])
    attributes = [Attribute.categorical("first", CATEGORIES[kind]), Attribute.real("second", 0, 4, bins=4)]
    cells = PrivPfC(50, attributes, LABELS[kind], pool_size=20, source=source()).fit(columns, FIRST[kind])
    for model in (clusters, line, cells):
        expected = model.predict(rows).tolist()
        for odd in ODD.values():
            more = {"first": [*FIRST[kind], odd], "second": [*SECOND, odd]}
            for make in (ARRAYS | FRAMES).values():
                if not cannot_hold(make, more):
                    assert model.predict(make(more)).tolist()[:12] == expected


def test_labels_are_scored_alike_in_every_container() -> None:
    attributes = [Attribute.categorical("first", CATEGORIES["integers"]), Attribute.real("second", 0, 4, bins=4)]
    columns = {"first": FIRST["integers"], "second": SECOND}
    model = PrivPfC(50, attributes, [3, 4, 5], pool_size=20, source=source()).fit(columns, FIRST["integers"])
    expected = model.score(columns, FIRST["integers"])
    assert expected > 0
    for kind in (int, float, str, np.float32, Decimal, np.int8):
        assert model.score(columns, [kind(label) for label in FIRST["integers"]]) == expected
        assert model.score(columns, np.array([kind(label) for label in FIRST["integers"]])) == expected
