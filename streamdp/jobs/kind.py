"""What makes an estimator a kind of job: its parameters as a type, what is checked before the charge, how it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from streamdp.domain import Attribute, Domain
from streamdp.fields import Settings
from streamdp.jobs.base import ParameterError

if TYPE_CHECKING:
    import pyarrow

    from streamdp.population import Snapshot


MAX_ROWS = 10**7
# The journal stores a result before it leaves, in the daemon's thread: twenty megabytes delay the close of a point by
# well under a second, and leave a worker far from its memory limit.
MAX_ROWS_BYTES = 20_000_000


P = TypeVar("P", bound=Settings)


@dataclass(frozen=True)
class Output:
    """What a job gives back: a result that JSON can hold, and the rows it made, if its kind makes any."""

    result: Mapping[str, Any]
    rows: pyarrow.Table | None = None


@dataclass(frozen=True)
class Kind(Generic[P]):
    """One kind of job.

    `check` raises ParameterError for what is wrong with parameters, epsilon and the public domain together: what is
    found later costs the charge. `run` spends at most `epsilon` for the presence of a user with up to
    `snapshot.records_per_user` rows, and is total: every snapshot yields an output. A kind that spends by level of
    privacy has `run_by_level` instead: it spends at most `amounts[l]` for a user of level l.
    """

    name: str
    summary: str
    parameters: type[P]
    check: Callable[[P, Fraction, Domain, int], None]
    run: Callable[[P, Fraction, Snapshot], Output] | None = None
    makes_rows: bool = False
    run_by_level: Callable[[P, Sequence[Fraction], Snapshot], Output] | None = None

    @property
    def is_by_level(self) -> bool:
        return self.run_by_level is not None


def numeric_attributes(domain: Domain, names: Sequence[str] | None) -> list[Attribute]:
    """The attributes of those names, or all numeric ones; ParameterError for any other."""
    numeric = [attribute.name for attribute in domain.attributes if attribute.kind != "categorical"]
    there = f"the stream's numeric attributes are: {', '.join(numeric) or 'none'}"
    if names is not None and (not names or len(set(names)) < len(names) or not set(names) <= set(numeric)):
        raise ParameterError(f"attributes: name numeric attributes, each once; {there}")
    if not numeric:
        raise ParameterError(f"this kind needs a numeric attribute; {there}")
    return [domain[name] for name in (numeric if names is None else names)]


def bounds_of(attributes: Sequence[Attribute]) -> tuple[list[float], list[float]]:
    """The lowest and the highest value of each, from the public domain."""
    low = [float(attribute.edges[0]) for attribute in attributes]
    high = [float(attribute.edges[-1] - (attribute.kind == "integer")) for attribute in attributes]
    return low, high


def check_rows(rows: int | None, attributes: Sequence[Attribute]) -> None:
    """Refuses, before the charge, more rows than `max_rows`."""
    if rows is not None and rows > (most := max_rows(attributes)):
        raise ParameterError(f"rows: at most {most} of these attributes")


def max_rows(attributes: Sequence[Attribute]) -> int:
    """How many rows of these a job may make, by public facts alone. See `MAX_ROWS_BYTES`."""
    return min(MAX_ROWS_BYTES // sum(map(_bytes_of_value, attributes)), MAX_ROWS)


def _bytes_of_value(attribute: Attribute) -> int:
    """Of one value in a compressed column, about. Where in its bin a number lies is drawn, and does not compress."""
    if attribute.kind == "real":
        return 8
    values = attribute.size if attribute.kind == "categorical" else int(attribute.edges[-1] - attribute.edges[0])
    return max(1, -(-(values - 1).bit_length() // 8))


class Values:
    """A row per record, each value the middle of its public bin; made of the mapped codes for the rows of a slice."""

    def __init__(self, snapshot: Snapshot, attributes: Sequence[Attribute]) -> None:
        self._columns = [(middles(attribute), snapshot.columns[attribute.name]) for attribute in attributes]
        self.shape = len(snapshot), len(attributes)

    def __getitem__(self, rows: slice, /) -> npt.NDArray[np.float64]:
        return np.stack([middle[codes[rows]] for middle, codes in self._columns]).T


def middles(attribute: Attribute) -> npt.NDArray[np.float64]:
    """The middle of every bin; an integer's bin ends with its last integer."""
    edges = np.array(attribute.edges, dtype=np.float64)
    return edges[:-1] / 2 + (edges[1:] - (attribute.kind == "integer")) / 2
