"""What a batch of messages became: columns of the good rows, and the others with the reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Reason(IntEnum):
    """Why a message was turned away. Closed; numbers and names never change meaning (dead letters carry them)."""

    TOO_LARGE = 1
    """The key alone, or key and value together, exceed the size limit; the letter holds neither."""
    BAD_JSON = 2
    """Not UTF-8, not JSON (NaN and Infinity are not JSON), or nested too deeply."""
    NOT_AN_OBJECT = 3
    """JSON, but no object."""
    UNKNOWN_FIELD = 4
    """The envelope has a field besides ts, op and record."""
    UNKNOWN_OP = 5
    """`op` is none of those known."""
    BAD_TIMESTAMP = 6
    """The timestamp is no integer, negative, or beyond 64 bits."""
    TOO_FAR_AHEAD = 7
    """The timestamp is past the public limit."""
    MISSING_FIELD = 8
    """`op`, the record, an attribute or the record id is absent or null."""
    WRONG_TYPE = 9
    """A field holds JSON of another type than it must."""
    UNKNOWN_ATTRIBUTE = 10
    """The record has a field the domain does not know."""
    NO_USER = 11
    """No key, or no user field: nobody to count."""
    OUTSIDE_DOMAIN = 12
    """The value of an attribute lies outside the domain, and the attribute neither clamps nor drops."""
    SKIPPED = 13
    """The journal says that it is never read again (`streamdp journal skip`); the letter holds nothing of it."""


@dataclass(frozen=True, eq=False, repr=False)
class Decoded:
    """Row numbers index the batch, and ascend. Every row of the batch is in exactly one of the three groups."""

    rows: NDArray[np.int64]
    ts: NDArray[np.int64]
    delete: NDArray[np.bool_]
    user: NDArray[np.uint64]
    """[n, 2]: 128-bit keyed digests."""
    record: NDArray[np.uint64] | None
    """[n, 2], when records have ids."""
    codes: tuple[NDArray[Any], ...]
    """One column per attribute, in the domain's order and types; 0 where `delete`."""
    rejected_rows: NDArray[np.int64]
    rejected_reasons: NDArray[np.uint8]
    dropped_rows: NDArray[np.int64]
    """Rows with a value outside the domain of an attribute that says `drop`: counted, not kept."""

    @classmethod
    def concatenate(cls, parts: Sequence[Decoded], begins: Sequence[int]) -> Decoded:
        """One result from those of consecutive slices of a batch, of which slice i began at row `begins[i]`."""
        shifted = list(zip(parts, begins, strict=True))
        records = [part.record for part in parts if part.record is not None]
        return cls(
            rows=np.concatenate([part.rows + begin for part, begin in shifted]),
            ts=np.concatenate([part.ts for part in parts]),
            delete=np.concatenate([part.delete for part in parts]),
            user=np.concatenate([part.user for part in parts]),
            record=np.concatenate(records) if records else None,
            codes=tuple(np.concatenate(columns) for columns in zip(*(part.codes for part in parts), strict=True)),
            rejected_rows=np.concatenate([part.rejected_rows + begin for part, begin in shifted]),
            rejected_reasons=np.concatenate([part.rejected_reasons for part in parts]),
            dropped_rows=np.concatenate([part.dropped_rows + begin for part, begin in shifted]),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def rejected_by_reason(self) -> dict[Reason, int]:
        """For the operator's own metrics; exact, therefore private."""
        counts = np.bincount(self.rejected_reasons, minlength=max(Reason) + 1)
        return {reason: int(counts[reason]) for reason in Reason if counts[reason]}
