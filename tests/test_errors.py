"""Warnings point at the line of the caller, not at ours."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lstd import LSTD, LSTDStatistics, errors
from lstd.errors import BrokenEpisodeWarning, IllConditionedWarning, MissingTerminationWarning

X, y, IDS = np.zeros((6, 2)), np.zeros(6), [1, 1, 1, 2, 2, 2]
LATER = LSTD(alpha=0.0).partial_fit(X, y)


@pytest.mark.parametrize(
    ("call", "category"),
    [
        (lambda: LSTD(alpha=0.0).fit(X, y), IllConditionedWarning),
        (lambda: LATER.predict(X), IllConditionedWarning),
        (lambda: make_pipeline(StandardScaler(), LSTD(alpha=0.0)).fit(X, y), IllConditionedWarning),
        (lambda: LSTD().fit(X, y, episode=IDS), MissingTerminationWarning),
        (lambda: LSTD().fit(X, y, X_next=X + 1), BrokenEpisodeWarning),
        (lambda: LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.5, episode=IDS), MissingTerminationWarning),
        (lambda: LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.5).solve(0.0), IllConditionedWarning),
    ],
)
def test_the_line_is_that_of_the_caller(call, category):
    with pytest.warns(category) as caught:
        call()
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, inspect.getsourcelines(call)[1])]


def test_a_filter_on_a_reason_catches_no_other():
    reasons = [kind.__subclasses__() for kind in errors.LSTDWarning.__subclasses__()]
    assert len(reasons) == 9
    assert all(not reason.__subclasses__() for few in reasons for reason in few)


def test_a_filter_on_a_kind_catches_its_reasons():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", errors.EndsWarning)
        LSTD(alpha=0.0).fit(X, y, episode=IDS)
    assert [warning.category for warning in caught] == [MissingTerminationWarning]


def test_threads_of_others_do_not_matter():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(LSTD(gamma=0.1, alpha=0.0), np.zeros((60, 2)), np.arange(60.0), cv=2, n_jobs=1)
    assert {w.filename for w in caught if issubclass(w.category, IllConditionedWarning)} == {__file__}
