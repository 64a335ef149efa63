"""Cross-fitted regressions, against those of scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.preprocessing import StandardScaler

from lstd.metrics.cross_fitting import RIDGES, cross_fitted, folds_of_stream, folds_of_subjects
from tolerances import assert_close


def expected(target, value, X, folds):
    found = np.empty(len(target))
    columns = StandardScaler().fit_transform(X)
    for taught, own in folds:
        of_value = LinearRegression().fit(value[taught, np.newaxis], target[taught])
        rest = target[taught] - of_value.predict(value[taught, np.newaxis])
        of_features = RidgeCV(RIDGES * len(taught)).fit(columns[taught], rest)
        found[own] = of_value.predict(value[own, np.newaxis]) + of_features.predict(columns[own])
    return found


@pytest.mark.parametrize(
    ("n_features", "noise", "stream"),
    [(1, 100.0, True), (4, 1.0, False), (4, 100.0, True), (60, 0.01, False), (60, 1.0, True)],
)
def test_it_is_the_regression_of_scikit_learn(n_features, noise, stream):
    """With little noise the smallest ridge coefficient is chosen, with much a large one."""
    random = np.random.default_rng(n_features)
    X = random.normal(size=(40, n_features)) * np.geomspace(0.01, 100.0, n_features)
    X[:, -1] = random.integers(2, size=40)
    value = random.normal(size=40) + X[:, 0]
    target = 3.0 + value + X[:, -1] + noise * random.normal(size=40)
    folds = folds_of_stream(np.arange(40), 2) if stream else folds_of_subjects(np.arange(40) // 2)
    assert_close(cross_fitted(target, value, X, folds), expected(target, value, X, folds), "solve")


def test_equal_values_and_constant_features_say_nothing():
    random = np.random.default_rng(0)
    folds = folds_of_subjects(np.arange(30))
    target = random.normal(size=30)
    found = cross_fitted(target, np.full(30, 7.0), np.full((30, 1), 2.0), folds)
    for taught, own in folds:
        assert_close(found[own], np.full(len(own), target[taught].mean()), "sums")
