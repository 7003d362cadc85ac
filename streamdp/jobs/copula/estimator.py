"""The estimator: checks what is public, pays for the number of rows, fits, and samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow

from streamdp.arrays import Codes
from streamdp.domain import Attribute, Domain
from streamdp.histograms import method_names
from streamdp.jobs.base import Estimator, Meter, ParameterError, checked_epsilon
from streamdp.jobs.copula.choose import METHODS, chosen, small_attributes
from streamdp.jobs.copula.fitting import Task, hybrid, plain
from streamdp.jobs.copula.model import Model
from streamdp.jobs.copula.table import decoded, encoded, kind_of, like
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import NoiseSource

ROWS_SHARE = Fraction(3, 100)
MAX_ROWS = 2**40
CHUNK_ROWS = 2**16
MAX_ATTRIBUTES = 100


class Copula(Estimator):
    """Synthetic rows by DPCopula (Li, Xiong, Jiang 2014). Guarantee: `epsilon`-differential privacy for one row.

    epsilon: for everything; 3 % of it pays for a noisy number of rows.
    domain: the public domain, a `streamdp.domain.Domain` or a sequence of its attributes.
    method: "kendall", "mle", "hybrid", or "auto", which decides by public facts and the paid number of rows.
    margin: a histogram method's name, or "auto": "laplace" below 32 values, "merged" to 4096, "psd" beyond.
    ratio: epsilon for the margins over that for the dependence.
    nullable: names of the attributes with a category for nulls; None for all. A row with a null elsewhere is left out.

    Learned: `correlation_`, `margins_` (name to probabilities of codes, null last), `n_rows_` (noisy),
    `epsilon_spent_`, `method_used_`, `reason_`, and `parts_`, with what small parts of a hybrid share.

    >>> import polars
    >>> domain = [Attribute.integer("age", 0, 99), Attribute.categorical("city", ["here", "there"])]
    >>> frame = polars.DataFrame({"age": [30, 40] * 500, "city": ["here", "there"] * 500})
    >>> model = Copula(epsilon=1, domain=domain).fit(frame)
    >>> model.sample(10).shape, model.epsilon_spent_
    ((10, 2), Fraction(1, 1))
    """

    correlation_: npt.NDArray[np.float64]
    margins_: dict[str, npt.NDArray[np.float64]]
    n_rows_: int
    epsilon_spent_: Fraction
    method_used_: str
    reason_: str
    parts_: list[dict[str, Any]]

    def __init__(
        self,
        epsilon: Any,
        domain: Domain | Sequence[Attribute],
        method: str = "auto",
        margin: str = "auto",
        ratio: Any = 8,
        nullable: Sequence[str] | None = None,
        source: NoiseSource | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.domain = domain
        self.method = method
        self.margin = margin
        self.ratio = ratio
        self.nullable = nullable
        self.source = source

    def fit(self, X: Any, y: None = None) -> Self:
        """Spend epsilon on the rows of X: a frame of pandas or polars, an Arrow table, or a mapping of columns."""
        domain, nullable = self.checked()
        self._frame_kind = kind_of(X)
        return self._fit(encoded(X, domain), domain, nullable)

    def fit_codes(self, columns: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Spend epsilon on columns of the domain's codes, as a snapshot has them."""
        domain, nullable = self.checked()
        self._frame_kind = "arrow"
        return self._fit([columns[name] for name in domain.names], domain, nullable)

    def checked(self) -> tuple[Domain, tuple[bool, ...]]:
        """The domain and which attributes may be null, or ParameterError for parameters that are wrong together."""
        checked_epsilon(self.epsilon)
        domain = self.domain if isinstance(self.domain, Domain) else Domain(self.domain)
        if len(domain) > MAX_ATTRIBUTES:
            raise ParameterError(f"domain: at most {MAX_ATTRIBUTES} attributes; noise drowns more")
        if self.method not in METHODS:
            raise ParameterError(f"method must be one of {', '.join(METHODS)}")
        if self.margin not in ("auto", *method_names()):
            raise ParameterError(f"margin must be one of auto, {', '.join(method_names())}")
        if not 0 < _fraction(self.ratio) <= 1000:
            raise ParameterError("ratio must lie above 0 and not above 1000")
        names = domain.names if self.nullable is None else tuple(self.nullable)
        if not set(names) <= set(domain.names):
            raise ParameterError(f"nullable: name attributes of the domain: {', '.join(domain.names)}")
        nullable = tuple(name in names for name in domain.names)
        if self.method == "hybrid" and not small_attributes(_sizes(domain, nullable)):
            raise ParameterError("method='hybrid' needs an attribute of fewer than ten values to split by")
        return domain, nullable

    def _fit(self, columns: Sequence[npt.NDArray[Any]], domain: Domain, nullable: tuple[bool, ...]) -> Self:
        epsilon = checked_epsilon(self.epsilon)
        meter = Meter(epsilon, self.source)
        columns = _without_nulls(columns, domain, nullable)
        sizes = _sizes(domain, nullable)
        share = epsilon * ROWS_SHARE
        counted = meter.noisy(np.array([len(columns[0])], dtype=np.int64), 1, share)
        self.n_rows_ = int(np.clip(counted[0], 1, MAX_ROWS))
        task = Task(columns, sizes, nullable, float(self.n_rows_), 1 / share, _fraction(self.ratio), self.margin, meter)
        self.method_used_, splitting, self.reason_ = chosen(self.method, sizes, self.n_rows_, epsilon)
        self._model = hybrid(task, splitting) if splitting else plain(task, self.method_used_)
        self._domain = domain
        self.epsilon_spent_ = meter.spent
        self.correlation_ = self._model.correlation()
        self.margins_ = {name: self._model.margin(place) for place, name in enumerate(domain.names)}
        self.parts_ = _described(self._model, domain)
        return self

    def sample(self, n: int | None = None) -> Any:
        """That many synthetic rows, or the noisy number of them, as the kind of frame that was fitted, for free."""
        self._require_fitted()
        rows = self.n_rows_ if n is None else _whole(n)
        chunks = list(self.sample_chunks(rows)) or [decoded(self._model.sample(0, None), self._domain, None)]
        return like(pyarrow.concat_tables(chunks).combine_chunks(), self._frame_kind)

    def sample_chunks(self, n: int, chunk_rows: int = CHUNK_ROWS) -> Iterator[Any]:
        """The same as a stream of Arrow tables, in constant memory."""
        self._require_fitted()
        for start in range(0, _whole(n), chunk_rows):
            yield decoded(self.sample_codes(min(chunk_rows, n - start)), self._domain, self.source)

    def sample_codes(self, n: int) -> list[Codes]:
        """Rows as codes, a column for each attribute; a null is the code after the last."""
        self._require_fitted()
        return self._model.sample(_whole(n), self.source)

    def _require_fitted(self) -> None:
        if not hasattr(self, "_model"):
            raise ParameterError("fit comes before sample")


