"""Fixtures that give a test a real broker; `tests/conftest.py` makes them known everywhere.

`broker`: the addresses of one broker that the whole run shares, also between workers; never stop it. `own_broker`: one
of the test's own, to stop, kill and pause; `own_cluster`: three of them. `STREAMDP_TEST_BOOTSTRAP=host:port` puts a
broker of yours in place of the shared one; what that cannot give (TLS, SASL, killing it) is then skipped.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from .broker import Addresses, Broker
from .cluster import Cluster
from .install import Unavailable
from .shared import end_shared_broker, shared_broker

Brokers = TypeVar("Brokers", Broker, Cluster)

GIVEN = "STREAMDP_TEST_BOOTSTRAP"
SKIPPED = "KAFKA TESTS SKIPPED"
HOME = pytest.StashKey[Path]()


def _unavailable(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"under CI=true the Kafka tests must run, but {reason}", pytrace=False)
    pytest.skip(f"{SKIPPED}: {reason}")


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Addresses:
    """The run's shared broker."""
    given = os.environ.get(GIVEN)
    if given:
        return Addresses(given)
    passed = getattr(request.config, "workerinput", None)
    home = Path(passed["kafka_home"]) if passed else request.config.stash[HOME]
    owner = int(passed["kafka_owner"]) if passed else os.getpid()
    try:
        return shared_broker(home, owner)
    except Unavailable as reason:
        _unavailable(str(reason))
        raise


@pytest.fixture(scope="session")
def secured_broker(broker: Addresses) -> Addresses:
    """The shared broker, where it has TLS and SASL listeners."""
    if broker.tls is None:
        _unavailable(f"{GIVEN} names a broker whose TLS and SASL listeners are not known")
    return broker


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that the module may stop, kill and pause; it is running again when a test gets it."""
    yield from _running(Broker, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers that the module may stop, kill and pause."""
    yield from _running(Cluster, tmp_path_factory.mktemp("cluster"))


def _running(kind: type[Brokers], home: Path) -> Iterator[Brokers]:
    if os.environ.get(GIVEN):
        _unavailable(f"{GIVEN} names a broker that the tests may not kill")
    try:
        brokers = kind(home)
    except Unavailable as reason:
        _unavailable(str(reason))
        raise
    brokers.start()
    yield brokers
    brokers.kill()


def pytest_configure(config: pytest.Config) -> None:
    # Importing kafka-python 3.0 calls a function that the standard library deprecates.
    config.addinivalue_line("filterwarnings", "ignore:(read_text|open_text) is deprecated:DeprecationWarning")
    if not hasattr(config, "workerinput"):
        config.stash[HOME] = Path(tempfile.gettempdir()) / f"streamdp-kafka-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell a worker of pytest-xdist where the run's broker lives and which process the run belongs to."""
    node.workerinput |= {  # type: ignore[attr-defined]
        "kafka_home": str(node.config.stash[HOME]),  # type: ignore[attr-defined]
        "kafka_owner": os.getpid(),
    }


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(HOME, None)
    if home is not None and home.exists():
        end_shared_broker(home)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    reasons = {text[text.index(SKIPPED) :].rstrip("')") for text in skipped if SKIPPED in text}
    for reason in sorted(reasons):
        terminalreporter.write_sep("!", reason, red=True, bold=True)
