"""Noise, sparse vector, selection and the ledger: everything that keeps the promise of differential privacy."""

from streamdp.privacy.ledger import BudgetExceeded, Ledger
from streamdp.privacy.noise import (
    InsecureSeededSource,
    NoiseSource,
    bernoulli_exp,
    discrete_laplace,
    uniform_below,
)
from streamdp.privacy.selection import exponential_mechanism, permute_and_flip
from streamdp.privacy.sparse_vector import SparseVector

__all__ = [
    "BudgetExceeded",
    "InsecureSeededSource",
    "Ledger",
    "NoiseSource",
    "SparseVector",
    "bernoulli_exp",
    "discrete_laplace",
    "exponential_mechanism",
    "permute_and_flip",
    "uniform_below",
]
