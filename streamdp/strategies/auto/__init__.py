"""The strategy that nobody has to tune: when to release, what to spend, and what to make of the releases."""

from streamdp.strategies.auto.strategy import Auto

__all__ = ["Auto"]
