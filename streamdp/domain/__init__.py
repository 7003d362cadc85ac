"""The public domain: which attributes a record has, the bins of each, and how records map to histogram cells.

Everything here is public and fixed by the configuration, never read from the data. Codes are small integers: the index
of a value (categorical) or of a bin (numeric) of one attribute; cells are flat indices into one histogram.
"""

from streamdp.domain.attribute import OUTSIDE, Attribute, Kind, Outside
from streamdp.domain.domain import Domain
from streamdp.domain.view import Axis, Selector, View

__all__ = ["OUTSIDE", "Attribute", "Axis", "Domain", "Kind", "Outside", "Selector", "View"]
