"""The typed description of a stream: one TOML file, checked as a whole before anything runs."""

from streamdp.config.histograms import HistogramSection
from streamdp.config.load import load, parse
from streamdp.config.stream import StreamConfig

__all__ = ["HistogramSection", "StreamConfig", "load", "parse"]
