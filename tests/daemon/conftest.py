"""Ends what these tests start."""

from harness import streams_end

__all__ = ["streams_end"]
