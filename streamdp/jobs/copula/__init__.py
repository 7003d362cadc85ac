"""Synthetic data by a private Gaussian copula."""

from streamdp.jobs.copula.estimator import Copula

__all__ = ["Copula"]
