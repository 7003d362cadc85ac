"""Fixtures that every test may ask for."""

import os
import signal

from hypothesis import HealthCheck, settings
from kafka_broker.fixtures import (
    broker,
    own_broker,
    own_cluster,
    pytest_configure,
    pytest_configure_node,
    pytest_terminal_summary,
    pytest_unconfigure,
    secured_broker,
)
from seeded_noise import pytest_fixture_setup, pytest_runtest_protocol

# A job of the background is started deaf to SIGINT, and so would be every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A loaded machine is not a fault. Under CI=true the examples are the same every time; elsewhere every run tries others.
settings.register_profile(
    "streamdp",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("streamdp")

__all__ = [
    "broker",
    "own_broker",
    "own_cluster",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_fixture_setup",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
    "pytest_unconfigure",
    "secured_broker",
]
