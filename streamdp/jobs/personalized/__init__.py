"""Personalised privacy: a target, a mechanism, and every user with their own epsilon (Li et al. 2017)."""

from streamdp.jobs.personalized.classifiers import LinearSVM, LogisticRegression
from streamdp.jobs.personalized.estimator import Personalized
from streamdp.jobs.personalized.mechanisms import MECHANISMS
from streamdp.jobs.personalized.preferences import Preferences
from streamdp.jobs.personalized.targets import Clusters, Histogram, Mean, RangeCounts, Sum

__all__ = [
    "MECHANISMS",
    "Clusters",
    "Histogram",
    "LinearSVM",
    "LogisticRegression",
    "Mean",
    "Personalized",
    "Preferences",
    "RangeCounts",
    "Sum",
]
