"""The estimator: a target, a mechanism, and everybody's own epsilon."""

from __future__ import annotations

from fractions import Fraction
from numbers import Integral
from typing import Any, Self

import numpy as np

from streamdp.jobs.base import Estimator, ParameterError
from streamdp.jobs.personalized.mechanisms import MECHANISMS, Settings
from streamdp.jobs.personalized.preferences import Levels, Preferences
from streamdp.jobs.personalized.releases import Release
from streamdp.jobs.personalized.session import Session
from streamdp.jobs.personalized.targets import Target
from streamdp.jobs.values import rows_in
from streamdp.privacy.exact import as_fraction
from streamdp.privacy.noise import NoiseSource

MAX_ROUNDS = 100


class Personalized(Estimator):
    """Personalised differential privacy (Jorgensen, Yu and Cormode 2015): every user with their own epsilon.

    Guarantee: the presence of a row whose user has the preference `epsilon_j` is hidden at `epsilon_j`, in exact
    numbers; one row per user. Preferences, and how many users have each, come from a **public table** that does not
    depend on who is present. Estimates are of all users and assume that what somebody prefers has nothing to do with
    their data: where it has, they lean towards those who allow more. The guarantee does not need that.

    target: what is computed, such as `Histogram`, `RangeCounts`, `Mean`, `Sum`, `Clusters`, `LogisticRegression`.
    preferences: the table, a number above zero for every user who may be present; or a `Preferences`.
    mechanism: "weighted", "minimum", "threshold", "sampling", "privacy_aware" or "utility".
    rounds: of the two partitioning mechanisms, each on the budgets that the earlier ones left.
    threshold: of the mechanisms "threshold" and "sampling"; chosen by the table when left out.
    smallest: the least number of the table's users in a part; a hundredth of them when left out.

    Learned: what the target says; `levels_` and `epsilon_spent_`, what a user of each has paid; `releases_`.

    >>> table = np.repeat([0.5, 2.0], 500)
    >>> model = Personalized(Histogram([2]), table).fit(np.zeros((1_000, 1), dtype=int))
    >>> model.counts_.shape, max(model.epsilon_spent_)
    ((2,), Fraction(2, 1))
    """

    levels_: tuple[Fraction, ...]
    epsilon_spent_: tuple[Fraction, ...]
    releases_: tuple[Release, ...]

    def __init__(
        self,
        target: Target,
        preferences: Any,
        mechanism: str = "weighted",
        rounds: int = 1,
        threshold: Any = None,
        smallest: int | None = None,
        source: NoiseSource | None = None,
    ) -> None:
        self.target = target
        self.preferences = preferences
        self.mechanism = mechanism
        self.rounds = rounds
        self.threshold = threshold
        self.smallest = smallest
        self.source = source

    def fit(self, X: Any, y: Any = None, preferences: Any = None) -> Self:
        """Spend everybody's epsilon on the rows of X.

        `preferences` has that of each row's user, from the table; a missing one (NaN) is the strictest. When left out,
        row i belongs to the table's entry i.
        """
        table = self._table()
        given = self.preferences if preferences is None else preferences
        if isinstance(given, Preferences):
            raise ParameterError("preferences: give fit that of each row's user")
        return self.fit_levels(X, y, table.levels_of(given))

    def fit_levels(self, X: Any, y: Any, levels: Levels) -> Self:
        """The same with the level of each row's user, its place in the table's order, strictest first."""
        session = Session(self._table(), self.check(), levels, self.source)
        if rows_in(X) != len(levels):
            raise ParameterError("preferences: give one for each row")
        for name, value in self.target.fit(X, y, session).items():
            setattr(self, f"{name}_", value)
        self.levels_ = session.preferences.epsilons
        self.epsilon_spent_ = tuple(session.meter.spent)
        self.releases_ = tuple(session.made)
        return self

    def predict(self, X: Any) -> Any:
        """What a classifier says of other rows."""
        return self._classifier().predict(self, X)

    def decision_function(self, X: Any) -> Any:
        """The score of each row; above zero is the positive class."""
        return self._classifier().decision_function(self, X)

    def _classifier(self) -> Any:
        if not hasattr(self.target, "predict"):
            raise ParameterError("predict: the target is no classifier")
        if not hasattr(self, "releases_"):
            raise ParameterError("fit comes before predict")
        return self.target

    def check(self) -> Settings:
        """The settings; ParameterError for what is wrong with them, before anything is spent."""
        if self.mechanism not in MECHANISMS:
            raise ParameterError(f"mechanism: give one of {', '.join(MECHANISMS)}")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, Integral) or not 1 <= self.rounds <= MAX_ROUNDS:
            raise ParameterError(f"rounds: a whole number from 1 to {MAX_ROUNDS}")
        threshold = None
        if self.threshold is not None:
            try:
                threshold = as_fraction(self.threshold)
            except (TypeError, ValueError) as error:
                raise ParameterError(f"threshold: {error}") from None
            if not 0 < threshold <= self._table().epsilons[-1]:
                raise ParameterError("threshold: above zero, and at most the largest preference")
        smallest = max(1, self._table().total // 100) if self.smallest is None else self.smallest
        if isinstance(smallest, bool) or not isinstance(smallest, Integral) or smallest < 1:
            raise ParameterError("smallest: a whole number of at least 1")
        self.target.check()
        return Settings(self.mechanism, int(self.rounds), threshold, int(smallest))

    def _table(self) -> Preferences:
        given = self.preferences
        return given if isinstance(given, Preferences) else Preferences.of_table(np.asarray(given))
