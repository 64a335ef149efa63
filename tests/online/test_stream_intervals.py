"""Standard errors in a stream are those of the batch estimator on the same rows and blocks."""

import numpy as np
import pytest

from lstd import LSTD, RecursiveLSTD
from lstd.errors import InvalidInputError

N = 5


def rows(n_rows, seed=0):
    random = np.random.default_rng(seed)
    X = np.column_stack([random.normal(size=(n_rows, N - 1)), np.ones(n_rows)])
    return X, X[:, 0] + random.normal(size=n_rows)


def test_with_forgetting_errors_are_of_the_effective_sample():
    """As after a stream of 1/(1 − f) · (1 + f)/… transitions: neither those of all, nor shrinking."""
    X, y = rows(20_000)
    model, found = RecursiveLSTD(N, 0.9, forgetting=0.998), []
    for first in range(0, len(X), 5000):
        model.partial_fit(X[first : first + 5000], y[first : first + 5000])
        found.append(model.predict(X[:200], return_std=True)[1].mean())
    batch = LSTD(0.9, fit_intercept=False).fit(X[:1000], y[:1000])  # 1/Σ w² rows, for weights f^k that sum to 1
    expected = batch.predict(X[:200], return_std=True)[1].mean()
    assert 0.7 < np.mean(found) / expected < 1.4
    assert len(model.reader.influence().shares) <= 28


@pytest.mark.parametrize(
    ("settings", "n_rows", "message"),
    [({}, 10, "at least 20 rows; the model was fitted to 9"), ({"n_blocks": 0}, 500, "`n_blocks` of at least 10")],
)
def test_too_few_blocks_are_refused(settings, n_rows, message):
    X, y = rows(n_rows)
    model = RecursiveLSTD(N, 0.9, **settings).partial_fit(X, y)
    with pytest.raises(InvalidInputError, match=message):
        model.predict(X[0], return_std=True)
    with pytest.raises(InvalidInputError, match=message):
        model.predict_interval(X[0])
