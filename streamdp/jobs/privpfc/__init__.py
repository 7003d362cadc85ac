"""PrivPfC, private publication for classification: Su, Cao, Li, Bertino 2016 (Su, Cao, Li, Bertino 2016), corrected."""

from streamdp.jobs.privpfc.estimator import PrivPfC
from streamdp.jobs.privpfc.histogram import ClassHistogram
from streamdp.jobs.privpfc.taxonomy import Taxonomy

__all__ = ["ClassHistogram", "PrivPfC", "Taxonomy"]
