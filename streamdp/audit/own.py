"""Measurements of our own mechanisms: the exact loss of their law, and draws of the real thing against that law.

The law is read off the running object, so a scale that is wrong there is wrong here; the draws are taken from it too,
so an object that does not follow the scales it states is found out. Seeds are fixed: an audit says the same twice.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamdp.audit.exact import log_at_least, log_density
from streamdp.audit.findings import Measurement, Method
from streamdp.audit.monte_carlo import is_consistent, monte_carlo_lower_bound
from streamdp.audit.rules import Noise, Rule
from streamdp.audit.search import worst_loss
from streamdp.privacy import noise, selection
from streamdp.privacy import sparse_vector as technique

EPSILON = Fraction(1)
SEED = 20170601
TRIALS = 20_000
CONSISTENCY_TRIALS = 3_000
RUN_POINTS = 2
RUN_TRIALS = 4_000
RUN_USERS = 1_000

Scores = tuple[int, ...]


def sparse_vector(positives: int, monotone: bool) -> Measurement:
    """The exact worst loss of a running SparseVector's scales, and whether it runs as its description says."""
    source = noise.InsecureSeededSource(SEED)
    vector = technique.SparseVector(EPSILON, 1, positives, monotone, source)
    rule = Rule(Noise(vector.threshold_scale, discrete=True), Noise(vector.query_scale, discrete=True), positives)
    attack = worst_loss(rule, sensitivity=1, monotone=monotone)
    return Measurement(attack.loss, problem=_departure(vector, rule, source))


def _departure(vector: technique.SparseVector, rule: Rule, source: noise.NoiseSource) -> str | None:
    """In what, if anything, a running sparse vector departs from the rule it is described by."""
    epsilon, positives, monotone = vector.epsilon, vector.positives, vector.monotone
    state = vector.state()
    if [vector.above(10**9, 0) for _ in range(positives)] != [True] * positives or not vector.exhausted:
        return "it does not stop after its positives"
    if vector.state()["rho"] != state["rho"]:
        return "its threshold noise changes"

    fresh = [technique.SparseVector(epsilon, 1, positives, monotone, source) for _ in range(CONSISTENCY_TRIALS)]
    threshold_noise = np.array([one.state()["rho"] for one in fresh])
    if not follows(threshold_noise, rule.threshold_noise):
        return "its threshold noise does not have the scale it states"

    # With rho at zero the bit is the tail of the query noise itself.
    known = {**state, "rho": 0}
    threshold = math.ceil(rule.query_noise.scale)
    bits = [technique.SparseVector.from_state(known, source).above(0, threshold) for _ in range(CONSISTENCY_TRIALS)]
    if not is_consistent(np.array(bits), _tail(rule.query_noise, threshold)):
        return "its query noise does not have the scale it states"
    return None


def follows(draws: npt.NDArray[np.int64], law: Noise) -> bool:
    """Whether draws have the law's tail beyond one scale, on both sides: a third more or less would show."""
    start = math.ceil(law.scale)
    probability = _tail(law, start)
    return is_consistent(draws >= start, probability) and is_consistent(draws <= -start, probability)


def _tail(law: Noise, start: int) -> float:
    return math.exp(float(log_at_least(law, np.array([float(start)]))[0]))


def laplace_law() -> Measurement:
    """The largest log-ratio of the discrete Laplace's probabilities one unit apart, at scale 1/epsilon."""
    law = Noise(1 / EPSILON, discrete=True)
    points = np.arange(-50.0, 51.0)
    loss = float(np.max(np.abs(log_density(law, points) - log_density(law, points - 1))))
    draws = noise.discrete_laplace(law.scale, TRIALS, noise.InsecureSeededSource(SEED))
    problem = None if follows(draws, law) else "its draws do not have the scale that was asked for"
    return Measurement(loss, problem=problem)


