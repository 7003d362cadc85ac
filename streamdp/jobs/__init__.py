"""Analyses on demand, in scikit-learn's manner: parameters in the constructor, `fit`, learned attributes end in `_`."""

from streamdp.jobs.base import Estimator, Meter, ParameterError
from streamdp.jobs.copula import Copula
from streamdp.jobs.kmeans import KMeans
from streamdp.jobs.personalized import Personalized
from streamdp.jobs.privpfc import PrivPfC

__all__ = ["Copula", "Estimator", "KMeans", "Meter", "ParameterError", "Personalized", "PrivPfC"]
