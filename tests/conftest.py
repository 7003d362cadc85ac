"""Fixtures that every test may ask for."""

import signal

from kafka_broker.fixtures import (
    broker,
    own_broker,
    pytest_configure,
    pytest_configure_node,
    pytest_terminal_summary,
    pytest_unconfigure,
    secured_broker,
)

# A job of the background is started deaf to SIGINT, and so would be every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = [
    "broker",
    "own_broker",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_terminal_summary",
    "pytest_unconfigure",
    "secured_broker",
]