def laplace_drawn() -> Measurement:
    """A Monte-Carlo bound on a count plus discrete Laplace noise."""

    def noisy_count(count: int, source: noise.NoiseSource | None) -> int:
        return count + int(noise.discrete_laplace(1 / EPSILON, 1, source)[0])

    source = noise.InsecureSeededSource(SEED)
    return _bounded(monte_carlo_lower_bound(noisy_count, 0, 1, trials=TRIALS, source=source).epsilon)


def exponential_law(monotone: bool) -> Measurement:
    """The exact loss on neighbours where one of many equal candidates gains and the others lose what they may."""
    here, there = _neighbouring_scores(candidates=1000, monotone=monotone)
    loss = float(np.max(np.abs(_log_softmax(here, monotone) - _log_softmax(there, monotone))))

    source = noise.InsecureSeededSource(SEED)
    _, scores = _neighbouring_scores(candidates=20, monotone=monotone)
    chosen = [selection.exponential_mechanism(scores, EPSILON, 1, monotone, source) for _ in range(CONSISTENCY_TRIALS)]
    favourite = math.exp(_log_softmax(scores, monotone)[0])
    follows = is_consistent(np.array(chosen) == 0, favourite)
    return Measurement(loss, problem=None if follows else "its choices do not have the probabilities of its epsilon")


def exponential_drawn() -> Measurement:
    """A Monte-Carlo bound on the exponential mechanism over a few candidates."""

    def choose(scores: Scores, source: noise.NoiseSource | None) -> int:
        return selection.exponential_mechanism(scores, EPSILON, 1, source=source)

    here, there = _neighbouring_scores(candidates=20, monotone=False)
    source = noise.InsecureSeededSource(SEED)
    return _bounded(monte_carlo_lower_bound(choose, here, there, trials=TRIALS // 2, source=source).epsilon)


def permute_and_flip_drawn() -> Measurement:
    """A Monte-Carlo bound on permute-and-flip over a few candidates."""

    def choose(scores: Scores, source: noise.NoiseSource | None) -> int:
        return selection.permute_and_flip(scores, EPSILON, 1, source=source)

    # Far behind the best, a candidate must be flipped in: that is where its loss is largest.
    here, there = (5, *(4,) * 3), (4, *(5,) * 3)
    source = noise.InsecureSeededSource(SEED)
    return _bounded(monte_carlo_lower_bound(choose, here, there, trials=TRIALS // 2, source=source).epsilon)


def auto_drawn() -> Measurement:
    """A Monte-Carlo bound on whole runs of the strategy `auto`, with one user more all the time or never.

    With so many others that no estimate is cut at zero, which would hide what an adversary sees.
    """
    # Strategies are made of this package, so they are looked up when they are audited and not before.
    from streamdp.strategies import make_strategy

    def run(count: int, source: noise.NoiseSource | None) -> tuple[int, ...]:
        strategy = make_strategy("auto", epsilon=EPSILON, cells=1, horizon=RUN_POINTS, source=source)
        decisions = [strategy.step(np.array([count])) for _ in range(RUN_POINTS)]
        near = (np.clip(d.counts, RUN_USERS - 1, RUN_USERS + 2) for d in decisions if d.counts is not None)
        return tuple(int(counts[0]) for counts in near)

    source = noise.InsecureSeededSource(SEED)
    return _bounded(monte_carlo_lower_bound(run, RUN_USERS, RUN_USERS + 1, trials=RUN_TRIALS, source=source).epsilon)


def _neighbouring_scores(candidates: int, monotone: bool) -> tuple[Scores, Scores]:
    rest = 0 if monotone else -1
    return (0,) * candidates, (1, *(rest,) * (candidates - 1))


def _log_softmax(scores: Scores, monotone: bool) -> npt.NDArray[np.float64]:
    rate = float(EPSILON) / (1 if monotone else 2)
    logs = rate * np.array(scores, dtype=np.float64)
    return np.asarray(logs - np.logaddexp.reduce(logs))


def _bounded(loss: float) -> Measurement:
    return Measurement(loss, Method.LOWER_BOUND)
