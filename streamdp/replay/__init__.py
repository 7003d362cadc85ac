"""Traces: recorded input, played through the real pipeline, measured against the truth."""
