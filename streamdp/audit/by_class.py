"""Measurements of personalised mechanisms, class by class: for a neighbour in class c the loss is at most c's epsilon.

The law is read off the releases that a mechanism makes of a public table, one row of the class more or less; what the
releases lose adds up. Draws are taken from the meter that every estimator draws from.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from streamdp.audit.exact import log_density
from streamdp.audit.findings import Measurement
from streamdp.audit.own import SEED, TRIALS, follows
from streamdp.audit.rules import Noise
from streamdp.privacy.noise import InsecureSeededSource

CLASSES = {"strict": Fraction(1, 20), "normal": Fraction(3, 10), "open": Fraction(1)}
MECHANISMS = ("minimum", "threshold", "sampling", "privacy_aware", "utility", "weighted")
# Of a count that a fifth of the users are in; wide enough for caps, thresholds and parts to matter.
_SPREAD = 0.16
_SIZES = (300, 500, 200)


def personalised(mechanism: str, name: str) -> Measurement:
    """The exact loss of one user of the class, over two rounds where the mechanism has rounds."""
    # Estimators are built on this package; only the auditor looks back at them.
    from streamdp.jobs.personalized.mechanisms import Settings, releases_of
    from streamdp.jobs.personalized.preferences import Preferences
    from streamdp.jobs.personalized.releases import KEPT_UNITS, LevelMeter

    level = list(CLASSES).index(name)
    table = Preferences.of_levels(list(CLASSES.values()), _SIZES)
    meter = LevelMeter(table, InsecureSeededSource(SEED))
    nobody = np.zeros(0, dtype=np.int64)
    loss, problem = 0.0, None
    for release in releases_of(table, _SPREAD, Settings(mechanism, rounds=2, smallest=10)):
        law = Noise(1 / release.unit, discrete=True)
        chance = 1.0 if release.kept is None else release.kept[level] / KEPT_UNITS
        loss += _loss(law, release.weights[level], chance)
        draws = meter.noisy(lambda _: np.zeros(TRIALS, dtype=np.int64), nobody, release, 1)
        if not follows(draws, law):
            problem = "its draws do not have the scale of what is charged"
    return Measurement(loss, problem=problem)


def _loss(law: Noise, weight: int, chance: float) -> float:
    """The largest log-ratio of an output's probabilities without a row of this weight and with it, kept by chance."""
    reach = 50 * weight + 50
    points = np.arange(-reach, reach + 1.0)
    without, moved = log_density(law, points), log_density(law, points - weight)
    with_row = moved if chance == 1 else np.logaddexp(np.log1p(-chance) + without, np.log(chance) + moved)
    return float(np.max(np.abs(with_row - without)))