def _sizes(domain: Domain, nullable: Sequence[bool]) -> tuple[int, ...]:
    return tuple(size + null for size, null in zip(domain.sizes, nullable, strict=True))


def _without_nulls(
    columns: Sequence[npt.NDArray[Any]], domain: Domain, nullable: Sequence[bool]
) -> list[npt.NDArray[Any]]:
    """Nulls get the code after the last where there is a category for them; elsewhere their rows are left out."""
    kept: npt.NDArray[np.bool_] = np.ones(len(columns[0]), dtype=np.bool_)
    coded = []
    for column, size, null in zip(columns, domain.sizes, nullable, strict=True):
        missing = column < 0
        if null:
            column = np.where(missing, size, column) if missing.any() else column  # noqa: PLW2901
        else:
            kept &= ~missing
        coded.append(column)
    return coded if kept.all() else [column[kept] for column in coded]


def _described(model: Model, domain: Domain) -> list[dict[str, Any]]:
    return [
        {
            "values": {domain.names[place]: _label(domain, place, code) for place, code in part.values.items()},
            "rows": part.rows,
            "shares_margins": part.shares_margins,
            "shares_dependence": part.shares_dependence,
        }
        for part in model.parts
    ]


def _label(domain: Domain, place: int, code: int) -> str | None:
    labels = domain.attributes[place].labels
    return labels[code] if code < len(labels) else None


def _fraction(value: Any) -> Fraction:
    try:
        return as_fraction(value)
    except (TypeError, ValueError):
        raise ParameterError("ratio must be a number") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ParameterError("the number of rows to sample is a whole number of at least 0")
    return int(value)
