"""The strategy that nobody has to tune: when to release, what to spend, and what to make of the releases."""

from streamdp.strategies.auto.scales import cell_share
from streamdp.strategies.auto.strategy import Auto, busy_share, first_share, largest_share, longest_silence
from streamdp.strategies.auto.watch import SHARE as WATCH_SHARE

__all__ = ["WATCH_SHARE", "Auto", "busy_share", "cell_share", "first_share", "largest_share", "longest_silence"]
