"""The report of a replay: one HTML page that needs no network. Holds unreleased truth, as private as the trace."""

from streamdp.replay.report.page import render
from streamdp.replay.report.write import write_report

__all__ = ["render", "write_report"]
