"""One public attribute: its categories or bins, and the code of a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Kind = Literal["categorical", "integer", "real"]
Outside = Literal["reject", "clamp", "drop"]
Number = int | float

OUTSIDE = -1
"""The code of a value outside the domain."""

MAX_CODES = 2**24
# JSON numbers may come back from a parser as doubles: beyond 2**53 neighbouring integers would share a code.
WIDEST_INTEGER = 2**53


@dataclass(frozen=True)
class Attribute:
    """A named attribute with `size` codes, `0 .. size - 1`.

    `categorical` has `values`, in the order of their codes. The numeric kinds have `size + 1` increasing `edges`:
    `integer` bin `i` holds the integers `edges[i] <= x < edges[i + 1]` (so the highest integer is `edges[-1] - 1`);
    `real` bin `i` holds `edges[i] <= x < edges[i + 1]`, and the last bin its upper edge too. Use the constructors
    `categorical`, `integer` and `real`, which take the low and high a person would write.

    `outside` tells ingest what to do with a record whose value has no code: `reject` it to the dead letters, `drop` it
    silently, or (numeric only) `clamp` the value into the nearest bin, which `encode` does itself.
    """

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    edges: tuple[Number, ...] = ()
    outside: Outside = "reject"

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("an attribute needs a name")
        if self.kind not in get_args(Kind):
            raise ValueError(f"{self.name}: kind {self.kind!r} is not one of {', '.join(get_args(Kind))}")
        if self.outside not in get_args(Outside):
            raise ValueError(f"{self.name}: outside {self.outside!r} is not one of {', '.join(get_args(Outside))}")
        if self.kind == "categorical":
            self._check_values()
        else:
            self._check_edges()
        if self.size > MAX_CODES:
            raise ValueError(f"{self.name}: {self.size} codes are more than the {MAX_CODES} an attribute may have")

    def _check_values(self) -> None:
        if self.edges:
            raise ValueError(f"{self.name}: a categorical attribute has values, not edges")
        if not self.values:
            raise ValueError(f"{self.name}: a categorical attribute needs at least one value")
        if any(not isinstance(value, str) for value in self.values):
            raise ValueError(f"{self.name}: categorical values are text")
        if len(set(self.values)) != len(self.values):
            twice = sorted({value for value in self.values if self.values.count(value) > 1})
            raise ValueError(f"{self.name}: each value once; repeated: {', '.join(twice)}")
        if self.outside == "clamp":
            raise ValueError(f"{self.name}: categories have no nearest one to clamp to; use 'reject' or 'drop'")

    def _check_edges(self) -> None:
        if self.values:
            raise ValueError(f"{self.name}: a {self.kind} attribute has edges, not values")
        if len(self.edges) < 2:
            raise ValueError(f"{self.name}: at least two edges are needed to make a bin")
        if self.kind == "integer" and any(type(edge) is not int for edge in self.edges):
            raise ValueError(f"{self.name}: the edges of an integer attribute are integers")
        if not all(isfinite(edge) for edge in self.edges):
            raise ValueError(f"{self.name}: edges are finite numbers")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"{self.name}: edges must increase")
        if self.kind == "integer" and max(abs(self.edges[0]), abs(self.edges[-1])) > WIDEST_INTEGER:
            raise ValueError(f"{self.name}: integers beyond 2**53 are not exact in JSON")
        if self.kind == "real" and any(type(edge) is not float for edge in self.edges):
            # One spelling only, so that 0 and 0.0 have one fingerprint.
            object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))

    @classmethod
    def categorical(cls, name: str, values: Iterable[str], outside: Outside = "reject") -> Attribute:
        return cls(name, "categorical", values=tuple(values), outside=outside)

    @classmethod
    def integer(
        cls,
        name: str,
        low: int | None = None,
        high: int | None = None,
        *,
        bins: int | None = None,
        edges: Sequence[int] | None = None,
        outside: Outside = "reject",
    ) -> Attribute:
        """The integers `low .. high`, both inclusive: one bin each, or `bins` as even as possible, or `edges`.

        `edges` are the first integer of every bin, then the highest integer, which the last bin includes:
        `[0, 18, 65, 99]` makes 0-17, 18-64 and 65-99.
        """
        if edges is not None:
            _only_edges(name, low, high, bins)
            if not edges:
                raise ValueError(f"{name}: at least two edges are needed to make a bin")
            return cls(name, "integer", edges=(*edges[:-1], edges[-1] + 1), outside=outside)
        if low is None or high is None:
            raise ValueError(f"{name}: an integer attribute needs low and high, or edges")
        if low > high:
            raise ValueError(f"{name}: low {low} is above high {high}")
        span = high - low + 1
        count = span if bins is None else bins
        if not 1 <= count <= span:
            raise ValueError(f"{name}: {count} bins do not fit {span} integers; give between 1 and {span}")
        if count > MAX_CODES:
            raise ValueError(f"{name}: {count} bins are more than {MAX_CODES}; give fewer with bins or edges")
        return cls(name, "integer", edges=_even_integer_edges(low, high + 1, count), outside=outside)

    @classmethod
    def real(
        cls,
        name: str,
        low: Number | None = None,
        high: Number | None = None,
        *,
        bins: int | None = None,
        edges: Sequence[Number] | None = None,
        outside: Outside = "reject",
    ) -> Attribute:
        """The reals `low .. high`, both inclusive: `bins` of equal width, or `edges`; the last bin is closed."""
        if edges is not None:
            _only_edges(name, low, high, bins)
            return cls(name, "real", edges=tuple(edges), outside=outside)
        if low is None or high is None or bins is None:
            raise ValueError(f"{name}: a real attribute needs low, high and bins, or edges")
        if not (isfinite(low) and isfinite(high) and low < high):
            raise ValueError(f"{name}: low {low} must be below high {high}, both finite")
        if not 1 <= bins <= MAX_CODES:
            raise ValueError(f"{name}: {bins} bins; give between 1 and {MAX_CODES}")
        return cls(name, "real", edges=_even_real_edges(low, high, bins), outside=outside)

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.values) if self.kind == "categorical" else len(self.edges) - 1

    @property
    def low(self) -> Number:
        """The lowest value of a numeric attribute."""
        return self.edges[0]

    @property
    def high(self) -> Number:
        """The highest value of a numeric attribute, inclusive."""
        return self.edges[-1] - 1 if self.kind == "integer" else self.edges[-1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every code."""
        return np.min_scalar_type(self.size - 1)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A readable name per code: `f`, `34`, `20-29`, `[0.5, 1.0)`."""
        if self.kind == "categorical":
            return self.values
        if self.kind == "integer":
            dash = "-" if self.low >= 0 else ".."
            return tuple(f"{a}" if b == a + 1 else f"{a}{dash}{b - 1}" for a, b in pairwise(self.edges))
        bins = [f"[{a!r}, {b!r})" for a, b in pairwise(self.edges)]
        return (*bins[:-1], bins[-1][:-1] + "]")

    def encode(self, values: ArrayLike | Sequence[str | None]) -> NDArray[np.int64]:
        """The code of every value, `OUTSIDE` where there is none.

        With `outside="clamp"` a number beyond the ends gets the nearest bin. What is no value of the kind at all (NaN,
        a fraction for an integer attribute) is outside even then.
        """
        if self.kind == "categorical":
            return self._encode_text(values)  # type: ignore[arg-type]
        array = np.asarray(values)
        if array.dtype.kind not in "iuf":
            raise TypeError(f"{self.name}: a numeric attribute encodes numbers, not {array.dtype}")
        return self._encode_integers(array) if self.kind == "integer" else self._encode_reals(array)

    def _encode_text(self, values: Sequence[str | None]) -> NDArray[np.int64]:
        code_of = self._code_of.get
        return np.fromiter((code_of(value, OUTSIDE) for value in values), dtype=np.int64, count=len(values))

    def _encode_integers(self, array: NDArray[Any]) -> NDArray[np.int64]:
        whole = None
        if array.dtype.kind == "f":
            whole = np.floor(array) == array
            array = np.where(whole, np.clip(array, -(2.0**62), 2.0**62), 0.0)
        elif array.dtype == np.uint64:
            array = np.minimum(array, np.uint64(2**63 - 1))
        integers = array.astype(np.int64, copy=False)
        # Modulo 2**64 a value is inside exactly when its distance from low is at most the span, so one comparison does
        # for both ends and nothing overflows.
        distance = (integers - np.int64(self.low)).view(np.uint64)
        beyond = distance > np.uint64(self.high - self.low)
        codes = distance.view(np.int64)
        any_beyond = bool(beyond.any())
        if any_beyond:
            codes[beyond] = 0
        if self.size != self.high - self.low + 1:
            codes = self._integer_bins(codes)
        if any_beyond:
            codes[beyond] = (
                np.where(integers[beyond] < self.low, 0, self.size - 1) if self.outside == "clamp" else OUTSIDE
            )
        if whole is not None:
            codes[~whole] = OUTSIDE
        return codes

    def _integer_bins(self, distance: NDArray[np.int64]) -> NDArray[np.int64]:
        table = self._bin_of_distance
        if table is not None:
            return table.take(distance)
        return np.searchsorted(self._edge_array - np.int64(self.low), distance, side="right") - 1

    def _encode_reals(self, array: NDArray[Any]) -> NDArray[np.int64]:
        reals = array.astype(np.float64, copy=False)
        if self._is_even:
            codes = self._guess_even_bins(reals)
        else:
            codes = np.searchsorted(self._edge_array, reals, side="right") - 1
            codes[reals == self.high] = self.size - 1
        if self.outside == "clamp":
            np.clip(codes, 0, self.size - 1, out=codes)
        else:
            codes[codes == self.size] = OUTSIDE
        codes[np.isnan(reals)] = OUTSIDE
        return codes

    def _guess_even_bins(self, reals: NDArray[np.float64]) -> NDArray[np.int64]:
        """What the search finds, several times faster: a division guesses, the edges on both sides correct it."""
        edges, last = self._edge_array, self.size - 1
        inside = (reals >= self.low) & (reals <= self.high)
        safe = reals if inside.all() else np.where(inside, reals, self.low)
        codes = ((safe - self.low) * (self.size / (self.high - self.low))).astype(np.int64)
        np.minimum(codes, last, out=codes)
        codes -= safe < edges.take(codes)
        codes += (safe >= edges.take(codes + 1)) & (codes < last)
        if safe is not reals:
            codes[reals < self.low] = OUTSIDE
            codes[reals > self.high] = self.size
        return codes

    @cached_property
    def _is_even(self) -> bool:
        """Whether the edges lie so evenly that a division misses a bin by at most one."""
        width = (self.high - self.low) / self.size
        ideal = self.low + width * np.arange(self.size + 1)
        return 0 < width < np.inf and bool((np.abs(self._edge_array - ideal) <= width / 4).all())

    @cached_property
    def _code_of(self) -> dict[str | None, int]:
        return {value: code for code, value in enumerate(self.values)}

    @cached_property
    def _edge_array(self) -> NDArray[Any]:
        return np.array(self.edges, dtype=np.int64 if self.kind == "integer" else np.float64)

    @cached_property
    def _bin_of_distance(self) -> NDArray[np.int64] | None:
        """For a narrow integer attribute a table beats the binary search several times."""
        if self.high - self.low >= 2**16:
            return None
        return np.repeat(np.arange(self.size), np.diff(self._edge_array))

    def describe(self) -> dict[str, Any]:
        """JSON-able, and short for evenly binned attributes, since every release carries it."""
        description: dict[str, Any] = {"name": self.name, "type": self.kind, "outside": self.outside}
        if self.kind == "categorical":
            return description | {"values": list(self.values)}
        even = (
            _even_integer_edges(int(self.edges[0]), int(self.edges[-1]), self.size)
            if self.kind == "integer"
            else _even_real_edges(self.low, self.high, self.size)
        )
        if even == self.edges:
            return description | {"low": self.low, "high": self.high, "bins": self.size}
        # As the constructors take them: the last edge is the highest value, inclusive.
        return description | {"edges": [*self.edges[:-1], self.high]}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Attribute:
        name, outside = description["name"], description["outside"]
        if description["type"] == "categorical":
            return cls.categorical(name, description["values"], outside)
        numbers = {key: description[key] for key in ("low", "high", "bins", "edges") if key in description}
        if description["type"] == "integer":
            return cls.integer(name, **numbers, outside=outside)
        if description["type"] == "real":
            return cls.real(name, **numbers, outside=outside)
        raise ValueError(f"{name}: unknown type {description['type']!r}")


def _only_edges(name: str, low: Number | None, high: Number | None, bins: int | None) -> None:
    if low is not None or high is not None or bins is not None:
        raise ValueError(f"{name}: edges say all; low, high and bins do not go with them")


def _even_integer_edges(start: int, stop: int, bins: int) -> tuple[int, ...]:
    return tuple(start + (stop - start) * i // bins for i in range(bins + 1))


def _even_real_edges(low: Number, high: Number, bins: int) -> tuple[float, ...]:
    """Through decimals, so that ten bins of [0, 1] meet at 0.3 and not at 0.30000000000000004."""
    start, stop = Fraction(repr(float(low))), Fraction(repr(float(high)))
    width = (stop - start) / bins
    return tuple(float(start + width * i) for i in range(bins + 1))
