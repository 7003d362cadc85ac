"""Three real brokers as one cluster: every partition on all of them, and two must have a record before it counts."""

from __future__ import annotations

from pathlib import Path

from .broker import Broker, places


class Cluster:
    """Brokers, each to be stopped, killed and paused by itself."""

    def __init__(self, home: Path, count: int = 3) -> None:
        self.brokers = [Broker(home / f"broker-{place.node}", place) for place in places(count)]

    @property
    def servers(self) -> str:
        return ",".join(broker.addresses.plain for broker in self.brokers)

    def start(self) -> None:
        """Start all. None answers before a majority runs."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_answer()

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()
