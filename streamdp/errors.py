"""Errors that reach a user as one clear line, with the exit code they end the process with."""

from __future__ import annotations


class StreamdpError(Exception):
    """Something failed at run time; the message says what and what to do."""

    exit_code = 1


class ConfigurationError(StreamdpError):
    """Wrong usage or configuration; the message names every fault found."""

    exit_code = 2
