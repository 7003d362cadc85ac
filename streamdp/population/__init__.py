"""The current dataset: a columnar table keyed by user, newest timestamp wins; checkpoints and snapshots of it."""

from streamdp.population.checkpoints import Restored, load_latest, write_checkpoint
from streamdp.population.moved import CountsMoved, Moved
from streamdp.population.population import Population
from streamdp.population.snapshots import Snapshot, relevel, write_snapshot

__all__ = [
    "CountsMoved",
    "Moved",
    "Population",
    "Restored",
    "Snapshot",
    "load_latest",
    "relevel",
    "write_checkpoint",
    "write_snapshot",
]
