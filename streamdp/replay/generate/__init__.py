"""Made-up traces of any size, each with the configuration it goes with."""

from streamdp.replay.generate.census import CENSUS
from streamdp.replay.generate.churn import CHURN
from streamdp.replay.generate.hostile import HOSTILE
from streamdp.replay.generate.outbreak import OUTBREAK
from streamdp.replay.generate.scenario import Scenario
from streamdp.replay.generate.taxi import TAXI

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (CENSUS, TAXI, OUTBREAK, CHURN, HOSTILE)}

__all__ = ["SCENARIOS", "Scenario"]
