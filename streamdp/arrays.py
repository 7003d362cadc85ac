"""The names of array types that are used in many places."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Counts = Integers
"""One number for each cell of a histogram, flat."""
Codes = Integers
"""For each record the number of its bin or category."""
