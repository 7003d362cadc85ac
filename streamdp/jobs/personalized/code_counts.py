"""Counts of rows whose codes are among some: the form that range counts take on a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdp.jobs.base import ParameterError
from streamdp.jobs.personalized.session import Session

Codes = Mapping[str, npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class CodeCounts:
    """How many rows have, in every attribute of a query, one of its codes; X maps attributes to columns of codes.

    Every query gets an equal share of epsilon, for one row may be in all of them. How wide a query is, the part of the
    domain's cells that it holds, is public. Learned: `counts_`.
    """

    queries: Sequence[Codes]

    def check(self) -> None:
        if not self.queries:
            raise ParameterError("ranges: give at least one")

    def fit(self, X: Any, y: Any, session: Session) -> dict[str, Any]:
        share = Fraction(1, len(self.queries))
        counts = np.empty(len(self.queries))
        for place, query in enumerate(self.queries):
            inside = np.ones(len(session.levels), dtype=np.bool_)
            for name, codes in query.items():
                inside &= codes[X[name]]
            width = prod(float(codes.mean()) for codes in query.values())
            counts[place] = session.count(inside, width * (1 - width), share)
        return {"counts": counts}
