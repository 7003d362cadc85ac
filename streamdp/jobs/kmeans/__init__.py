"""Private k-means: Su, Cao, Li, Bertino, Jin 2016, with the corrections of privacy.md."""

from streamdp.jobs.kmeans.estimator import METHODS, KMeans
from streamdp.jobs.kmeans.synopsis import Synopsis

__all__ = ["METHODS", "KMeans", "Synopsis"]
