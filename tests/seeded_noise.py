"""Noise drawn in the test process is a function of the test's name, so that no statistical test can flake.

Without this a bound that fails once in a thousand runs fails some run of three thousand tests. Processes that a test
starts (daemons, workers of the pool) draw from the operating system as always: what is said of their noise must hold
with a probability of all but 1e-9. `system_noise` marks the tests that want that here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from streamdp.privacy.noise import InsecureSeededSource, SystemSource

_from_the_system = SystemSource.random_bytes


class _Now:
    source: InsecureSeededSource | None = None


def _random_bytes(self: SystemSource, count: int) -> bytes:
    return _from_the_system(self, count) if _Now.source is None else _Now.source.random_bytes(count)


SystemSource.random_bytes = _random_bytes  # type: ignore[method-assign]


def seeded_by(name: str) -> InsecureSeededSource:
    return InsecureSeededSource(int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _Now.source = None if item.get_closest_marker("system_noise") else seeded_by(item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """A fixture that tests share draws the same, whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    before, _Now.source = _Now.source, seeded_by(f"{fixturedef.baseid} {fixturedef.argname}")
    try:
        return (yield)
    finally:
        _Now.source = before
