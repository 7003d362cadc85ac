"""A table of vega_datasets, as it stands in the package, for benchmarks/strategies.py.

    python vega_table.py NAME

It is found, not imported: importing the package reads all of its tables.
"""

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    package = find_spec("vega_datasets")
    assert package is not None and package.origin is not None
    sys.stdout.write((Path(package.origin).parent / "_data" / sys.argv[1]).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
