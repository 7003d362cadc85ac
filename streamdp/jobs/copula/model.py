"""What a fit learns: one Gaussian copula, or one for each part of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamdp.arrays import Codes, Floats
from streamdp.jobs.copula.margins import Margin
from streamdp.jobs.copula.sampling import sample_codes, shuffled, uniform
from streamdp.privacy.noise import NoiseSource


@dataclass(frozen=True, eq=False)
class Part:
    """The rows that have the given codes of the splitting attributes, and the copula of the other attributes.

    `shares_margins` and `shares_dependence` say that the part was too small for its own, and has those of all such
    parts together.
    """

    values: Mapping[int, int]
    rows: float
    attributes: tuple[int, ...]
    margins: Sequence[Margin]
    correlation: Floats
    shares_margins: bool = False
    shares_dependence: bool = False


@dataclass(frozen=True, eq=False)
class Model:
    """Parts with as many rows, in expectation, as their share says."""

    sizes: tuple[int, ...]
    parts: Sequence[Part]

    def sample(self, rows: int, source: NoiseSource | None) -> list[Codes]:
        """A column of codes for each attribute; parts in proportion, rows in random order."""
        columns = [np.empty(rows, dtype=np.int64) for _ in self.sizes]
        edges = self._edges(rows, source)
        for part, start, stop in zip(self.parts, edges[:-1], edges[1:], strict=True):
            for attribute, code in part.values.items():
                columns[attribute][start:stop] = code
            if part.attributes and stop > start:
                drawn = sample_codes(stop - start, part.correlation, part.margins, source)
                for attribute, codes in zip(part.attributes, drawn, strict=True):
                    columns[attribute][start:stop] = codes
        if len(self.parts) > 1:
            order = shuffled(rows, source)
            columns = [column[order] for column in columns]
        return columns

    def _edges(self, rows: int, source: NoiseSource | None) -> list[int]:
        """One uniform shift for all parts: each gets its share of the rows to within one, and exactly on average."""
        shares = np.array([part.rows for part in self.parts])
        total = shares.sum()
        upto = np.cumsum(shares / total if total > 0 else np.full(shares.size, 1 / shares.size))
        upto[-1] = 1.0
        shift = float(uniform((1,), source)[0])
        edges = np.floor(upto * rows + shift).astype(np.int64)
        edges[-1] = rows
        return [0, *np.minimum(edges, rows).tolist()]

    def correlation(self) -> Floats:
        """Of all attributes: the parts' average, by rows; an attribute that splits has none with others."""
        matrix = np.eye(len(self.sizes))
        total = sum(part.rows for part in self.parts)
        for part in self.parts:
            places = np.ix_(part.attributes, part.attributes)
            weight = part.rows / total if total > 0 else 1 / len(self.parts)
            matrix[places] += weight * (part.correlation - np.eye(len(part.attributes)))
        return matrix

    def margin(self, attribute: int) -> Floats:
        """The distribution of an attribute over all parts."""
        probabilities = np.zeros(self.sizes[attribute])
        total = sum(part.rows for part in self.parts)
        for part in self.parts:
            weight = part.rows / total if total > 0 else 1 / len(self.parts)
            if attribute in part.values:
                probabilities[part.values[attribute]] += weight
            else:
                probabilities += weight * part.margins[part.attributes.index(attribute)].probabilities
        return probabilities
