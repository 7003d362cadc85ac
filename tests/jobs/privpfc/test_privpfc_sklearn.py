"""scikit-learn's own checks of an estimator, where it is installed; the library does not need it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamdp.jobs import PrivPfC

checks = pytest.importorskip("sklearn.utils.estimator_checks")

DO_NOT_APPLY = {
    "check_estimators_empty_data_messages": "every input yields an output, or the failure would tell about the data",
    "check_classifiers_regression_target": "a label that is no declared class is left out, not refused",
    "check_supervised_y_no_nan": "a label that is no declared class is left out, not refused",
    "check_supervised_y_2d": "warns with a class of scikit-learn's own",
    "check_complex_data": "what is no real number is left out, not refused: one such value would make all complex",
    "check_fit_idempotent": "every fit draws fresh noise",
    "check_classifier_data_not_an_array": "compares two fits, and every fit draws fresh noise",
}


class LabelsDeclareClasses(PrivPfC):
    """The checks bring labels of many kinds, which a user declares, and lists, whose number of columns a user declares;
    here both are read off, which is not private."""

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(np.asarray(X) if isinstance(X, list) else X, y)

    def _public_classes(self, y: Any) -> Any:
        return super()._public_classes(y) if y is None else np.unique(np.asarray(y))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_s_checks_pass_where_they_apply() -> None:
    estimator = LabelsDeclareClasses(epsilon=1, attributes=(-10, 10), classes=[0, 1], pool_size=50)
    outcomes = checks.check_estimator(estimator, expected_failed_checks=DO_NOT_APPLY, on_fail=None, on_skip=None)
    failed = {outcome["check_name"]: outcome["exception"] for outcome in outcomes if outcome["status"] == "failed"}
    assert failed == {}
    assert sum(outcome["status"] == "passed" for outcome in outcomes) > 35
    excused = {outcome["check_name"] for outcome in outcomes if outcome["status"] == "xfail"}
    assert excused <= set(DO_NOT_APPLY)


def test_it_is_cloned_and_searched_like_any_classifier() -> None:
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import cross_val_score

    rows = np.random.default_rng(1).uniform(0, 1, (3_000, 2))
    model = clone(PrivPfC(epsilon=5, attributes=(0, 1), classes=[0, 1], pool_size=100))
    assert is_classifier(model)
    assert cross_val_score(model, rows, (rows[:, 0] > 0.5).astype(int), cv=3).mean() > 0.9
