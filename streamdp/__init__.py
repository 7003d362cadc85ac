"""streamdp: continuous release of differentially private statistics from live data."""

__version__ = "0.1.0"
