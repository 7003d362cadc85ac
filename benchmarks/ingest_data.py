"""Messages for the ingest benchmarks, made a batch at a time with Polars, and the domain they are for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow

from streamdp.domain import Attribute, Domain, View
from streamdp.transport.batch import Blobs, RecordBatch

REGIONS = ["north", "east", "south", "west"]
DOMAIN = Domain(
    [
        Attribute.integer("age", 0, 95),
        Attribute.categorical("sex", ["f", "m"]),
        Attribute.categorical("region", REGIONS),
        Attribute.real("income", 0, 72_000, bins=36),
        Attribute.real("x", 0, 1, bins=100),
        Attribute.real("y", 0, 1, bins=100),
    ]
)
VIEWS = [
    View("people", DOMAIN, ["age", "sex", "region", "income"]),  # 27,648 cells
    View("places", DOMAIN, ["x", "y"]),  # 100 x 100
]


def batches(users: int, rows: int, batch_rows: int, seed: int) -> Iterator[RecordBatch]:
    """Upserts of uniformly random users, in order of time."""
    rng = np.random.default_rng(seed)
    for first in range(0, rows, batch_rows):
        count = min(batch_rows, rows - first)
        columns = pl.DataFrame(
            {
                "user": rng.integers(0, users, count),
                "ts": 1_700_000_000_000 + first + np.arange(count),
                "age": rng.integers(0, 96, count),
                "sex": np.array(["f", "m"])[rng.integers(0, 2, count)],
                "region": np.array(REGIONS)[rng.integers(0, 4, count)],
                "income": rng.integers(0, 72_000, count),
                # Never on the edge of a bin, where Python's float arithmetic in the peers would round the other way.
                "x": (2 * rng.integers(0, 10_000, count) + 1) / 20_000,
                "y": (2 * rng.integers(0, 10_000, count) + 1) / 20_000,
            }
        )
        text = columns.select(
            key=pl.concat_str(pl.lit("user-"), pl.col("user").cast(pl.String).str.zfill(8)),
            value=pl.concat_str(
                pl.lit('{"ts":'),
                "ts",
                pl.lit(',"op":"upsert","record":{"age":'),
                "age",
                pl.lit(',"sex":"'),
                "sex",
                pl.lit('","region":"'),
                "region",
                pl.lit('","income":'),
                "income",
                pl.lit(',"x":'),
                "x",
                pl.lit(',"y":'),
                "y",
                pl.lit("}}"),
            ),
        )
        yield RecordBatch(
            "input",
            0,
            np.arange(first, first + count),
            columns["ts"].to_numpy(),
            _blobs(text["key"]),
            _blobs(text["value"]),
        )


def user_keys(first: int, count: int) -> Blobs:
    """The keys of users `first`, `first + 1`, ..."""
    numbers = pl.Series("user", np.arange(first, first + count)).cast(pl.String).str.zfill(8)
    return _blobs("user-" + numbers)


def _blobs(text: pl.Series) -> Blobs:
    return Blobs.from_arrow(text.to_arrow().cast(pyarrow.large_binary()))


def joined(values: Blobs) -> bytes:
    """The messages one a line, as the parsers want them."""
    return b"\n".join(value or b"" for value in values) + b"\n"
